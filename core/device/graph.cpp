#include "core/device/graph.h"

#include "core/device/allocator.h"
#include "core/device/context.h"

namespace lockstep {

StreamGraph::StreamGraph(Stream& stream) : stream_(stream) {
  check(stream.device_queue() != nullptr, "a graph of ", stream.device(), ": only a GPU's work can be recorded");
}

StreamGraph::~StreamGraph() {
  try {
    stream_.synchronize();
  } catch (...) {
    // Whoever waits for that work is told.
  }
  graph_.reset();
  free_graph_memory(this, stream_.device());
}

namespace {

class WithRecording {
 public:
  explicit WithRecording(const void* graph) { context().recording = graph; }
  ~WithRecording() { context().recording = nullptr; }
  WithRecording(const WithRecording&) = delete;
};

}  // namespace

void StreamGraph::record(const std::function<void()>& work) {
  check(!context().recording, "a graph within a graph");
  stream_.synchronize();  // what comes before is no part of it
  stream_.device_queue()->begin_recording();
  try {
    WithRecording with(this);
    work();
  } catch (...) {
    try {
      stream_.device_queue()->end_recording();
    } catch (...) {
      // The first error is the cause.
    }
    throw;
  }
  graph_ = stream_.device_queue()->end_recording();
}

void StreamGraph::launch() {
  check(graph_ != nullptr, "a graph was launched before it was recorded");
  stream_.device_queue()->launch(*graph_);
}

void not_in_a_graph(const char* what) {
  require(!context().recording, ExitCode::kConfig, what, " cannot be part of a recorded step: set graph: false");
}

}  // namespace lockstep
