// Goodput: which part of the time that a run has taken, over all of its attempts, became steps that count, and what
// took the rest; from the run directory's files. Plain values and functions, and the record of attempts, which rank 0
// owns.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

// Seconds.
struct Goodput {
  int64_t attempts = 0;
  double first = 0;  // when the first attempt began, since 1970; 0: not known
  double wall = 0;   // from then to the newest line, or to what read_goodput() was given
  double steps = 0;  // of steps that count, without waits for data
  double start = 0;  // from an attempt's begin to its first step
  double data = 0;   // waits for batches
  double validation = 0, saving = 0;
  double repeated = 0;  // steps that were done once more by a later attempt
  double down = 0;      // from an attempt's last step to the next one's begin
  double other() const { return wall - steps - start - data - validation - saving - repeated - down; }
  double share() const { return wall > 0 ? steps / wall : 0; }
};

// Of the attempts that begin_attempt() has noted in run directory `dir`, and its metrics. `now`: seconds since 1970, of
// a run that goes on; 0: of one that does not.
Goodput read_goodput(const std::string& dir, double now = 0);

// "goodput 87%: of 3723 s in 3 attempts, 5% repeated steps, 4% start, 4% between attempts". The largest first.
std::string to_text(const Goodput& goodput);

// Notes in `dir` that an attempt of the run, by `ranks` ranks, goes on after `step`; it began when this process did.
// Throws ExitCode::kOutputLocked or kStorage.
void begin_attempt(const std::string& dir, int64_t step, int ranks);

double seconds_since_1970();  // to a millisecond

}  // namespace lockstep
