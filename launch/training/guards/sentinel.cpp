#include "launch/training/guards/sentinel.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <sstream>

#include "core/base/partition.h"
#include "core/tensor/raw_ops.h"

namespace lockstep {
namespace {

constexpr int64_t kGrain = 1024;  // chunks that are worth a thread: 256 KiB
constexpr size_t kNamed = 4;      // tensors that a message names
// Of a state on a GPU: elements copied at a time, and threads that hash them faster than they come.
constexpr int64_t kDigested = 4 << 20;
constexpr int kHashThreads = 4;

std::string ranks_text(const std::set<int>& ranks) {
  std::string out;
  size_t i = 0;
  for (int r : ranks) out += str(i == 0 ? "" : i + 1 == ranks.size() ? " and " : ", ", r), ++i;
  return str(ranks.size() == 1 ? "rank " : "ranks ", out);
}

// A line for each entry, so that ranks can be compared by text: digest, offset, name.
std::string lines_of(int rank, const std::vector<StateEntry>& state, const std::vector<Hash128>& digests) {
  std::string out = str(rank, "\n");
  for (size_t i = 0; i < state.size(); ++i)
    out += str(to_hex(digests[i]), state[i].name, state[i].offset ? str(" from element ", state[i].offset) : "", "\n");
  return out;
}

}  // namespace

std::vector<Hash128> digests_of(const std::vector<StateEntry>& entries) {
  std::vector<Hash128> out(entries.size());
  std::optional<Stream> host;
  if (current_stream().device_queue())
    host.emplace(Device{}, Stream::Mode::kInline, std::min(available_cores(), kHashThreads));
  Stream& hashing = host ? *host : current_stream();
  for (size_t i = 0; i < entries.size(); ++i) {
    const StateEntry& e = entries[i];
    const int64_t n = e.data.numel();
    if (n == 0) continue;
    if (e.data.dtype() != DType::kFloat32) {
      for (int64_t at = 0; at < n; at += kDigested) {
        const Tensor part = e.values(at, std::min(n, at + kDigested));
        out[i] += digests_of({{e.name, e.region, e.offset + at, part}})[0];
      }
      continue;
    }
    std::mutex mutex;
    const std::string name = name_of_region(e.name, e.region);
    for_each_stretch(e, e.data.device().in_host_memory() ? n : kDigested,
                     [&](int64_t at, const float* values, int64_t m) {
                       auto piece = [&](int64_t begin, int64_t end) {
                         const IndexRange r{begin * kStateChunk, std::min(end * kStateChunk, m)};
                         const Hash128 sum = digest_of(name, e.offset + at + r.begin, values + r.begin, r.size());
                         std::lock_guard lock(mutex);
                         out[i] += sum;
                       };
                       hashing.enqueue([&](Parallel& p) { p.run(ceil_div(m, kStateChunk), kGrain, piece); });
                       hashing.synchronize();
                     });
  }
  return out;
}

void Sentinel::verify(int64_t step, const std::vector<StateEntry>& state, const std::vector<Hash128>& digests) {
  if (copies_.size == 1) return;
  Hash128 sum;
  for (const Hash128& h : digests) sum += h;
  const auto all = all_gather_text(copies_.comm(), to_hex(sum), "verify");
  const bool equal = std::all_of(all.begin(), all.end(), [&](const std::string& text) { return text == all[0]; });
  // All ranks end together: those of other groups would only say that they lost one.
  bool all_equal = equal;
  if (all_.size > copies_.size)
    for (int64_t e : all_gather_values(all_.comm(), equal, "verify")) all_equal = all_equal && e != 0;
  if (!equal) report(step, state, digests);
  if (!all_equal) throw Error::secondary(ExitCode::kRanksDisagree);
  equal_ = step;
}

void Sentinel::report(int64_t step, const std::vector<StateEntry>& state, const std::vector<Hash128>& digests) {
  std::set<int> ranks, odd;
  std::map<std::string, std::map<std::string, std::set<int>>> seen;  // tensor, digest, ranks
  for (const std::string& text :
       all_gather_text(copies_.comm(), lines_of(all_.index, state, digests), "verify tensors")) {
    std::istringstream lines(text);
    std::string line;
    std::getline(lines, line);
    const int rank = std::stoi(line);
    ranks.insert(rank);
    while (std::getline(lines, line)) seen[line.substr(32)][line.substr(0, 32)].insert(rank);
  }
  std::vector<std::string> tensors;
  bool known = true;  // for every tensor more than half of the ranks agree
  for (auto& [name, by_digest] : seen) {
    if (by_digest.size() == 1 && by_digest.begin()->second.size() == ranks.size()) continue;
    tensors.push_back(name);
    const auto most = std::max_element(by_digest.begin(), by_digest.end(),
                                       [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
    known = known && 2 * most->second.size() > ranks.size();
    for (int r : ranks)
      if (!most->second.count(r)) odd.insert(r);
  }
  // Parameters are what people know by name.
  std::stable_sort(tensors.begin(), tensors.end(), [](const std::string& a, const std::string& b) {
    return a.starts_with(kParameters) > b.starts_with(kParameters);
  });
  std::string names;
  for (size_t i = 0; i < std::min(kNamed, tensors.size()); ++i) names += str(i ? ", " : "", tensors[i]);
  if (tensors.size() > kNamed) names += str(" and ", tensors.size() - kNamed, " more tensors");
  const int speaker = known && !odd.empty() ? *odd.begin() : *ranks.begin();
  if (all_.index != speaker) throw Error::secondary(ExitCode::kRanksDisagree);

  const std::string last =
      equal_ >= 0 ? str("they were last found equal after step ", equal_) : "this was the first comparison of this run";
  const std::string advice =
      equal_ >= 0 ? str("; then go on from a checkpoint of step ", equal_, " or before") : std::string();
  const size_t rest = ranks.size() - odd.size();
  if (known)
    throw Error(ExitCode::kRanksDisagree,
                str("step ", step, ": ", ranks_text(odd), odd.size() == 1 ? " holds" : " hold",
                    " other values than the other ", rest, " ranks in ", names, "; ", last,
                    ". A bit flipped, or a processor computes wrongly: check the memory and processor of ",
                    odd.size() == 1 ? "that rank's machine" : "those ranks' machines", advice));
  throw Error(ExitCode::kRanksDisagree,
              str("step ", step, ": ", ranks_text(ranks), " hold different values in ", names,
                  ", and no majority says which of them are right; ", last,
                  ". A bit flipped, or a processor computes wrongly: check their machines", advice));
}

}  // namespace lockstep
