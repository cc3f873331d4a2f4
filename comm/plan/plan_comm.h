// PlanComm: a communicator of one rank without peers, for `lockstep plan` on the meta device. Its calls are checked and
// counted (bytes_sent) as with other backends, but move no data: `out` is not written.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "comm/communicator.h"

namespace lockstep {

// The links of a planned machine, with when they are taken. Its ranks are taken to make the same calls at the same
// time, as all of a job do.
class PlannedLinks {
 public:
  struct Rates {
    double latency_s = 0;       // of a message between machines
    double bytes_s = 0;         // of a machine to the others, each way
    double memory_bytes_s = 0;  // that a rank copies from another one's memory
    double meeting_s = 5e-6;    // of the ranks of a machine
  };
  explicit PlannedLinks(const Rates& rates) : rates_(rates) {}
  const Rates& rates() const { return rates_; }
  // When `bytes` have left the machine, which begin at `begin_s` at the earliest and share the link with what was asked
  // for before. What ended before `now_s` is forgotten.
  double carry(double begin_s, double bytes, double now_s);

 private:
  const Rates rates_;
  std::vector<std::pair<double, double>> taken_;  // from, to; in order
};

// Where the ranks of a plan are.
struct PlannedMachines {
  int ranks = 0;                  // of a machine, consecutive; 0: all are on one
  bool gpus = false;              // a GPU for each rank, and NCCL; else CPUs, where a machine's ranks share memory
  PlannedLinks* links = nullptr;  // where time is simulated; borrowed
};

// The communicator of rank `rank` of `size`. There are no other ranks to ask for their colors: split() takes all to
// pass the color 0, and throws ExitCode::kInternal for any other; split_axis() gives each rank its line of the grid.
std::unique_ptr<Communicator> make_plan_communicator(int rank, int size, const PlannedMachines& machines = {});

}  // namespace lockstep
