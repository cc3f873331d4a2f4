// What tests/scripts/gdb_test.sh stops in: values whose printed form it knows.
#include "core/device/context.h"
#include "core/tensor/tensor.h"

using lockstep::DType, lockstep::Shape, lockstep::Stream, lockstep::Tensor, lockstep::WithStream;

extern "C" int stop_here(const Tensor& plain, const Tensor& turned, const Tensor& half, const Tensor& none,
                         const Shape& shape) {
  return plain.rank() + turned.rank() + half.rank() + (none.defined() ? 1 : 0) + shape.rank();
}

int main() {
  Stream stream({}, Stream::Mode::kInline);
  WithStream with(stream);
  const Tensor t = Tensor::full({2, 3}, 1.5);
  t.mutable_values<float>()[1] = -2;
  return stop_here(t, t.transpose(0, 1), Tensor::full({20}, 0.25, DType::kBFloat16), {}, {4, 5, 6}) == 8 ? 0 : 1;
}
