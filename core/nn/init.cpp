#include "core/nn/init.h"

#include <iterator>

#include "core/base/hash.h"
#include "core/device/context.h"
#include "core/kernels/kernels.h"

namespace lockstep {

namespace {

// Neighbouring dimensions that one stride steps through become one; a box without a gap is a stretch of the parameter.
void set_box(InitialArgs& a, const Region& region) {
  static_assert(std::size(InitialArgs().extent) == Shape::kMaxRank);
  const Shape strides = contiguous_strides(region.shape);
  for (int i = 0; i < region.shape.rank(); ++i) {
    if (region.extent[i] == 1) continue;
    const int outer = a.dims - 1;
    if (outer < 0 || a.stride[outer] != region.extent[i] * strides[i]) a.extent[a.dims++] = 1;
    a.extent[a.dims - 1] *= region.extent[i];
    a.stride[a.dims - 1] = strides[i];
  }
  a.first = region.element(0);
  const bool has_gaps = a.dims > 1 || (a.dims == 1 && a.stride[0] != 1);
  if (has_gaps && a.stride[a.dims - 1] != 1) a.extent[a.dims] = 1, a.stride[a.dims++] = 1;
  if (has_gaps) return;
  a.dims = 0;
  a.begin += a.first;
  a.end += a.first;
}

void fill_random(const Init& init, uint64_t seed, std::string_view name, const Region* region, IndexRange range,
                 float* out) {
  InitialArgs a;
  a.normal = init.kind == Init::Kind::kNormal, a.scale = static_cast<float>(init.scale);
  a.seed = seed, a.site = hash64(name), a.begin = range.begin, a.end = range.end, a.out = out;
  if (region) set_box(a, *region);
  current_stream().enqueue([a](Parallel& p) { kernels(p).initial(p, a); });
}

}  // namespace

void fill_initial(const Init& init, uint64_t seed, std::string_view name, const Region& region, IndexRange range,
                  float* out) {
  if (range.empty()) return;
  if (region.is_whole() || init.kind == Init::Kind::kConstant)
    return fill_initial(init, seed, name, range.begin, range.end, out);
  fill_random(init, seed, name, &region, range, out);
}

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
  fill_random(init, seed, name, nullptr, {begin, end}, out);
}

}  // namespace lockstep
