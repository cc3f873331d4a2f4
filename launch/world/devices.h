// The placement of ranks on devices: the keys `device` and `share_gpu`, the choice of each rank's GPU, and how that
// multiplies.
#pragma once

#include <string>
#include <vector>

#include "comm/communicator.h"
#include "core/base/field.h"
#include "core/device/stream.h"
#include "core/kernels/attention/masked_attention.h"

namespace lockstep {

enum class DeviceChoice { kAuto, kCpu, kCuda };
struct DeviceOptions {
  DeviceChoice choice = DeviceChoice::kAuto;
  bool share_gpu = false;
  bool tf32 = false;  // products and convolutions of fp32 in TF32, on a GPU
};
std::vector<Field> fields(DeviceOptions& o);

// What a rank tells the others before the placement is decided.
struct RankPlacement {
  std::string host, machine;  // the host's name, and the machine's id (machine_id)
  std::string why;            // why this rank cannot use a GPU; empty if it can
  int gpus = 0;               // number of GPUs visible to its process
  int index = 0;              // of the GPU that the rank would take
  std::string id, gpu;        // DeviceProperties::id and description of that GPU
};
// Of the rank `local_rank` of this machine.
RankPlacement placement_of(int local_rank, const DeviceOptions& options);
// The decision that every rank computes from the placements of all ranks.
struct PlacementDecision {
  bool on_gpus = false;
  std::string text = {};           // why ranks do not compute on GPUs, or the text of the error
  ExitCode error = ExitCode::kOk;  // of `text`; kOk: no error
  int speaker = 0;                 // the rank that reports `text`
};
PlacementDecision decide_placement(const std::vector<RankPlacement>& placements, const DeviceOptions& options);

// Chooses this rank's device. Rank `local_rank` of this machine takes GPU local_rank modulo the number of GPUs visible
// to its process. With `auto`, ranks compute on GPUs if each has its own (or share_gpu is set), otherwise all on CPUs.
// Rank 0 logs ranks and GPUs, or why no GPU is used. Collective, on a host communicator. Throws ExitCode::kDevice if
// `cuda` is not possible, or if ranks would share a GPU without share_gpu; kRanksDisagree if only some ranks see GPUs.
// One rank throws the message, the others an empty one, which is not reported.
Device place_ranks(Communicator& comm, int local_rank, const DeviceOptions& options);
// The same for a process that is not one of several ranks.
Device place_alone(const DeviceOptions& options);

// The most GPUs that the driver can show to this process, as far as that is known before it is loaded: by
// CUDA_VISIBLE_DEVICES, and by the list of cards that the driver keeps in `proc`.
int most_visible_gpus(const std::string& proc = "/proc");

// Sets what a GPU's queue may do for the work of this stream; nothing on a CPU.
void apply(const DeviceOptions& options, const Stream& stream);
// Lets the library of a GPU take attention of these kinds under masks, for work of the current stream, as far as every
// rank has proven that it is right (DeviceBackend::doubt_of_masks); `kinds`: the same on all ranks. Rank 0 warns of the
// first that doubts one. Nothing on CPUs, and of other than 16-bit types. Collective; part of a second a kind.
void agree_on_masks(Communicator& comm, const MaskedAttentions& kinds);
// The same for a process that is not one of several ranks.
void prove_masks_alone(const MaskedAttentions& kinds);

// The output of `lockstep devices`: the CPU and each GPU, and why no GPU can be used; as text and as JSON lines.
std::string devices_text();
std::string devices_json();

}  // namespace lockstep
