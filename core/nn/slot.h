// Slot: a parameter, or what this rank keeps of it, as an optimizer sees it. SlotGroup: the parameters that are cut
// into slices together, for updates that depend on whole parameters. StepVerdict: what an update must know of all
// gradients of a step. Values; the memory belongs to DataParallel's buckets.
#pragma once

#include <string>

#include "core/base/region.h"
#include "core/tensor/tensor.h"

namespace lockstep {

// Parameters in one flat buffer, each from a multiple of kStateChunk elements on. Every rank of a shard group keeps a
// slice of the buffer, cut at such a multiple too.
class SlotGroup {
 public:
  virtual ~SlotGroup() = default;
  virtual int64_t total() const = 0;  // elements of the flat buffer, a multiple of kStateChunk
  // Completes `whole` [total() / kStateChunk * per_chunk], of which this rank has written what belongs to its slice:
  // the values of the other ranks' slices come from them. In the order of the current stream. Collective in the shard
  // group.
  virtual void gather_whole(const Tensor& whole, int64_t per_chunk) const = 0;
};

struct Slot {
  std::string name;             // dotted name of the parameter
  Region region;                // of the parameter: the whole, or the box that this rank's layer holds
  int64_t offset = 0;           // first element of this slice, in the flattened region
  Tensor master;                // fp32 [n]; n may be 0
  Tensor gradient;              // fp32 [n]
  Tensor copy;                  // if defined [n]: an update may write the new master here too, converted to this type
  bool in_host_memory = false;  // master and moments are; updates copy them to the device chunk by chunk
  bool decay = false;
  bool table = false;  // of the parameter (core/nn/module.h)
  double lr_scale = 1;
  const SlotGroup* group = nullptr;  // its slots are consecutive. Null: this slot is a whole region
  int64_t place = 0;                 // of the whole region in the group's flat buffer, elements
};

// What the gradients of a step amount to, the same on every rank. As it is made, an update changes nothing.
struct StepVerdict {
  // What gradients are multiplied by: nominal targets / counted ones / loss scale, and what clips the norm.
  double grad_scale = 0;
  bool finite = false;  // else the optimizer must skip this step
};

}  // namespace lockstep
