// NcclComm: ranks with a GPU each, by NCCL. Tensors in the GPUs' memory travel by it, in the order of a high-priority
// stream, so that the host waits for nothing; all else goes by the communicator of the host that it was made beside:
// tensors in host memory, barriers, messages between two ranks (NCCL's wait for their receiver), and maxima and minima
// of floats (NCCL's lose NaN). A watch thread for each communicator looks for errors, poison and missed deadlines, and
// ends what hangs; where that hangs itself, the process. Sums are in NCCL's own order.
#pragma once

#include <memory>
#include <string>

#include "comm/communicator.h"

namespace lockstep {

// For the rank's GPU; `host` is a communicator of the same ranks, which may go before this one. Collective. Where NCCL
// cannot serve every rank (the library is not there, or two ranks have one GPU), it is null on all of them, and `why`
// says so: `host` serves then. Throws ExitCode::kRanksDisagree where the ranks' NCCL differs, and what connecting them
// throws.
//
// With options.check_calls, calls are compared among the ranks of a host at once, among all at barriers and splits.
std::unique_ptr<Communicator> make_nccl_communicator(Communicator& host, Device device, const CommOptions& options = {},
                                                     std::string* why = nullptr);

}  // namespace lockstep
