#include "core/nn/init.h"

#include "core/base/hash.h"
#include "core/device/context.h"
#include "core/kernels/kernels.h"

namespace lockstep {

void fill_initial(const Init& init, uint64_t seed, std::string_view name, int64_t begin, int64_t end, float* out) {
  if (init.kind == Init::Kind::kConstant) {
    PointwiseArgs fill;
    fill.numel = fill.sizes[0] = end - begin;
    fill.dims = fill.outs = 1;
    fill.out[0].data = out;
    fill.out[0].strides[0] = 1;
    fill.scalars[0] = init.scale;
    current_stream().enqueue([fill](Parallel& p) { kernels(p).pointwise(p, PointwiseOp::kFill, fill); });
    return;
  }
  const InitialArgs a{
      init.kind == Init::Kind::kNormal, static_cast<float>(init.scale), seed, hash64(name), begin, end, out};
  current_stream().enqueue([a](Parallel& p) { kernels(p).initial(p, a); });
}

}  // namespace lockstep
