#include "launch/training/profiling/timeline.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <string_view>

#include "core/base/log.h"
#include "core/base/median.h"
#include "core/device/context.h"
#include "core/io/files.h"
#include "launch/checkpoints/machine_parts.h"

namespace lockstep {
namespace {

constexpr int kStepTrack = -1;           // tid of the steps themselves
constexpr size_t kMostSpans = 300'000;   // of a process: about 60 MB of text
constexpr size_t kMostSamples = 40'000;  // of its memory
constexpr int64_t kShownWait = 20'000;   // ns: shorter waits have no arrow
constexpr std::array<std::string_view, 7> kExchanges = {"all_reduce", "all_gather", "all_to_all", "reduce_scatter",
                                                        "broadcast",  "share",      "barrier"};

bool is_exchange(const Span& s) {
  return !s.range && std::find(kExchanges.begin(), kExchanges.end(), std::string_view(s.name)) != kExchanges.end();
}

// Microseconds with three digits after the point.
void put_us(std::string& out, int64_t ns) {
  ns = std::max<int64_t>(0, ns);  // clocks of machines are aligned roughly
  out += std::to_string(ns / 1000);
  out += '.';
  const std::string rest = std::to_string(ns % 1000);
  out.append(3 - rest.size(), '0');
  out += rest;
}

const std::string& quoted(const char* name) {
  thread_local std::map<const char*, std::string> known;
  auto [it, fresh] = known.try_emplace(name);
  if (fresh) it->second = json_text_of(std::string(name));
  return it->second;
}

}  // namespace

Timeline::Timeline(Communicator& comm, std::pair<int64_t, int64_t> steps, int64_t ranks, std::string path,
                   JsonObject about)
    : comm_(comm),
      steps_(steps),
      path_(std::move(path)),
      about_(std::move(about)),
      every_((comm.size() + ranks - 1) / ranks) {}

Timeline::~Timeline() {
  if (on_ && owner_) stop();
}

// The clocks of processes on one machine are the same. Those of machines are aligned by barriers, which all ranks leave
// at about the same time: the median over several of what each rank's clock says less what rank 0's does.
void Timeline::measure_clocks(const std::vector<int>& machines) {
  constexpr int kRounds = 9;
  std::vector<int64_t> left;
  for (int i = 0; i < kRounds; ++i) {
    comm_.barrier("clocks");
    left.push_back(trace_now_ns());
  }
  std::vector<double> ahead;
  for (const int64_t mine : left)
    ahead.push_back(static_cast<double>(mine - all_gather_values(comm_, mine, "clocks")[0]));
  const bool same = machines[static_cast<size_t>(comm_.rank())] == machines[0];
  offset_ns_ = same ? 0 : static_cast<int64_t>(median(ahead));
  offset_ns_ += all_gather_values(comm_, left.back(), "clocks")[0];
}

void Timeline::before(int64_t step) {
  if (step < steps_.first || step > steps_.second) return;
  if (!on_) {
    const std::vector<int> machines = machine_leaders(comm_);
    measure_clocks(machines);
    const auto pids = all_gather_values(comm_, ::getpid(), "processes");
    const auto me = static_cast<size_t>(comm_.rank());
    owner_ = true;
    for (size_t r = 0; r < me; ++r) owner_ = owner_ && (pids[r] != pids[me] || machines[r] != machines[me]);
    if (owner_) {
      sample_memory(current_device(), true);
      start_trace();
    }
    comm_.barrier("timeline");
    on_ = true;
  }
  whole_.push_back({step, trace_now_ns(), 0});
}

void Timeline::stop() {
  stop_trace();
  sample_memory(current_device(), false);
}

void Timeline::take() {
  Trace trace = take_trace();
  lost_ += trace.lost;
  for (Span& s : trace.spans) {
    if (s.file || s.rank % every_ != 0) continue;
    if (spans_.size() < kMostSpans) spans_.push_back(s);
    else ++lost_;
  }
  const auto samples = take_memory_samples(current_device());
  if (comm_.rank() % every_ == 0 && samples_.size() < kMostSamples)
    samples_.insert(samples_.end(), samples.begin(), samples.end());
}

bool Timeline::after(int64_t step) {
  if (!on_ || step < steps_.first || step > steps_.second) return false;
  // They end in order. Where two are under way, as on a GPU, a step begins when the one before ends.
  const auto now = std::find_if(whole_.begin(), whole_.end(), [&](const Step& s) { return s.number == step; });
  now->end_ns = trace_now_ns();
  if (now != whole_.begin()) now->begin_ns = std::max(now->begin_ns, std::prev(now)->end_ns);
  if (step < steps_.second) {
    if (owner_) take();
    return false;
  }
  current_stream().synchronize();  // a GPU's spans are known when it has done the work
  comm_.barrier("timeline");
  if (owner_) {
    stop_trace();
    take();
    stop();
  }
  on_ = false;
  const std::vector<std::string> events = all_gather_text(comm_, events_of_rank(), "timeline");
  if (lost_ > 0)
    log_warning(str("the timeline lacks ", lost_, " spans: there were more than it keeps; take fewer steps"));
  spans_.clear();
  samples_.clear();
  if (comm_.rank() != 0) return true;
  try {
    make_folder(std::filesystem::path(path_).parent_path().string());
    replace_file(path_, written(events));
    log_info(str("timeline: ", path_, "; ui.perfetto.dev opens it, `lockstep profile summary` prints tables of it"));
  } catch (const Error& e) {  // it does not end the run
    log_warning(str("the timeline is not written: ", e.what()));
  }
  return true;
}

// One event a line; of exchanges also a line "#name rank thread begin end".
std::string Timeline::events_of_rank() const {
  std::string out;
  std::set<std::pair<int, int>> threads;  // rank and thread
  const auto event = [&](int rank, int thread, int64_t begin_ns, int64_t end_ns, const std::string& name,
                         const std::string& more) {
    out += str("{\"ph\":\"X\",\"pid\":", rank, ",\"tid\":", thread, ",\"name\":", name, ",\"ts\":");
    put_us(out, begin_ns - offset_ns_);
    out += ",\"dur\":";
    put_us(out, end_ns - begin_ns);
    out += more + "}\n";
  };
  if (comm_.rank() % every_ == 0)
    for (const Step& s : whole_)
      event(comm_.rank(), kStepTrack, s.begin_ns, s.end_ns, json_text_of(str("step ", s.number)), ",\"cat\":\"step\"");
  for (const Span& s : spans_) {
    std::string more = str(",\"cat\":\"",
                           s.range                      ? "range"
                           : trace_track_name(s.thread) ? is_exchange(s) ? "device exchange" : "device"
                           : is_exchange(s)             ? "exchange"
                                                        : "work",
                           "\",\"args\":{\"self\":");
    put_us(more, std::max<int64_t>(0, s.self_ns));
    if (s.module) more += ",\"module\":" + quoted(s.module);
    if (s.backward) more += ",\"backward\":true";
    if (s.bytes > 0) more += ",\"bytes\":" + std::to_string(s.bytes);
    if (s.flops > 0) more += str(",\"flops\":", s.flops);
    event(s.rank, s.thread, s.begin_ns, s.end_ns,
          s.backward && !s.range ? json_text_of(str(s.name, " backward")) : quoted(s.name), more + "}");
    threads.emplace(s.rank, s.thread);
    if (!is_exchange(s) || trace_track_name(s.thread)) continue;
    out += str("#", s.name, " ", s.rank, " ", s.thread, " ", s.begin_ns - offset_ns_, " ", s.end_ns - offset_ns_, "\n");
  }
  for (const MemorySample& m : samples_) {
    out += str("{\"ph\":\"C\",\"pid\":", comm_.rank(), ",\"name\":\"memory\",\"ts\":");
    put_us(out, m.time_ns - offset_ns_);
    out += ",\"args\":{";
    for (int use = 0; use < kMemoryUses; ++use)
      out += str(use ? ",\"" : "\"", static_cast<MemoryUse>(use), "\":", m.by_use[static_cast<size_t>(use)]);
    out += "}}\n";
  }
  for (const auto& [rank, thread] : threads) {
    const bool own = rank == comm_.rank() && thread == trace_thread();
    const char* const track = trace_track_name(thread);
    out += str("{\"ph\":\"M\",\"pid\":", rank, ",\"tid\":", thread, ",\"name\":\"thread_name\",\"args\":{\"name\":\"",
               track ? track
               : own ? "compute"
                     : "thread",
               " ", thread, "\"}}\n");
  }
  return out;
}

struct Timeline::Exchange {
  int rank = 0, thread = 0;
  int64_t begin = 0, end = 0;
};

// Arrows from the rank that came last to each exchange to those that waited for it. The k-th exchange of a kind is the
// same one on every rank where all have as many of them.
std::string Timeline::written(const std::vector<std::string>& events) const {
  std::string out = "{\"displayTimeUnit\":\"ms\",\"otherData\":" + json_line(about_) + ",\"traceEvents\":[\n";
  std::map<std::string, std::map<int, std::vector<Exchange>>> exchanges;
  bool first = true;
  const auto put = [&](std::string_view event) {
    if (!first) out += ",\n";
    first = false;
    out += event;
  };
  for (int rank = 0; rank < comm_.size(); ++rank)
    put(str("{\"ph\":\"M\",\"pid\":", rank, ",\"name\":\"process_name\",\"args\":{\"name\":\"rank ", rank, "\"}}"));
  for (const std::string& text : events)
    for (size_t at = 0, end; (end = text.find('\n', at)) != std::string::npos; at = end + 1) {
      const std::string_view line = std::string_view(text).substr(at, end - at);
      if (!line.starts_with('#')) {
        put(line);
        continue;
      }
      std::istringstream in{std::string(line.substr(1))};
      std::string name;
      Exchange e;
      in >> name >> e.rank >> e.thread >> e.begin >> e.end;
      exchanges[name][e.rank].push_back(e);
    }
  // With groups of ranks, the k-th exchange of one group is not that of another.
  if (integer_of(about_, "group") != 0 && integer_of(about_, "group") != comm_.size()) exchanges.clear();
  int64_t id = 0;
  const auto flow = [&](const char* kind, const Exchange& e, int64_t at) {
    std::string event =
        str("{\"ph\":\"", kind, "\",\"id\":", id, ",\"cat\":\"wait\",\"name\":\"waited for\",\"pid\":", e.rank,
            ",\"tid\":", e.thread, ",\"ts\":");
    put_us(event, at);
    put(event + (*kind == 'f' ? ",\"bp\":\"e\"}" : "}"));
  };
  for (auto& [name, of_ranks] : exchanges) {
    const size_t count = of_ranks.begin()->second.size();
    if (of_ranks.size() < 2 ||
        std::any_of(of_ranks.begin(), of_ranks.end(), [&](auto& r) { return r.second.size() != count; }))
      continue;
    for (size_t k = 0; k < count; ++k) {
      const Exchange* last = nullptr;
      for (auto& [_, list] : of_ranks)
        if (!last || list[k].begin > last->begin) last = &list[k];
      for (auto& [_, list] : of_ranks) {
        const Exchange& e = list[k];
        if (last->begin - e.begin < kShownWait || e.end < last->begin || last->rank == e.rank) continue;
        ++id;
        flow("s", *last, last->begin);
        flow("f", e, last->begin);
      }
    }
  }
  return out + "\n]}\n";
}

}  // namespace lockstep
