// What attention by cuDNN takes at once: all of a batch, some of its samples, or some heads of one. Plain functions,
// which know nothing of cuDNN.
#pragma once

#include <cstdint>
#include <vector>

#include "core/kernels/args.h"

namespace lockstep::cuda {

// Heads of the arguments: all, or some of one sample, whose outputs lie among those of all.
struct HeadGroup : AttentionArgs {
  int64_t width = 0;  // elements from one row of y and dy to the next
};
inline HeadGroup all_heads(const AttentionArgs& a) { return {a, a.heads * a.dim}; }

// How many bytes the deterministic gradient may keep for the scores that it takes at once, and a mask may take. Not
// const for tests.
int64_t& attention_score_bytes();

// Portions for the forward pass, whose masks fit: some samples each, at least one.
std::vector<HeadGroup> masked_portions(const AttentionArgs& a);

// Portions of the gradient that cover the batch: as even as can be, so that few shapes arise, each beginning at
// addresses of 16 bytes where the whole does. A head of queries is never without its keys' head, and one of these never
// divided.
std::vector<HeadGroup> backward_portions(const AttentionArgs& a);

}  // namespace lockstep::cuda
