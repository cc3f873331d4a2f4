// Axis: the ranks along one dimension of the mesh (sharding/mesh.h), such as data, shard or replica. Code that divides
// work or exchanges values takes the axis that it means, and not all ranks of the job. A plain value; borrows its
// communicator.
#pragma once

#include "comm/communicator.h"

namespace lockstep {

struct Axis {
  Axis() = default;  // this rank alone, without a communicator
  // All ranks of `ranks`. Not explicit: where there is one dimension, its communicator says all.
  Axis(Communicator& ranks) : communicator(&ranks), index(ranks.rank()), size(ranks.size()) {}

  Communicator& comm() const {  // throws ExitCode::kInternal where the axis has none
    check(communicator != nullptr, "an exchange along an axis of one rank");
    return *communicator;
  }

  Communicator* communicator = nullptr;  // of the ranks along the axis, in the order of `index`; may be null for one
  int index = 0;                         // this rank's place along the axis
  int size = 1;
};

}  // namespace lockstep
