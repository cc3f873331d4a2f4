#include "launch/world/devices.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <limits>
#include <optional>
#include <set>
#include <string_view>

#include "comm/local/local_comm.h"
#include "core/base/host.h"
#include "core/base/log.h"
#include "core/device/backend.h"
#include "core/device/context.h"
#include "core/device/thread_pool.h"
#include "core/kernels/kernels.h"
#include "launch/world/fail_together.h"
#include "launch/world/memory_report.h"

namespace lockstep {
namespace {

std::string gpus_text(int n) { return str(n, n == 1 ? " GPU" : " GPUs"); }

// "2 GPUs visible (CUDA_VISIBLE_DEVICES=0,1)"
std::string visible_text(int count) {
  const char* limit = std::getenv("CUDA_VISIBLE_DEVICES");
  return str(gpus_text(count), " visible", limit ? str(" (CUDA_VISIBLE_DEVICES=", limit, ")") : "");
}

std::string gpu_text(const DeviceProperties& p) {
  return str(p.name, ", ", p.architecture, ", ", bytes_text(p.memory_bytes), ", PCI ", p.bus);
}

std::string to_line(const RankPlacement& s) {
  return json_line({{"host", s.host},
                    {"machine", s.machine},
                    {"why", s.why},
                    {"gpus", static_cast<int64_t>(s.gpus)},
                    {"index", static_cast<int64_t>(s.index)},
                    {"id", s.id},
                    {"gpu", s.gpu}});
}

RankPlacement parse_placement(const std::string& line) {
  const auto o = parse_json_object(line);
  check(o.has_value(), "devices: a rank said: ", line);
  constexpr const char* kWhere = "devices";
  return {json_text(*o, "host", kWhere),
          json_text(*o, "machine", kWhere),
          json_text(*o, "why", kWhere),
          static_cast<int>(json_int(*o, "gpus", kWhere)),
          static_cast<int>(json_int(*o, "index", kWhere)),
          json_text(*o, "id", kWhere),
          json_text(*o, "gpu", kWhere)};
}

std::string wanted_text(const std::string& why) { return str("device: cuda, but no GPU can be used: ", why); }

// The error text for the first rank that would have to share a GPU; empty if each rank has its own.
std::optional<std::string> sharing_text(const std::vector<RankPlacement>& placements) {
  std::set<std::string> taken;
  for (const RankPlacement& s : placements) {
    if (taken.insert(s.id).second) continue;
    int ranks = 0;
    std::set<std::string> used;
    std::string also;  // containers have names of their own, and may have one GPU
    for (const RankPlacement& o : placements) {
      if (o.machine != s.machine && o.id != s.id) continue;
      ++ranks, used.insert(o.id);
      if (o.id == s.id && o.host != s.host) also = str(" (whose ", s.id, " is that of ", o.host, ", too)");
    }
    const int gpus = std::max(s.gpus, static_cast<int>(used.size()));
    return str(ranks, " ranks on ", s.host, also, ", but ", visible_text(gpus), ": start ",
               gpus == 1 ? "1 rank" : str(gpus),
               " there, or let ranks share a GPU, which is slower, with share_gpu=true");
  }
  return {};
}

}  // namespace

std::vector<Field> fields(DeviceOptions& o) {
  return {
      enum_field("device", o.choice,
                 {{"auto", DeviceChoice::kAuto}, {"cpu", DeviceChoice::kCpu}, {"cuda", DeviceChoice::kCuda}},
                 "where ranks compute; auto: on GPUs if every rank has its own, otherwise on CPUs")
          .without_effect_on_math(),
      field("share_gpu", o.share_gpu, "several ranks may use one GPU; their exchanges then go through host memory")
          .without_effect_on_math(),
      field("precision.tf32", o.tf32,
            "on a GPU, products and convolutions of fp32 may multiply in TF32, factors with 10 bits after the point")
          .without_effect_at_default()};
}

RankPlacement placement_of(int local_rank, const DeviceOptions& options) {
  RankPlacement s;
  s.host = host_name();
  s.machine = machine_id();
  if (options.choice == DeviceChoice::kCpu) return s;
  const DeviceBackend* backend = find_device_backend(&s.why);
  if (!backend) return s;
  s.gpus = backend->count();
  s.index = local_rank % s.gpus;
  const DeviceProperties p = backend->properties(s.index);
  s.id = p.id;
  s.gpu = gpu_text(p);
  return s;
}

PlacementDecision decide_placement(const std::vector<RankPlacement>& placements, const DeviceOptions& options) {
  if (options.choice == DeviceChoice::kCpu) return {};
  const bool asked = options.choice == DeviceChoice::kCuda;
  const auto without =
      std::find_if(placements.begin(), placements.end(), [](const RankPlacement& s) { return s.gpus == 0; });
  if (without != placements.end()) {
    const int speaker = static_cast<int>(without - placements.begin());
    if (asked) return {false, wanted_text(without->why), ExitCode::kDevice, speaker};
    const auto with =
        std::find_if(placements.begin(), placements.end(), [](const RankPlacement& s) { return s.gpus > 0; });
    if (with == placements.end()) return {false, str("no GPU: ", without->why)};
    return {false,
            str("no GPU can be used here: ", without->why, "; but rank ", with - placements.begin(), " on ", with->host,
                " has one. Fix this, or compute on CPUs everywhere with device=cpu"),
            ExitCode::kRanksDisagree, speaker};
  }
  const auto sharing = sharing_text(placements);
  if (!sharing || options.share_gpu) return {true};
  if (asked) return {false, str("device: cuda, but ", *sharing), ExitCode::kDevice, 0};
  return {false, *sharing};
}

Device place_ranks(Communicator& comm, int local_rank, const DeviceOptions& options) {
  std::vector<RankPlacement> placements;
  for (const std::string& line : all_gather_text(comm, to_line(placement_of(local_rank, options)), "devices"))
    placements.push_back(parse_placement(line));
  const PlacementDecision decision = decide_placement(placements, options);
  if (decision.error != ExitCode::kOk) {
    if (comm.rank() != decision.speaker) throw Error::secondary(decision.error);
    throw Error(decision.error, decision.text);
  }
  const bool first = comm.rank() == 0;
  if (!decision.on_gpus) {
    // Logged only on a machine that has GPUs.
    if (first && !decision.text.empty())
      log(has_gpu_driver() ? LogLevel::kInfo : LogLevel::kDebug, str("device: cpu (", decision.text, ")"));
    return {};
  }
  if (first)
    for (size_t r = 0; r < placements.size(); ++r)
      log_info(str("device: ", placements.size() > 1 ? str("rank ", r, " on ", placements[r].host, ": ") : "",
                   "cuda:", placements[r].index, ", ", placements[r].gpu));
  return {DeviceType::kCuda, placements[static_cast<size_t>(comm.rank())].index};
}

Device place_alone(const DeviceOptions& options) {
  std::string why;
  if (options.choice == DeviceChoice::kCpu) return {};
  if (find_device_backend(&why)) return {DeviceType::kCuda, 0};
  require(options.choice == DeviceChoice::kAuto, ExitCode::kDevice, wanted_text(why));
  return {};
}

int most_visible_gpus(const std::string& proc) {
  int out = std::numeric_limits<int>::max();
  if (const char* list = std::getenv("CUDA_VISIBLE_DEVICES")) {
    const std::string_view text = list;
    out = text.empty() ? 0 : 1 + static_cast<int>(std::count(text.begin(), text.end(), ','));
  }
  std::error_code error;
  const std::filesystem::directory_iterator cards(proc + "/driver/nvidia/gpus", error);
  if (!error) out = std::min(out, static_cast<int>(std::distance(begin(cards), end(cards))));
  return out;
}

void apply(const DeviceOptions& options, const Stream& stream) {
  if (const auto& queue = stream.device_queue()) queue->allow_tf32(options.tf32);
}

void agree_on_masks(Communicator& comm, const MaskedAttentions& kinds) {
  DeviceQueue* const queue = current_stream().device_queue().get();
  if (!queue) return;
  MaskedAttentions trusted = queue->trusted_masks();
  for (const MaskedAttention& kind : kinds) {
    if (size_of(kind.dtype) != 2 || trusted.contains(kind)) continue;
    std::string mine;
    fail_together(comm, [&] { mine = device_backend().doubt_of_masks(*queue, kind); });
    const std::vector<std::string> doubts = all_gather_text(comm, mine, "masks");
    const auto first = std::find_if(doubts.begin(), doubts.end(), [](const std::string& d) { return !d.empty(); });
    if (first == doubts.end()) trusted.insert(kind);
    else if (comm.rank() == 0)
      log_warning(
          str("attention that keeps documents apart is computed by slower kernels: the library's failed its proof",
              doubts.size() > 1 ? str(" on rank ", first - doubts.begin()) : "", ": ", *first));
  }
  queue->trust_masks(trusted);
}

void prove_masks_alone(const MaskedAttentions& kinds) { agree_on_masks(*make_local_communicators(1)[0], kinds); }

std::string devices_text() {
  std::string out = str("cpu     ", cores_text(available_cores()), ", ", kernels().isa, "\n");
  std::string why;
  DeviceBackend* backend = find_device_backend(&why);
  if (!backend) return out + str("no GPU: ", why, "\n");
  for (int i = 0; i < backend->count(); ++i)
    out += str(backend->name(), ":", i, "  ", gpu_text(backend->properties(i)), ", ",
               bytes_text(backend->free_memory(i)), " free\n");
  return out + backend->driver() + ", " + backend->versions() + "\n";
}

std::string devices_json() {
  std::string out = json_line({{"device", "cpu"},
                               {"cores", static_cast<int64_t>(available_cores())},
                               {"isa", std::string(kernels().isa)}}) +
                    "\n";
  std::string why;
  DeviceBackend* backend = find_device_backend(&why);
  if (!backend) return out + json_line({{"device", nullptr}, {"why", why}}) + "\n";
  for (int i = 0; i < backend->count(); ++i) {
    const DeviceProperties p = backend->properties(i);
    out += json_line({{"device", str(backend->name(), ":", i)},
                      {"name", p.name},
                      {"isa", p.architecture},
                      {"bus", p.bus},
                      {"id", p.id},
                      {"processors", static_cast<int64_t>(p.processors)},
                      {"memory_bytes", p.memory_bytes},
                      {"free_bytes", backend->free_memory(i)},
                      {"driver", backend->driver()},
                      {"versions", backend->versions()}}) +
           "\n";
  }
  return out;
}

}  // namespace lockstep
