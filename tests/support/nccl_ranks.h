// Ranks as threads with a fake GPU each, by a fake NCCL: what run_ranks is for the host.
// A plain function.
#pragma once

#include "comm/nccl/nccl_comm.h"
#include "tests/support/fake_gpu.h"
#include "tests/support/fake_nccl.h"
#include "tests/support/run_ranks.h"

namespace lockstep::testing {

inline void run_nccl_ranks(int size, const std::function<void(Communicator&)>& body,
                           const CommOptions& options = {.deadline = kPatience}, const FakeNcclFaults& faults = {}) {
  fake_nccl(faults);
  fake_gpu(0, {.devices = size});
  run_ranks(size,
            [&](Communicator& host) {
              const Device device{DeviceType::kCuda, host.rank()};
              Stream stream(device, Stream::Mode::kQueue);
              WithStream with(stream);
              std::string why;
              auto comm = make_nccl_communicator(host, device, options, &why);
              check(comm != nullptr, why);
              body(*comm);
              if (!comm->failure()) stream.synchronize();
            },
            {.comm = options});
  for (const std::string& misuse : fake_nccl_misuse()) check(false, misuse);
}

}  // namespace lockstep::testing
