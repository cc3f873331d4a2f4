// StreamGraph: work of a GPU's stream, recorded once and then set in motion whole, again and again, without the host's
// part of it (CUDA graphs). Made and used by one rank's thread.
#pragma once

#include <functional>
#include <memory>

#include "core/device/stream.h"

namespace lockstep {

class StreamGraph {
 public:
  // `stream` must be a GPU's, and outlive this.
  explicit StreamGraph(Stream& stream);
  ~StreamGraph();  // waits for the stream
  StreamGraph(const StreamGraph&) = delete;
  StreamGraph& operator=(const StreamGraph&) = delete;

  // Runs `work` on the host; its kernels and copies are recorded, not run. They must be the same at every launch: same
  // shapes, same places in memory, no numbers of the host that change. It must not wait for the GPU (the host would
  // read what was not computed), and other streams that take part must have been joined by its end. Memory that it
  // allocates stays the graph's own, and what it keeps (a loss, gradients) holds new values after each launch.
  void record(const std::function<void()>& work);
  bool recorded() const { return graph_ != nullptr; }
  void launch();

 private:
  Stream& stream_;
  std::shared_ptr<DeviceGraph> graph_;
};

// Throws ExitCode::kConfig where a graph is being recorded: for `what`, which cannot be in one.
void not_in_a_graph(const char* what);

}  // namespace lockstep
