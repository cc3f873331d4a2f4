// comm/nccl, the file that calls NCCL, against a NCCL that only notes what it is called with: every call about a
// communicator must be made with its GPU, from whatever thread, and an operation with the arguments that its caller
// means.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/nccl/nccl_api.h"
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

class NcclExchanges : public ::testing::Test {
 protected:
  // An exchange, and what NCCL should be called with, but for the type, the count, the communicator and the stream.
  struct Case {
    const char* name;
    bool in, out;
    const char* op;
    int peer;
    std::function<void()> run;
  };

  NcclExchanges() { testing::reset_fake_cuda(); }
  ~NcclExchanges() override {
    testing::set_nccl_result("ncclSuccess");
    api_.abort(comm_);
  }

  std::vector<Case> cases() {
    constexpr DType kType = DType::kFloat32;
    return {
        {"all_reduce", true, true, "ncclMax", -1,
         [&] { api_.all_reduce(comm_, &in_, &out_, kN, kType, ReduceOp::kMax, queue_); }},
        {"reduce", true, true, "ncclMin", 1,
         [&] { api_.reduce(comm_, &in_, &out_, kN, kType, ReduceOp::kMin, 1, queue_); }},
        {"reduce_scatter", true, true, "ncclSum", -1,
         [&] { api_.reduce_scatter(comm_, &in_, &out_, kN, kType, ReduceOp::kSum, queue_); }},
        {"all_gather", true, true, "", -1, [&] { api_.all_gather(comm_, &in_, &out_, kN, kType, queue_); }},
        {"broadcast", true, true, "", 1, [&] { api_.broadcast(comm_, &in_, &out_, kN, kType, 1, queue_); }},
        {"send", true, false, "", 1, [&] { api_.send(comm_, &in_, kN, kType, 1, queue_); }},
        {"receive", false, true, "", 0, [&] { api_.receive(comm_, &out_, kN, kType, 0, queue_); }},
    };
  }
  // The one call of NCCL that `run` makes.
  testing::NcclExchange only(const std::function<void()>& run) {
    testing::nccl_exchanges().clear();
    run();
    EXPECT_EQ(testing::nccl_exchanges().size(), 1u);
    return testing::nccl_exchanges().at(0);
  }

  static constexpr int64_t kN = 1'000'003;
  NcclApi& api_ = *lockstep_nccl_api();
  const NcclApi::Handle comm_ = api_.connect(api_.new_id(), 0, 2, 1);
  char stream_ = 0, in_ = 0, out_ = 0;
  Queue queue_{&stream_};
};

TEST_F(NcclExchanges, PassOnWhatTheyAreGiven) {
  for (const Case& c : cases()) {
    const testing::NcclExchange got = only(c.run);
    EXPECT_EQ(got.name, c.name);
    EXPECT_EQ(got.in, c.in ? &in_ : nullptr) << c.name;
    EXPECT_EQ(got.out, c.out ? &out_ : nullptr) << c.name;
    EXPECT_EQ(got.n, size_t{kN}) << c.name;
    EXPECT_EQ(got.type, "ncclFloat32") << c.name;
    EXPECT_EQ(got.op, c.op) << c.name;
    EXPECT_EQ(got.peer, c.peer) << c.name;
    EXPECT_EQ(got.comm, comm_) << c.name;
    EXPECT_EQ(got.stream, &stream_) << c.name;
  }
  EXPECT_EQ(only([&] { api_.group_start(); }).name, "group_start");
  EXPECT_EQ(only([&] { api_.group_end(); }).name, "group_end");
}

TEST_F(NcclExchanges, HaveNcclsTypesAndOperations) {
  for (const auto& [ours, theirs] : {std::pair{DType::kFloat32, "ncclFloat32"},
                                     {DType::kFloat64, "ncclFloat64"},
                                     {DType::kBFloat16, "ncclBfloat16"},
                                     {DType::kFloat16, "ncclFloat16"},
                                     {DType::kInt64, "ncclInt64"},
                                     {DType::kInt32, "ncclInt32"},
                                     {DType::kUInt8, "ncclUint8"}})
    EXPECT_EQ(only([&, t = ours] { api_.all_gather(comm_, &in_, &out_, kN, t, queue_); }).type, theirs);
  for (const auto& [ours, theirs] :
       {std::pair{ReduceOp::kSum, "ncclSum"}, {ReduceOp::kMax, "ncclMax"}, {ReduceOp::kMin, "ncclMin"}})
    EXPECT_EQ(only([&, op = ours] { api_.all_reduce(comm_, &in_, &out_, kN, DType::kInt64, op, queue_); }).op, theirs);
  for (const DType coded : {DType::kNf4, DType::kInt8})
    EXPECT_THROW(api_.all_gather(comm_, &in_, &out_, kN, coded, queue_), Error) << to_text(coded);
}

TEST_F(NcclExchanges, ThatFailSayWhoseFaultItIs) {
  for (const auto& [result, code] : {std::pair{"ncclRemoteError", ExitCode::kRankLost},
                                     {"ncclSystemError", ExitCode::kRankLost},
                                     {"ncclUnhandledCudaError", ExitCode::kDevice},
                                     {"ncclInvalidArgument", ExitCode::kInternal},
                                     {"ncclInvalidUsage", ExitCode::kInternal}}) {
    testing::set_nccl_result(result);
    for (const Case& c : cases()) try {
        c.run();
        ADD_FAILURE() << c.name << " went through";
      } catch (const Error& e) {
        EXPECT_EQ(e.code(), code) << c.name;
        EXPECT_NE(std::string(e.what()).find(str("NCCL: ", c.name, ": an error")), std::string::npos) << e.what();
      }
  }
}

}  // namespace
}  // namespace lockstep::nccl_library_test
