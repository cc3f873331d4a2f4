#include "launch/cluster/diagnosis.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <map>

#include "core/base/text_table.h"
#include "launch/world/memory_report.h"

namespace lockstep {
namespace {

std::string seconds_text(double s) {
  char text[32];
  std::snprintf(text, sizeof text, s < 10 ? "%.1f s" : "%.0f s", s);
  return text;
}

double age_of(const Activity& a, const RankView& r, double now) { return a.age_s + std::max(0.0, now - r.heard); }

// "in backward, after step 18, for 3.2 s"
std::string doing(const RankView& r, double now) {
  const Activity& a = !r.call.what.empty() ? r.call : r.phase;
  std::string out = str("after step ", r.step.step);
  if (a.what.empty()) return out;
  out = str("in ", a.what, ", ", out);
  if (!r.ended) out += str(", for ", seconds_text(age_of(a, r, now)));
  return out;
}

// "ranks 0, 1 and 3 wait in all_gather #12 of blocks.3"
std::string waiting_text(const std::vector<RankView>& ranks, int except) {
  std::map<std::string, std::vector<int>> by_call;
  for (const RankView& r : ranks)
    if (r.rank != except && !r.call.what.empty() && (!r.ended || r.code != 0)) by_call[r.call.what].push_back(r.rank);
  std::string out;
  for (auto& [call, waiting] : by_call) {
    if (out.size() > 600) break;
    out += str(out.empty() ? "" : "; ", ranks_and(waiting), waiting.size() == 1 ? " waits in " : " wait in ", call);
  }
  return out;
}

// Open MPI ends ranks that miss mpirun with codes above those.
bool is_by_signal(const RankView& r) { return r.code > 128 && r.code <= 128 + SIGRTMAX; }

bool is_stopped(const RankView& r) { return r.state == 'T' || r.state == 't'; }

double limit_of(const Activity& a, double least) { return std::max(least, 10 * a.median_s); }

// How long this rank, which waits for no other, has been in one phase; negative: it has none.
double stuck_s(const RankView& r, double now) {
  return r.ended || !r.call.what.empty() || r.phase.what.empty() || is_stopped(r) ? -1 : age_of(r.phase, r, now);
}

std::string phase_text(const RankView& r) {
  std::string out = r.phase.what;
  if (!r.phase.waits_in.empty()) out += str(", which waits in ", r.phase.waits_in);
  if (!r.stack.empty()) out += str(", at ", r.stack);
  return out;
}

const char* kComeBack = "go on from the last checkpoint with --resume, or start with --restarts";

// The rank whose end explains the others'.
const RankView* first_failed(const std::vector<RankView>& ranks) {
  const RankView* best = nullptr;
  const auto priority_of = [](const RankView& r) {  // the least is first
    const int own = static_cast<int>(ExitCode::kRankLost);
    if (is_by_signal(r)) return 0;                          // a signal: nothing that another rank could cause
    if (r.code != own && !r.first_error.empty()) return 1;  // it says what is wrong
    if (!r.first_error.empty()) return 2;                   // it says that it misses others
    return 3;                                               // it ends because of another
  };
  for (const RankView& r : ranks) {
    if (!r.ended || r.code == 0 || r.code == static_cast<int>(ExitCode::kSaved)) continue;
    if (!best || std::pair(priority_of(r), r.ended_at) < std::pair(priority_of(*best), best->ended_at)) best = &r;
  }
  return best;
}

Diagnosis diagnosis_about(const RankView& r) {
  Diagnosis v;
  v.rank = r.rank;
  v.host = r.host;
  v.step = r.step.step;
  return v;
}

// "; ranks 0 and 2 wait in ...", or nothing.
std::string and_waiting(const std::vector<RankView>& ranks, int but) {
  const std::string waiting = waiting_text(ranks, but);
  return waiting.empty() ? waiting : "; " + waiting;
}

Diagnosis diagnosis_of_end(const RankView& r, const std::vector<RankView>& ranks, double now) {
  Diagnosis v = diagnosis_about(r);
  const bool by_signal = is_by_signal(r);
  if (!by_signal) v.code = static_cast<ExitCode>(r.code);
  const bool asked = !r.crashed;
  if (!by_signal && !r.first_error.empty()) {
    // Its own words; where others say the same, it is not for its machine to be looked at.
    const bool alone = std::none_of(ranks.begin(), ranks.end(), [&](const RankView& other) {
      return other.rank != r.rank && other.first_error == r.first_error;
    });
    const bool named = r.first_error.starts_with("rank ") || ranks.size() == 1 || !alone;
    v.text = named ? r.first_error : str(place_of(r), ": ", r.first_error);
    return v;
  }
  v.text = str(place_of(r), " ", end_text(r), " ", doing(r, now));
  if (!r.stack.empty()) v.text += str(", at ", r.stack);
  v.text += and_waiting(ranks, r.rank);
  if (!by_signal) {
    v.text += "; it reported no reason";
    v.explained = false;
    if (v.code == ExitCode::kOk) v.code = ExitCode::kRankLost;
  } else if (r.memory_limit >= 0) {
    v.text += "; use more ranks with a higher sharding.level, smaller micro-batches or recompute (`lockstep plan`)";
  } else if (asked) {
    v.advice = kComeBack;
  } else {
    v.text += "; this is a bug in the program or in a user's model";
  }
  return v;
}

}  // namespace

std::string ranks_and(const std::vector<int>& ranks) {
  if (ranks.size() == 1) return str("rank ", ranks[0]);
  std::string out = "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (i == 12 && ranks.size() > 14) return str(out, " and ", ranks.size() - i, " more");
    out += str(i == 0 ? "" : i + 1 == ranks.size() ? " and " : ", ", ranks[i]);
  }
  return out;
}

std::string place_of(const RankView& r) {
  return str("rank ", r.rank, r.host.empty() ? "" : str(" on ", r.host),
             r.process ? str(" (process ", r.process, ")") : "");
}

std::string end_text(const RankView& r) {
  if (!is_by_signal(r)) return r.code == 0 ? "ended early, without an error," : str("ended with exit code ", r.code);
  const int number = r.code - 128;
  const char* name = ::sigabbrev_np(number);
  std::string out =
      str(number == SIGKILL ? "was killed by " : "ended by ", name ? str("SIG", name) : str("signal ", number));
  if (r.memory_limit > 0) out += str(": out of memory, the limit of its control group is ", bytes_text(r.memory_limit));
  else if (r.memory_limit == 0) out += ": the machine ran out of memory";
  return out;
}

namespace {

// A rank that ended as if all were done, while others still train.
std::optional<Diagnosis> diagnosis_of_early_end(const std::vector<RankView>& ranks, double now) {
  const bool any_left = std::any_of(ranks.begin(), ranks.end(), [](const RankView& r) { return !r.ended; });
  for (const RankView& r : ranks) {
    if (!any_left || !r.ended || r.code != 0 || r.step.step >= r.step.total || now - r.ended_at <= 1) continue;
    Diagnosis v = diagnosis_of_end(r, ranks, now);
    v.code = ExitCode::kRankLost;
    return v;
  }
  return {};
}

// Ranks that are not heard of any more, and machines all of whose ranks are such.
std::optional<Diagnosis> diagnosis_of_silence(const std::vector<RankView>& ranks, const Patience& p, double now) {
  std::vector<const RankView*> silent;
  std::map<std::string, std::pair<int, int>> hosts;  // silent ranks, all ranks
  for (const RankView& r : ranks) {
    const bool lost = !r.ended && r.process && (now - r.heard > p.silence || !r.connected);
    if (lost) silent.push_back(&r);
    auto& [gone, all] = hosts[r.host];
    gone += lost;
    ++all;
  }
  if (silent.empty()) return {};
  const RankView& r = *silent[0];
  Diagnosis v = diagnosis_about(r);
  std::vector<int> numbers;
  for (const RankView* s : silent) numbers.push_back(s->rank);
  for (auto& [host, count] : hosts)
    if (count.first == count.second) v.lost_hosts.insert(host);
  const std::string since = r.connected ? str(" for ", seconds_text(now - r.heard)) : "";
  v.text = v.lost_hosts.count(r.host)
               ? str(r.host, " (", ranks_and(numbers), ") ", r.connected ? "does not answer" : "closed the connection",
                     since, ": the machine is down, its network is cut, or its processes were killed")
               : str(ranks_and(numbers), " on ", r.host, silent.size() == 1 ? " does" : " do", " not answer", since);
  v.text += str("; last seen ", doing(r, r.heard), and_waiting(ranks, r.rank));
  v.advice = kComeBack;
  return v;
}

std::optional<Diagnosis> diagnosis_of_stop(const std::vector<RankView>& ranks, const Patience& p, double now) {
  for (const RankView& r : ranks) {
    if (r.ended || !is_stopped(r) || r.stopped_since < 0 || now - r.stopped_since < p.silence) continue;
    Diagnosis v = diagnosis_about(r);
    v.text = str(place_of(r), " has been stopped for ", seconds_text(now - r.stopped_since),
                 r.state == 't' ? ", by a debugger" : ", by SIGSTOP", ", ", doing(r, r.stopped_since),
                 and_waiting(ranks, r.rank));
    v.advice = kComeBack;
    return v;
  }
  return {};
}

// The rank that has been longest in a phase without progress.
std::optional<Diagnosis> diagnosis_of_stuck(const std::vector<RankView>& ranks, const Patience& p, double now) {
  const RankView* stuck = nullptr;
  for (const RankView& r : ranks)
    if (const double s = stuck_s(r, now); s > limit_of(r.phase, p.deadline) && (!stuck || s > stuck_s(*stuck, now)))
      stuck = &r;
  if (!stuck) return {};
  Diagnosis v = diagnosis_about(*stuck);
  v.text = str(place_of(*stuck), " has made no progress for ", seconds_text(stuck_s(*stuck, now)), " in ",
               phase_text(*stuck), ", after step ", stuck->step.step, and_waiting(ranks, stuck->rank));
  v.advice = kComeBack;
  return v;
}

}  // namespace

std::optional<Diagnosis> diagnosis_of(const std::vector<RankView>& ranks, const Patience& p, double now) {
  if (const RankView* r = first_failed(ranks)) return diagnosis_of_end(*r, ranks, now);
  if (auto v = diagnosis_of_early_end(ranks, now)) return v;
  if (auto v = diagnosis_of_silence(ranks, p, now)) return v;
  if (auto v = diagnosis_of_stop(ranks, p, now)) return v;
  return diagnosis_of_stuck(ranks, p, now);
}

std::vector<Notice> notices_on(const std::vector<RankView>& ranks, const Patience& p, double now) {
  std::vector<Notice> out;
  bool explained = false;
  for (const RankView& r : ranks) {
    if (r.ended || !r.process) continue;
    const double silent = now - r.heard;
    if (silent > p.warn_silence) {
      out.push_back({str("silent ", r.rank),
                     str(place_of(r), " has not been heard of for ", seconds_text(silent), "; it is given up after ",
                         seconds_text(p.silence)),
                     r.rank});
    } else if (is_stopped(r) && now - r.stopped_since > std::min(1.0, p.warn_silence)) {
      out.push_back({str("stopped ", r.rank),
                     str(place_of(r), " is stopped, ", r.state == 't' ? "by a debugger" : "by SIGSTOP", ", ",
                         doing(r, r.stopped_since), "; it is given up after ", seconds_text(p.silence)),
                     r.rank});
    } else if (const double s = stuck_s(r, now); s > limit_of(r.phase, p.slow_phase)) {
      out.push_back({str("slow ", r.rank, " ", r.phase.what, " ", r.step.step),
                     str(place_of(r), " has made no progress for ", seconds_text(s), " in ", phase_text(r),
                         ", after step ", r.step.step, and_waiting(ranks, r.rank), "; it is given up after ",
                         seconds_text(limit_of(r.phase, p.deadline))),
                     r.rank, r.phase.thread});
    } else {
      continue;
    }
    explained = true;
  }
  if (explained) return out;
  // All are in exchanges that do not end: the network between them.
  for (const RankView& r : ranks) {
    if (r.ended || r.call.what.empty()) return out;
    if (age_of(r.call, r, now) <= limit_of(r.call, p.slow_phase)) return out;
  }
  if (ranks.size() > 1)
    out.push_back({"exchange", str("no progress in exchanges for ", seconds_text(age_of(ranks[0].call, ranks[0], now)),
                                   ": ", waiting_text(ranks, -1), "; a network between them is slow or cut")});
  return out;
}

}  // namespace lockstep
