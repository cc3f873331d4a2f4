#include "core/nn/init.h"

#include <algorithm>

#include "core/base/hash.h"
#include "core/device/context.h"
#include "core/kernels/kernels.h"

namespace lockstep {

void fill_initial(const Init& init, uint64_t seed, std::string_view name, int64_t begin, int64_t end, float* out) {
  if (init.kind == Init::Kind::kConstant) {
    current_stream().enqueue([=](Parallel&) { std::fill(out, out + (end - begin), static_cast<float>(init.scale)); });
    return;
  }
  const InitialArgs a{
      init.kind == Init::Kind::kNormal, static_cast<float>(init.scale), seed, hash64(name), begin, end, out};
  current_stream().enqueue([a](Parallel& p) { kernels(p).initial(p, a); });
}

}  // namespace lockstep
