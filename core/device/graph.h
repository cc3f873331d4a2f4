// StreamGraph: work of a GPU's stream that is recorded once and then launched as a whole, any number of times, without
// the host work in between (a CUDA graph). Used by one rank's thread.
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
  // shapes, same addresses, no changing host values. `work` must not wait for the GPU, as nothing has been computed
  // yet, and must join other streams that take part before it returns. Memory that it allocates belongs to the graph;
  // tensors that it keeps (a loss, gradients) hold new values after each launch.
  void record(const std::function<void()>& work);
  bool recorded() const;
  void launch();  // throws ExitCode::kInternal where nothing is recorded, kRankLost after drop_graphs()

 private:
  friend int drop_graphs(const Device& device);
  Stream& stream_;
  std::shared_ptr<DeviceGraph> graph_;
  bool dropped_ = false;
};

// Ends all recorded work of the device, from any thread; returns how many graphs had some. NCCL cannot abort a
// communicator while a graph holds operations of it.
int drop_graphs(const Device& device);

// Throws ExitCode::kConfig if a graph is being recorded. `what`: the operation that cannot be part of one.
void not_in_a_graph(const char* what);

}  // namespace lockstep
