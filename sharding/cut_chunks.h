// Digests and sums of squares of tensors that ranks hold in regions (core/base/region.h) whatever chunks of kStateChunk
// elements these cut. Both are defined by the chunks of the flattened whole tensor, so a chunk that is cut is brought
// together on one rank before it is hashed or its squares are summed. Plain functions; collective: all ranks of `comm`
// hold each element of each tensor once, in as many entries as they like, and pass these in any order. They exchange
// cut chunks, a tensor after the other, and hold those of one tensor meanwhile.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "comm/communicator.h"
#include "core/state/state.h"

namespace lockstep {

// By name, this rank's share of each tensor's digest: the shares of all ranks add up to digest_of() the whole tensor.
// Where no region cuts a chunk, ranks exchange an empty list of names, and nothing else.
std::map<std::string, Hash128> digest_shares(const std::vector<StateEntry>& entries, Communicator& comm);

// The sum of all ranks' shares of a digest, on each of them.
Hash128 sum_of_shares(const Hash128& mine, Communicator& comm, std::string_view label);

// By name, the sum of squares of each tensor's elements, the same on all ranks: fp64 sums of chunks, added in the tree
// over them (sharding/tree.h), as the norm of a gradient is.
std::map<std::string, double> sums_of_squares(const std::vector<StateEntry>& entries, Communicator& comm);

}  // namespace lockstep
