// Every operation, forward and backward, in fp32 and bf16: the same bits with any number of threads, and on the
// asynchronous device, where a closure that reads too early, or drops memory too soon, changes them.
#include <gtest/gtest.h>

#include "core/ops/ops.h"
#include "core/tensor/raw_ops.h"
#include "tests/core/ops/op_cases.h"
#include "tests/support/each_device.h"
#include "tests/support/gradcheck.h"

namespace lockstep::op_devices_test {
namespace {

using testing::OpCase;

class EachOpOnEachDevice : public ::testing::TestWithParam<OpCase> {};

TEST_P(EachOpOnEachDevice, GivesTheSameBits) {
  for (DType dtype : {DType::kFloat32, DType::kBFloat16})
    testing::same_on_each_device([&] {
      testing::Values out;
      for (int repeat = 0; repeat < 3; ++repeat) {  // freed blocks are taken again by the next round
        std::vector<Tensor> inputs;
        for (const Tensor& t : GetParam().inputs) {
          inputs.push_back(Tensor::empty(t.shape(), is_floating(t.dtype()) ? dtype : t.dtype()));
          raw::copy(inputs.back(), t);
          if (is_floating(t.dtype())) require_grad(inputs.back());
        }
        Tensor y = GetParam().f(inputs);
        Tensor w = Tensor::full(y.shape(), 0.75, y.dtype());
        backward(sum(mul(y, w)));
        out.push_back(y.to_vector());
        for (const Tensor& t : inputs)
          if (Tensor g = grad_of(t)) out.push_back(g.to_vector());
      }
      return out;
    });
}

INSTANTIATE_TEST_SUITE_P(Ops, EachOpOnEachDevice, ::testing::ValuesIn(testing::op_cases()),
                         [](const auto& info) { return std::string(info.param.name); });

// Targets and indices that the host drops at once are read by work that comes much later.
TEST(AsyncDevice, KeepsWhatTheHostDroppedForAllEnqueuedWork) {
  const auto step = [] {
    testing::Values out;
    Tensor table = testing::random_tensor({20, 8}, 1, -1, 1, DType::kFloat32);
    require_grad(table);
    for (int repeat = 0; repeat < 20; ++repeat) {
      std::vector<int32_t> v;
      for (int i = 0; i < 200; ++i) v.push_back((i * 7 + repeat) % 20);
      Tensor loss;
      {
        Tensor index = Tensor::of(v, {200}), target = Tensor::of(v, {200});
        // Work ahead, so that the stream is far behind when the host lets go.
        for (int i = 0; i < 30; ++i) raw::fill(Tensor::empty({1 << 14}), i);
        loss = cross_entropy(linear(embedding(table, index), table), target);
      }
      for (int i = 0; i < 10; ++i) raw::fill(Tensor::empty({200}, DType::kInt32), 1 << 20);  // would take a freed block
      backward(loss);
      out.push_back(loss.to_vector());
    }
    out.push_back(grad_of(table).to_vector());
    return out;
  };
  testing::same_on_each_device(step);
}

// Bad data is found on the stream's thread, and told to the host.
TEST(AsyncDevice, TellsTheHostOfBadData) {
  Stream stream(Device{DeviceType::kAsyncCpu}, Stream::Mode::kThread);
  WithStream with(stream);
  Tensor y = embedding(Tensor::zeros({4, 2}), Tensor::of(std::vector<int32_t>{1, 4}, {2}));
  try {
    y.to_vector();
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::kBadData);
    EXPECT_NE(std::string(e.what()).find("index 4 at position 1"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace lockstep::op_devices_test
