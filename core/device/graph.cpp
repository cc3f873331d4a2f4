#include "core/device/graph.h"

#include <mutex>
#include <set>

#include "core/device/allocator.h"
#include "core/device/context.h"

namespace lockstep {

namespace {

// All graphs of the process; the lock guards what they hold.
struct Live {
  std::mutex mutex;
  std::set<StreamGraph*> graphs;
};
Live& live() {
  static Live* instance = new Live;
  return *instance;
}

}  // namespace

StreamGraph::StreamGraph(Stream& stream) : stream_(stream) {
  check(stream.device_queue() != nullptr, "a graph of ", stream.device(), ": only a GPU's work can be recorded");
  std::lock_guard lock(live().mutex);
  live().graphs.insert(this);
}

int drop_graphs(const Device& device) {
  std::lock_guard lock(live().mutex);
  int dropped = 0;
  for (StreamGraph* graph : live().graphs) {
    if (!graph->graph_ || graph->stream_.device() != device) continue;
    graph->graph_.reset();
    graph->dropped_ = true;
    ++dropped;
  }
  return dropped;
}

bool StreamGraph::recorded() const {
  std::lock_guard lock(live().mutex);
  return graph_ != nullptr;
}

StreamGraph::~StreamGraph() {
  try {
    stream_.synchronize();
  } catch (...) {
    // Whoever waits for that work is told.
  }
  {
    std::lock_guard lock(live().mutex);
    live().graphs.erase(this);
    graph_.reset();
  }
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
  stream_.synchronize();          // what comes before is no part of it
  trim_memory(stream_.device());  // the graph's memory is its own, and cannot come from what others have cached
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
  auto recorded = stream_.device_queue()->end_recording();
  std::lock_guard lock(live().mutex);
  graph_ = std::move(recorded);
}

void StreamGraph::launch() {
  std::shared_ptr<DeviceGraph> graph;  // held by this call, so that a launch that blocks does not keep the lock
  {
    std::lock_guard lock(live().mutex);
    require(!dropped_, ExitCode::kRankLost, "the recorded step is gone: communication of its rank was aborted");
    graph = graph_;
  }
  check(graph != nullptr, "a graph was launched before it was recorded");
  const TraceOp op("recorded step");
  stream_.enqueue([&](Parallel&) { stream_.device_queue()->launch(*graph); });
}

void not_in_a_graph(const char* what) {
  require(!context().recording, ExitCode::kConfig, what, " cannot be part of a recorded step: set graph: false");
}

}  // namespace lockstep
