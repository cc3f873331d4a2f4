// comm/nccl, the file that calls NCCL, against a NCCL that only notes which GPU was current: every call about a
// communicator must be made with its GPU, from whatever thread.
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "comm/nccl_api.h"
#include "tests/support/fake_cuda_runtime.h"
#include "tests/support/nccl_calls.h"

extern "C" lockstep::NcclApi* lockstep_nccl_api();

namespace lockstep::nccl_library_test {
namespace {

TEST(NcclLibrary, UsesTheGpuOfACommunicatorInEveryCall) {
  testing::reset_fake_cuda();
  NcclApi& api = *lockstep_nccl_api();
  const std::string id = api.new_id();
  const NcclApi::Handle comm = api.connect(id, 0, 2, 1), other = api.connect(id, 1, 2, 1);
  const auto on_another_gpu = [](const std::function<void()>& call) {
    testing::fake_cuda().current = 0;  // as a new thread has it
    call();
  };
  NcclApi::Handle part = nullptr;
  on_another_gpu([&] { part = api.split(comm, 0, 0); });
  on_another_gpu([&] { api.add_window(comm, nullptr, 0); });
  on_another_gpu([&] { api.remove_window(comm, nullptr); });
  on_another_gpu([&] { api.close(part); });
  on_another_gpu([&] { api.abort(comm); });
  on_another_gpu([&] { api.abort(other); });
  for (const char* call : {"connect", "split", "register", "deregister", "finalize", "destroy", "abort"})
    EXPECT_EQ(testing::nccl_calls().at(call), 1) << call;
  EXPECT_TRUE(testing::fake_cuda().misuse.empty());
}

}  // namespace
}  // namespace lockstep::nccl_library_test
