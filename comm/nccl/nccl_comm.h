// NcclComm: ranks with one GPU each, which exchange through NCCL. Calls on GPU tensors run on a high-priority stream
// without blocking the host. Everything else uses the host communicator that it was created from: tensors in host
// memory, barriers, sends and receives (NCCL's sends wait for their receiver), and maxima and minima of floats (NCCL's
// drop NaN). A watch thread for each communicator detects errors, poison and missed deadlines, and aborts operations
// that hang; if the abort hangs too, it ends the process. Sums are in NCCL's own order.
#pragma once

#include <memory>
#include <string>

#include "comm/communicator.h"

namespace lockstep {

// A communicator for the rank's GPU `device`. `host` is a communicator of the same ranks and may be destroyed before
// the result. Collective. Returns null on all ranks, and sets `why` to the reason, if NCCL cannot be used on every rank
// (the library is missing, or two ranks share a GPU); the caller then uses `host`. Throws ExitCode::kRanksDisagree if
// the ranks have different NCCL versions, and the errors of connecting them.
//
// With options.check_calls, calls are compared immediately among the ranks of a host, and among all ranks at barriers
// and splits.
std::unique_ptr<Communicator> make_nccl_communicator(Communicator& host, Device device, const CommOptions& options = {},
                                                     std::string* why = nullptr);

}  // namespace lockstep
