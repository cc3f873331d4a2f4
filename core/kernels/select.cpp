// Chooses the instruction-set level once, at the first use.
#include <cstdlib>
#include <string>

#include "core/base/error.h"
#include "core/kernels/kernels.h"

namespace lockstep {

namespace generic {
extern const KernelTable table;
}
namespace avx2 {
extern const KernelTable table;
}
namespace avx512 {
extern const KernelTable table;
}

const char* bits_of_isa(const char* isa) {
  const std::string name = isa;
  return name == "avx2" || name == "avx512" ? "avx2 or avx512" : isa;
}

IsaLevel best_isa_level() {
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
  if (avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
    return IsaLevel::kAvx512;
  return avx2 ? IsaLevel::kAvx2 : IsaLevel::kGeneric;
}

const KernelTable& kernels(IsaLevel level) {
  require(level <= best_isa_level(), ExitCode::kConfig,
          "this CPU lacks the instructions of the kernel level asked for");
  switch (level) {
    case IsaLevel::kGeneric: return generic::table;
    case IsaLevel::kAvx2: return avx2::table;
    case IsaLevel::kAvx512: return avx512::table;
  }
  return generic::table;
}

IsaLevel isa_level() {
  static const IsaLevel chosen = [] {
    const char* wish = std::getenv("LOCKSTEP_ISA");
    if (!wish || !*wish) return best_isa_level();
    for (IsaLevel level : {IsaLevel::kGeneric, IsaLevel::kAvx2, IsaLevel::kAvx512})
      if (level <= best_isa_level() && kernels(level).isa == std::string(wish)) return level;
    throw Error(ExitCode::kConfig, cat("LOCKSTEP_ISA=", wish, " is not generic, avx2 or avx512, or this CPU lacks it"));
  }();
  return chosen;
}

const KernelTable& kernels() {
  static const KernelTable& table = kernels(isa_level());
  return table;
}

}  // namespace lockstep
