// What the launcher knows of each rank, and what it concludes: which rank failed first, why, and who waits for it.
// Plain values and functions of them; launch/cluster/attempt.cpp feeds them.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/flight_recorder.h"

namespace lockstep {

// What a thread of a rank does.
struct Activity {
  std::string what = {};      // "backward", "all_gather #12 of blocks.3"; empty: nothing
  double age_s = 0;           // since it began, when it was reported
  double median_s = 0;        // of earlier ones of its kind; 0: not known
  int64_t thread = 0;         // the system's number
  std::string waits_in = {};  // a system call; empty: it computes
};

struct RankView {
  int rank = 0;
  std::string host = {};
  int64_t process = 0;     // 0: not started
  bool connected = false;  // its agent is
  double heard = 0;        // when its agent last said something; these times are by steady_now()
  char state = 0;          // of its process, see process_state()
  double stopped_since = -1;
  FlightStep step = {};
  Activity phase = {}, call = {};
  double cpu_s = 0;
  bool ended = false;
  double ended_at = 0;
  int code = 0;                  // exit code; 128 + N after signal N
  int64_t memory_limit = -1;     // it was killed for lack of memory; 0: of the machine's
  std::string first_error = {};  // its first line "error: ...", without that word
  bool crashed = false;          // that line says that it crashed (kCrashWords)
  std::string stack = {};        // of the thread that is stuck
};

// Limits in seconds.
struct Patience {
  double warn_silence = 2.5;  // nothing heard of a rank; of one that is stopped 1 s, where this is more
  double silence = 10;        // then it is given up
  double slow_phase = 5;      // a phase without progress is said after the larger of this and ten times its median
  double deadline = 60;       // and given up after the larger of this and ten times its median; in an exchange the rank
                              // itself keeps its deadline
};

struct Diagnosis {
  ExitCode code = ExitCode::kRankLost;
  int rank = -1;  // -1: none
  std::string host = {};
  int64_t step = 0;                       // the last step that the rank finished
  std::string text = {};                  // one paragraph
  std::string advice = {};                // what to do, where the job does not come back by itself
  std::set<std::string> lost_hosts = {};  // machines that cannot be reached any more
  bool explained = true;                  // false: the rank ended and gave no reason
};

// A warning while the run goes on; `key` is the same for repetitions of it, and `rank` whom it is about: -1: all.
struct Notice {
  std::string key, text;
  int rank = -1;
  int64_t stack_of = 0;  // a thread whose stack would help; 0: none
};

// Is there a reason to end the job? `now` as RankView::heard. Ends that follow from the first are told apart by time
// and kind, so this should be called a moment after the first rank ended.
std::optional<Diagnosis> diagnosis_of(const std::vector<RankView>& ranks, const Patience& patience, double now);
// What should be said now.
std::vector<Notice> notices_on(const std::vector<RankView>& ranks, const Patience& patience, double now);

std::string place_of(const RankView& rank);            // "rank 2 on n1 (process 431)"
std::string end_text(const RankView& rank);            // "was killed by SIGKILL", "ended with exit code 70"
std::string ranks_and(const std::vector<int>& ranks);  // "rank 2", "ranks 0, 1 and 3"

}  // namespace lockstep
