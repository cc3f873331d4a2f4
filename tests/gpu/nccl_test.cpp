// NCCL by one rank on one GPU: connecting, registered memory, each operation, a recorded step, abort and close. What a
// single card can show of it before there are several.
#include <chrono>
#include <future>

#include "comm/nccl/nccl_api.h"
#include "core/device/context.h"
#include "core/device/graph.h"
#include "core/tensor/raw_ops.h"
#include "tests/gpu/gpu.h"
#include "tests/support/fake_nccl.h"

namespace lockstep {
namespace {

using namespace testing;

constexpr int64_t kCount = 1000;
constexpr std::chrono::seconds kLimit{120};

class Nccl : public ::testing::Test {
 protected:
  void SetUp() override {
    if (planted_fault() == "old nccl") check_nccl_version(21803, 22809);
    if (gpu_is_fake() && planted_fault() != "no nccl") fake_nccl();
    std::string why;
    api_ = find_nccl_api(&why);
    ASSERT_TRUE(api_) << why;
    comm_ = api_->connect(api_->new_id(), 0, 1, gpu_device().index);
  }
  void TearDown() override {
    if (comm_) close();
  }
  void close() {
    stream_.synchronize();
    within_limit([this] { api_->close(comm_); });
    comm_ = nullptr;
  }
  // NCCL may hang where it should not.
  static void within_limit(std::function<void()> work) {
    auto task = std::make_shared<std::packaged_task<void()>>(std::move(work));
    std::future<void> done = task->get_future();
    std::thread([task] { (*task)(); }).detach();
    ASSERT_EQ(done.wait_for(kLimit), std::future_status::ready) << "it hangs";
    done.get();
  }
  DeviceQueue& queue() { return *stream_.device_queue(); }

  static Tensor counting(DType dtype) {
    std::vector<float> values(kCount);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 200);  // exact in each type
    const Tensor out = Tensor::empty({kCount}, dtype);
    raw::copy(out, Tensor::of(values, {kCount}));
    return out;
  }

  Stream stream_{gpu_device(), Stream::Mode::kInline};
  WithStream with_{stream_};
  NcclApi* api_ = nullptr;
  NcclApi::Handle comm_ = nullptr;
};

TEST_F(Nccl, DoesEachOperationByOneRank) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kInt32, DType::kUInt8}) {
    const Tensor in = counting(dtype);
    const std::vector<double> wanted = in.to_vector();
    using Operation = std::function<void(const Tensor&)>;
    const std::pair<const char*, Operation> operations[] = {
        {"all_reduce",
         [&](const Tensor& out) {
           api_->all_reduce(comm_, in.read(), out.write(), kCount, dtype, ReduceOp::kSum, queue());
         }},
        {"all_reduce, maximum",
         [&](const Tensor& out) {
           api_->all_reduce(comm_, in.read(), out.write(), kCount, dtype, ReduceOp::kMax, queue());
         }},
        {"reduce",
         [&](const Tensor& out) {
           api_->reduce(comm_, in.read(), out.write(), kCount, dtype, ReduceOp::kSum, 0, queue());
         }},
        {"reduce_scatter",
         [&](const Tensor& out) {
           api_->reduce_scatter(comm_, in.read(), out.write(), kCount, dtype, ReduceOp::kSum, queue());
         }},
        {"all_gather",
         [&](const Tensor& out) { api_->all_gather(comm_, in.read(), out.write(), kCount, dtype, queue()); }},
        {"broadcast",
         [&](const Tensor& out) { api_->broadcast(comm_, in.read(), out.write(), kCount, dtype, 0, queue()); }},
        {"send and receive", [&](const Tensor& out) {
           api_->group_start();
           api_->send(comm_, in.read(), kCount, dtype, 0, queue());
           api_->receive(comm_, out.write(), kCount, dtype, 0, queue());
           api_->group_end();
         }}};
    for (const auto& [name, operation] : operations) {
      const Tensor out = Tensor::zeros({kCount}, dtype);
      operation(out);
      EXPECT_EQ(out.to_vector(), wanted) << name << " of " << to_text(dtype);
      EXPECT_EQ(api_->async_error(comm_), "") << name;
    }
  }
}

TEST_F(Nccl, RegistersMemoryOfItsOwn) {
  constexpr int64_t kBytes = int64_t(2) << 20;
  void* const memory = api_->allocate(gpu_device().index, kBytes);
  if (!memory) GTEST_SKIP() << "NCCL " << api_->version() << " gives no memory that can be registered";
  const NcclApi::Window window = api_->add_window(comm_, memory, kBytes);
  std::printf("[ window   ] %s\n", window ? "registered" : "these GPUs have none");
  {
    auto storage = std::make_shared<Storage>(gpu_device(), kBytes, memory, std::shared_ptr<void>(memory, [](void*) {}));
    const Tensor x = Tensor::view_of(std::move(storage), 0, {kCount}, DType::kFloat32);
    raw::copy(x, counting(DType::kFloat32));
    api_->all_reduce(comm_, x.read(), x.write(), kCount, DType::kFloat32, ReduceOp::kSum, queue());
    api_->all_gather(comm_, x.read(), x.write(), kCount, DType::kFloat32, queue());
    EXPECT_EQ(x.to_vector(), counting(DType::kFloat32).to_vector());
  }
  if (window) within_limit([&] { api_->remove_window(comm_, window); });
  close();
  within_limit([&] { api_->free(gpu_device().index, memory); });
}

TEST_F(Nccl, IsRecordedLaunchedAndAborted) {
  const Tensor x = counting(DType::kFloat32);
  StreamGraph graph(stream_);
  graph.record([&] {
    api_->all_reduce(comm_, x.read(), x.write(), kCount, DType::kFloat32, ReduceOp::kSum, queue());
    raw::pointwise(PointwiseOp::kAffine, {x}, {x}, 2, 0);
  });
  for (int launch = 0; launch < 3; ++launch) graph.launch();
  std::vector<double> wanted = counting(DType::kFloat32).to_vector();
  for (double& v : wanted) v *= 8;
  EXPECT_EQ(x.to_vector(), wanted);
  // NCCL's abort waits until no graph holds its work.
  EXPECT_EQ(drop_graphs(gpu_device()), 1);
  EXPECT_FALSE(graph.recorded());
  within_limit([this] { api_->abort(comm_); });
  comm_ = nullptr;
  EXPECT_EQ(Tensor::full({10}, 1).to_vector(), std::vector<double>(10, 1)) << "the GPU still works";
}

}  // namespace
}  // namespace lockstep
