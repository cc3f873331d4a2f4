#include "launch/report/profile_summary.h"

#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "core/base/median.h"
#include "core/base/text_table.h"

namespace lockstep {
namespace {

using RankSum = ProfileSums::Rank;
using OpSum = ProfileSums::Work;

constexpr size_t kListed = 20;

struct TimelineEvent {
  std::string name, kind;
  int rank = 0, thread = 0;
  double begin = 0, end = 0, self = 0, bytes = 0, flops = 0;
  std::string module;
  bool backward = false;
};

TimelineEvent event_of(const JsonObject& o) {
  TimelineEvent e;
  e.name = text_of(o, "name");
  e.kind = text_of(o, "cat");
  e.rank = static_cast<int>(integer_of(o, "pid"));
  e.thread = static_cast<int>(integer_of(o, "tid"));
  e.begin = number_of(o, "ts");
  e.end = e.begin + number_of(o, "dur");
  if (const auto more = parse_json_object(text_of(o, "args"))) {
    e.self = number_of(*more, "self");
    e.bytes = number_of(*more, "bytes");
    e.flops = number_of(*more, "flops");
    e.module = text_of(*more, "module");
    e.backward = json_bool(*more, "backward").value_or(false);
  }
  return e;
}

void add(OpSum& to, const TimelineEvent& e) {
  ++to.calls;
  to.us += e.self;
  to.bytes += e.bytes;
  to.flops += e.flops;
}

double ms(double us, const ProfileSums& s) { return us / 1e3 / static_cast<double>(s.steps); }

std::vector<std::pair<std::string, OpSum>> longest(const std::map<std::string, OpSum>& of) {
  std::vector<std::pair<std::string, OpSum>> out(of.begin(), of.end());
  std::stable_sort(out.begin(), out.end(), [](auto& a, auto& b) { return a.second.us > b.second.us; });
  return out;
}

// A rate, and which part of what the machine reaches it is.
std::string rate(double amount_per_us, double limit, double scale) {
  const double value = amount_per_us / scale;
  if (!(value > 0)) return "-";
  return fixed(value, 1) + (limit > 0 ? str(" (", fixed(100 * value / limit, 0), "%)") : "");
}

std::string table_of(const ProfileSums& s, const RankSum& r, const std::map<std::string, OpSum>& work,
                     const char* head) {
  const double gflops = number_of(s.about, "gflops"), gb_s = number_of(s.about, "gb_s");
  const bool rates = !json_bool(s.about, "gpu").value_or(false);
  std::vector<std::vector<std::string>> rows{{head, "calls/step", "ms/step", "% of step", "GF/s", "GB/s"}};
  double rest = 0;
  for (const auto& [name, w] : longest(work)) {
    if (rows.size() > kListed) {
      rest += w.us;
      continue;
    }
    rows.push_back({name, fixed(static_cast<double>(w.calls) / static_cast<double>(s.steps), 1), fixed(ms(w.us, s), 3),
                    fixed(100 * w.us / r.step_us, 1), rates ? rate(w.flops / w.us, gflops, 1e3) : "-",
                    rates ? rate(w.bytes / w.us, gb_s, 1e3) : "-"});
  }
  if (rest > 0) rows.push_back({"others", "", fixed(ms(rest, s), 3), fixed(100 * rest / r.step_us, 1), "", ""});
  return text_table(rows);
}

// The rank that computes longest: the others wait for it.
const std::pair<const int, RankSum>& slowest(const ProfileSums& s) {
  return *std::max_element(s.ranks.begin(), s.ranks.end(), [](auto& a, auto& b) {
    return a.second.step_us - a.second.waited_us < b.second.step_us - b.second.waited_us;
  });
}

}  // namespace

ProfileSums read_profile(std::string_view json, const std::string& name) {
  ProfileSums out;
  const auto all = parse_json_object(json);
  const auto about = all ? parse_json_object(text_of(*all, "otherData")) : std::nullopt;
  require(about && find_member(*about, "first_step"), ExitCode::kBadData, name,
          ": is no timeline that lockstep wrote (profile.steps)");
  out.about = *about;
  std::vector<TimelineEvent> of_all;
  std::map<int, std::vector<std::pair<double, double>>> steps;  // begin and end, by rank
  std::map<int, int> compute;                                   // the thread that runs the ranges, by rank
  const bool whole = visit_json_list(text_of(*all, "traceEvents"), [&](JsonObject&& o) {
    if (text_of(o, "ph") != "X") return;
    TimelineEvent e = event_of(o);
    if (e.kind == "step") steps[e.rank].emplace_back(e.begin, e.end);
    else if (e.kind == "range") compute[e.rank] = e.thread;
    of_all.push_back(std::move(e));
  });
  require(whole && !steps.empty(), ExitCode::kBadData, name, ": has no steps");
  for (auto& [rank, list_of_steps] : steps) {
    out.steps = std::max(out.steps, static_cast<int64_t>(list_of_steps.size()));
    for (auto& [begin, end] : list_of_steps) out.ranks[rank].step_us += end - begin;
  }
  const bool gpu = std::any_of(of_all.begin(), of_all.end(), [](auto& e) { return e.kind == "device"; });
  const auto inside = [&](const TimelineEvent& e) {
    for (auto& [begin, end] : steps[e.rank])
      if (e.begin >= begin && (e.end <= end || (e.kind == "device" && e.begin < end))) return true;
    return false;
  };
  for (const TimelineEvent& e : of_all) {
    if (e.kind == "step" || out.ranks.count(e.rank) == 0) continue;
    RankSum& r = out.ranks[e.rank];
    // On a GPU its own time for the tasks counts, and the host's only for waits.
    const bool on_host = compute.count(e.rank) > 0 && compute[e.rank] == e.thread;
    const bool own = e.kind == "device" || (on_host && (!gpu || e.name == "wait" || e.name == "wait_for_batch"));
    if (!inside(e)) continue;
    // On a GPU its streams' exchanges count, and not the host's time for enqueuing them.
    const bool device_exchange = e.kind == "device exchange";
    if (device_exchange || (e.kind == "exchange" && !gpu)) add(r.exchanges[e.name], e);
    if (e.kind == "range" || !own) continue;
    add(r.work[e.name], e);
    if (!e.module.empty()) add(r.modules[e.module], e);
    if (e.name == "wait" || e.kind == "exchange") r.waited_us += e.self;
    if (e.name == "wait_for_batch") r.data_us += e.self;
    if (e.name == "optimizer") r.optimizer_us += e.self;
  }
  return out;
}

std::string summary_text(const ProfileSums& s) {
  const auto& [rank, r] = slowest(s);
  std::string out =
      str(text_of(s.about, "model"), ", steps ", integer_of(s.about, "first_step"), " to ",
          integer_of(s.about, "last_step"), ", ", integer_of(s.about, "ranks"), " ranks of ",
          integer_of(s.about, "threads"), " threads, ", text_of(s.about, "compute"), ": ", fixed(ms(r.step_us, s), 3),
          " ms a step, of which rank ", rank, ", the slowest, waits ", fixed(ms(r.waited_us, s), 3), "\n\n");
  out += table_of(s, r, r.work, "operation");
  if (number_of(s.about, "gflops") > 0)
    out += str("In brackets: of what a rank's threads reach here, ", fixed(number_of(s.about, "gflops"), 1),
               " GF/s and ", fixed(number_of(s.about, "gb_s"), 1), " GB/s.\n");
  if (!r.modules.empty()) out += "\n" + table_of(s, r, r.modules, "module");
  if (!r.exchanges.empty()) out += "\n" + table_of(s, r, r.exchanges, "exchange, beside");
  if (s.ranks.size() > 1) {
    std::vector<std::vector<std::string>> rows{{"rank", "computes ms", "waits ms"}};
    for (const auto& [number, one] : s.ranks)
      rows.push_back({str(number), fixed(ms(one.step_us - one.waited_us, s), 3), fixed(ms(one.waited_us, s), 3)});
    out += "\n" + text_table(rows);
  }
  return out;
}

std::vector<ProfileAdvice> profile_advice(const ProfileSums& s) {
  std::vector<ProfileAdvice> out;
  const auto& [rank, r] = slowest(s);
  const double gflops = number_of(s.about, "gflops");
  const auto part = [&r = r](double us) { return us / r.step_us; };
  const auto percent = [](double p) { return fixed(100 * p, 0) + "%"; };
  // Time in products, convolutions and attention, which alone count operations; of it that in those that are large
  // enough to reach a fifth of the rate of large ones.
  double products = 0, products_flops = 0, large = 0;
  for (const auto& [name, w] : r.work) {
    if (gflops <= 0 || w.flops <= 0) continue;
    products += w.us, products_flops += w.flops;
    if (w.flops / w.us > 0.2 * gflops * 1e3) large += w.us;
  }

  const int64_t threads = integer_of(s.about, "threads"), cores = integer_of(s.about, "cores"),
                ranks = integer_of(s.about, "ranks");
  if (const int64_t more = cores / std::max<int64_t>(1, ranks);
      more > threads && !json_bool(s.about, "gpu").value_or(false))
    out.push_back({str("compute.threads=", more), str("each rank computes with ", threads, " of the ", cores, " cores"),
                   1 - static_cast<double>(threads) / static_cast<double>(more)});
  if (part(large) > 0.5 && text_of(s.about, "compute") == "fp32" &&
      text_of(s.about, "isa").find("bf16") != std::string::npos)
    out.push_back({"precision.compute=bf16",
                   str("products take ", percent(part(large)),
                       " of a step, and this processor multiplies bf16 at up to "
                       "twice the rate; other bits"),
                   0.4 * part(large)});
  if (part(r.data_us) > 0.05)
    out.push_back({"data.threads, data.prefetch: more",
                   str("a step waits ", percent(part(r.data_us)), " for its batch"), part(r.data_us)});
  if (json_bool(s.about, "recompute").value_or(false))
    out.push_back({"recompute=none",
                   "blocks are computed a second time in the backward pass; none takes more memory "
                   "(`lockstep plan` says how much)",
                   0.25});
  double least = r.step_us;
  int64_t calls = 0;
  for (const auto& [_, one] : s.ranks) least = std::min(least, one.step_us - one.waited_us);
  for (const auto& [_, w] : r.exchanges) calls += w.calls;
  const double longest_us = r.step_us - r.waited_us;
  if (s.ranks.size() > 1 && longest_us > 1.1 * least && longest_us - least > 0.05 * r.step_us)
    out.push_back({str("rank ", rank),
                   str("computes ", percent(longest_us / least - 1),
                       " longer than the fastest, which waits for it: "
                       "`lockstep doctor` compares their machines"),
                   part(longest_us - least)});
  double waits = r.step_us;  // that no rank avoids
  for (const auto& [_, one] : s.ranks) waits = std::min(waits, one.waited_us);
  const double per_step = static_cast<double>(calls) / static_cast<double>(std::max<int64_t>(1, s.steps));
  if (s.ranks.size() > 1 && part(waits) > 0.05) {
    if (per_step > 24)
      out.push_back({"comm.bucket: larger",
                     str("every rank waits ", percent(part(waits)), " of a step for ", fixed(per_step, 0),
                         " exchanges; fewer, larger ones cost less"),
                     part(waits)});
    else
      out.push_back({"batch.global or batch.micro: larger",
                     str("every rank waits ", percent(part(waits)),
                         " of a step for exchanges; more work between them hides them"),
                     part(waits)});
  }
  if (part(r.optimizer_us) > 0.1 && ranks > 1 && text_of(s.about, "level") == "none")
    out.push_back({"sharding.level=optimizer",
                   str("every rank updates all parameters, ", percent(part(r.optimizer_us)),
                       " of a step; with this level each updates its share: the same bits"),
                   part(r.optimizer_us) * (1 - 1 / static_cast<double>(ranks))});
  if (gflops > 0 && products > 0 && part(products) > 0.3 && products_flops / products < 0.5 * gflops * 1e3)
    out.push_back({"batch.micro: larger",
                   str("products reach ", percent(products_flops / products / (gflops * 1e3)),
                       " of what large ones reach here; other bits"),
                   part(products) * (1 - products_flops / products / (0.8 * gflops * 1e3))});
  std::stable_sort(out.begin(), out.end(), [](auto& a, auto& b) { return a.most > b.most; });
  return out;
}

}  // namespace lockstep
