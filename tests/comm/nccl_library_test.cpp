// comm/nccl, the file that calls NCCL, against a NCCL that only notes what it is called with: every call about a
// communicator must be made with its GPU, from whatever thread, and an operation with the arguments that its caller
// means.
#include <gtest/gtest.h>
#include <nccl.h>

#include <functional>
#include <map>
#include <memory>
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

// A queue that is nothing but its stream.
class Queue final : public DeviceQueue {
 public:
  explicit Queue(void* stream) : stream_(stream) {}
  const KernelTable& kernels() const override { throw Error(ExitCode::kInternal, "no kernels"); }
  void copy(void*, const void*, int64_t) override {}
  std::shared_ptr<DeviceEvent> record() override { return nullptr; }
  void wait(DeviceEvent&) override {}
  void* native() override { return stream_; }
  void begin_recording() override {}
  std::shared_ptr<DeviceGraph> end_recording() override { return nullptr; }
  void launch(DeviceGraph&) override {}
  double seconds_of(const std::function<void()>&) override { return 0; }
  std::shared_ptr<DeviceTime> note_time() override { return nullptr; }

 private:
  void* stream_;
};

class NcclOperations : public ::testing::Test {
 protected:
  NcclOperations() {
    testing::reset_fake_cuda();
    testing::nccl_operations().clear();
  }
  ~NcclOperations() override {
    testing::set_nccl_result(ncclSuccess);
    api_.abort(comm_);
  }

  // The one operation that `call` starts, with what every operation has.
  testing::NcclOperation only(const std::function<void()>& call) {
    testing::nccl_operations().clear();
    call();
    EXPECT_EQ(testing::nccl_operations().size(), 1u);
    const testing::NcclOperation out = testing::nccl_operations().at(0);
    if (out.name.starts_with("group_")) return out;
    EXPECT_EQ(out.comm, comm_) << out.name;
    EXPECT_EQ(out.stream, &stream_) << out.name;
    EXPECT_EQ(out.n, 1'000'003u) << out.name;
    return out;
  }

  NcclApi& api_ = *lockstep_nccl_api();
  const NcclApi::Handle comm_ = api_.connect(api_.new_id(), 0, 2, 1);
  char stream_ = 0, in_ = 0, out_ = 0;
  Queue queue_{&stream_};
  static constexpr int64_t kN = 1'000'003;
};

TEST_F(NcclOperations, PassOnWhatTheyAreGiven) {
  const auto expect = [&](const char* name, bool in, bool out, int op, int peer, const std::function<void()>& call) {
    const testing::NcclOperation got = only(call);
    EXPECT_EQ(got.name, name);
    EXPECT_EQ(got.in, in ? &in_ : nullptr) << name;
    EXPECT_EQ(got.out, out ? &out_ : nullptr) << name;
    EXPECT_EQ(got.op, op) << name;
    EXPECT_EQ(got.peer, peer) << name;
    EXPECT_EQ(got.type, ncclFloat32) << name;
  };
  const DType t = DType::kFloat32;
  expect("all_reduce", true, true, ncclMax, -1,
         [&] { api_.all_reduce(comm_, &in_, &out_, kN, t, ReduceOp::kMax, queue_); });
  expect("reduce", true, true, ncclMin, 1, [&] { api_.reduce(comm_, &in_, &out_, kN, t, ReduceOp::kMin, 1, queue_); });
  expect("reduce_scatter", true, true, ncclSum, -1,
         [&] { api_.reduce_scatter(comm_, &in_, &out_, kN, t, ReduceOp::kSum, queue_); });
  expect("all_gather", true, true, -1, -1, [&] { api_.all_gather(comm_, &in_, &out_, kN, t, queue_); });
  expect("broadcast", true, true, -1, 1, [&] { api_.broadcast(comm_, &in_, &out_, kN, t, 1, queue_); });
  expect("send", true, false, -1, 1, [&] { api_.send(comm_, &in_, kN, t, 1, queue_); });
  expect("receive", false, true, -1, 0, [&] { api_.receive(comm_, &out_, kN, t, 0, queue_); });
  EXPECT_EQ(only([&] { api_.group_start(); }).name, "group_start");
  EXPECT_EQ(only([&] { api_.group_end(); }).name, "group_end");
}

TEST_F(NcclOperations, HaveNcclsTypesAndOperations) {
  const std::map<DType, int> types{{DType::kFloat32, ncclFloat32},   {DType::kFloat64, ncclFloat64},
                                   {DType::kBFloat16, ncclBfloat16}, {DType::kFloat16, ncclFloat16},
                                   {DType::kInt64, ncclInt64},       {DType::kInt32, ncclInt32},
                                   {DType::kUInt8, ncclUint8}};
  for (const auto& [ours, theirs] : types) {
    const DType t = ours;
    EXPECT_EQ(only([&] { api_.all_gather(comm_, &in_, &out_, kN, t, queue_); }).type, theirs) << to_text(ours);
  }
  for (const auto& [ours, theirs] :
       {std::pair{ReduceOp::kSum, ncclSum}, {ReduceOp::kMax, ncclMax}, {ReduceOp::kMin, ncclMin}}) {
    const ReduceOp op = ours;
    EXPECT_EQ(only([&] { api_.all_reduce(comm_, &in_, &out_, kN, DType::kInt64, op, queue_); }).op, theirs);
  }
  for (const DType coded : {DType::kNf4, DType::kInt8})
    EXPECT_THROW(api_.all_gather(comm_, &in_, &out_, kN, coded, queue_), Error) << to_text(coded);
}

TEST_F(NcclOperations, ThatFailSayWhoseFaultItIs) {
  for (const auto& [result, code] : {std::pair{ncclRemoteError, ExitCode::kRankLost},
                                     {ncclSystemError, ExitCode::kRankLost},
                                     {ncclUnhandledCudaError, ExitCode::kDevice},
                                     {ncclInvalidArgument, ExitCode::kInternal},
                                     {ncclInvalidUsage, ExitCode::kInternal}}) {
    testing::set_nccl_result(result);
    const std::map<std::string, std::function<void()>> calls{
        {"all_reduce", [&] { api_.all_reduce(comm_, &in_, &out_, kN, DType::kFloat32, ReduceOp::kSum, queue_); }},
        {"reduce", [&] { api_.reduce(comm_, &in_, &out_, kN, DType::kFloat32, ReduceOp::kSum, 0, queue_); }},
        {"reduce_scatter",
         [&] { api_.reduce_scatter(comm_, &in_, &out_, kN, DType::kFloat32, ReduceOp::kSum, queue_); }},
        {"all_gather", [&] { api_.all_gather(comm_, &in_, &out_, kN, DType::kFloat32, queue_); }},
        {"broadcast", [&] { api_.broadcast(comm_, &in_, &out_, kN, DType::kFloat32, 0, queue_); }},
        {"send", [&] { api_.send(comm_, &in_, kN, DType::kFloat32, 1, queue_); }},
        {"receive", [&] { api_.receive(comm_, &out_, kN, DType::kFloat32, 1, queue_); }}};
    for (const auto& [name, call] : calls) try {
        call();
        ADD_FAILURE() << name << " went through";
      } catch (const Error& e) {
        EXPECT_EQ(e.code(), code) << name;
        EXPECT_NE(std::string(e.what()).find("NCCL: " + name + ": an error"), std::string::npos) << e.what();
      }
  }
}

}  // namespace
}  // namespace lockstep::nccl_library_test
