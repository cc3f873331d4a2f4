// What the exchange of gradients (the other source of GradientBucket) and the bucket itself share. Plain functions.
#pragma once

#include <vector>

#include "sharding/mesh.h"
#include "sharding/tree.h"

namespace lockstep {

// sum += other, fp32, in the order of the current stream.
void add_into(const Tensor& sum, const Tensor& other);
// May ranks of `axis` read each other's leaves?
bool reads_in_place(const Axis& axis);
// [0, size) cut for the ranks of an axis.
std::vector<IndexRange> even_parts(int64_t size, int ranks);
// What each `count` consecutive ranks, a group or a machine, hold together of a round's micro-batches.
std::vector<IndexRange> joined(const std::vector<IndexRange>& ranges, int count);

}  // namespace lockstep
