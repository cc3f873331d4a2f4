// Where ranks compute: the keys `device` and `share_gpu`, and which GPU each rank takes. Plain values and functions.
#pragma once

#include <string>
#include <vector>

#include "comm/communicator.h"
#include "core/base/field.h"
#include "core/io/json.h"

namespace lockstep {

enum class DeviceChoice { kAuto, kCpu, kCuda };
struct DeviceOptions {
  DeviceChoice choice = DeviceChoice::kAuto;
  bool share_gpu = false;
};
std::vector<Field> fields(DeviceOptions& o);

// What a rank tells the others before any of them computes.
struct RankPlacement {
  std::string host, machine;  // its name for people, and what it is told from others by (machine_id)
  std::string why;            // why it can use no GPU
  int gpus = 0;               // that its process sees
  int index = 0;              // the one it would take, and
  std::string bus, gpu;       // where that is, and what
};
// What all ranks conclude from all placements, alike.
struct PlacementDecision {
  bool on_gpus = false;
  std::string text = {};           // why not; or what is wrong:
  ExitCode error = ExitCode::kOk;  // and
  int speaker = 0;                 // the rank that says so
};
PlacementDecision decide_placement(const std::vector<RankPlacement>& placements, const DeviceOptions& options);

// Rank `local_rank` of this machine takes GPU local_rank modulo the GPUs that its process sees. With `auto`, ranks
// compute on GPUs where each has one of its own (or share_gpu is set), otherwise all on CPUs. Rank 0 lists ranks and
// GPUs, or says why there is none. Collective, on a communicator between hosts. Throws ExitCode::kDevice where `cuda`
// cannot be had, or where ranks would share a GPU unasked; kRanksDisagree where only some ranks see GPUs: one rank with
// the message, the others with an empty one, which is not reported.
Device place_ranks(Communicator& comm, int local_rank, const DeviceOptions& options);
// The same for a process without ranks.
Device place_alone(const DeviceOptions& options);

// The CPU and each GPU, in words and as JSON lines; and why there is no GPU.
std::string devices_text();
std::string devices_json();

}  // namespace lockstep
