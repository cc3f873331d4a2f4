// Chooses the instruction-set level once, at the first use.
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <string>
#include <vector>

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
// What multiplies bf16, for LEVEL; the rest is that of avx512.
#define LOCKSTEP_ENTRY(name, ...) void name(Parallel&, __VA_ARGS__);
#define LOCKSTEP_ASSIGN(name, ...) t.name = name;
#define LOCKSTEP_PRODUCTS_OF(LEVEL)             \
  namespace LEVEL {                             \
  LOCKSTEP_PRODUCT_KERNELS(LOCKSTEP_ENTRY)      \
  const KernelTable& table() {                  \
    static const KernelTable all = [] {         \
      KernelTable t = avx512::table;            \
      t.isa = #LEVEL;                           \
      LOCKSTEP_PRODUCT_KERNELS(LOCKSTEP_ASSIGN) \
      return t;                                 \
    }();                                        \
    return all;                                 \
  }                                             \
  }
LOCKSTEP_PRODUCTS_OF(avx512_bf16)
LOCKSTEP_PRODUCTS_OF(amx)
#undef LOCKSTEP_PRODUCTS_OF
#undef LOCKSTEP_ASSIGN
#undef LOCKSTEP_ENTRY

namespace {

const KernelTable& table_of(IsaLevel level) {
  switch (level) {
    case IsaLevel::kGeneric: return generic::table;
    case IsaLevel::kAvx2: return avx2::table;
    case IsaLevel::kAvx512: return avx512::table;
    case IsaLevel::kAvx512Bf16: return avx512_bf16::table();
    case IsaLevel::kAmx: return amx::table();
  }
  return generic::table;
}

// A product on the calling thread, to compare two levels by.
class Alone : public Parallel {
 public:
  void run(int64_t n, int64_t, Body body) override { body(0, n); }
  int threads() const override { return 1; }
  void* scratch(int slot, int64_t bytes) override {
    auto& s = scratch_[static_cast<size_t>(slot)];
    if (static_cast<int64_t>(s.size()) < bytes + 64) s.resize(static_cast<size_t>(bytes + 64));
    return s.data() + (64 - reinterpret_cast<uintptr_t>(s.data()) % 64);
  }

 private:
  std::array<std::vector<char>, 4> scratch_;
};

std::vector<float> product_of(const KernelTable& table) {
  constexpr int64_t kM = 40, kN = 56, kK = 104;
  std::vector<uint16_t> a(kM * kK), b(kK * kN);
  uint32_t state = 1;
  for (auto* values : {&a, &b})
    for (uint16_t& v : *values) {
      state = state * 1664525 + 1013904223;
      v = static_cast<uint16_t>((state >> 31) << 15 | (0x3C00 + (state >> 21) % 0x400));  // +- 2^-7 to 2
    }
  std::vector<float> c(kM * kN);
  GemmArgs g;
  g.m = kM, g.n = kN, g.k = kK;
  g.a = {a.data(), DType::kBFloat16, kK, 1, 0};
  g.b = {b.data(), DType::kBFloat16, kN, 1, 0};
  g.c = {c.data(), DType::kFloat32, kN, 1, 0};
  Alone alone;
  table.gemm(alone, g);
  return c;
}

// The products of a level that multiplies pairs have the bits that are defined.
bool multiplies_as_defined(const KernelTable& table) { return product_of(table) == product_of(avx512::table); }

// Bits of cpuid, asked of the processor itself: not every compiler's __builtin_cpu_supports() knows these names.
bool cpu_has(unsigned subleaf, unsigned of_eax, unsigned of_edx) {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, subleaf, &a, &b, &c, &d) && (a & of_eax) == of_eax && (d & of_edx) == of_edx;
}

bool has_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}

// AMD's processors add a dot product of bf16 as fast as a multiply-add of fp32; Intel's take twice as long.
bool has_fast_dots() {
  return __builtin_cpu_is("amd") && cpu_has(1, 1u << 5, 0) && multiplies_as_defined(avx512_bf16::table());
}

// The processor has AMX, and the system lets this process use it.
bool has_amx() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  constexpr unsigned kTiles = 1u << 24, kBf16 = 1u << 22;
  return cpu_has(0, 0, kTiles | kBf16) && ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0 &&
         multiplies_as_defined(amx::table());
}

}  // namespace

const char* bits_of_isa(const char* isa) {
  for (IsaLevel level : kIsaLevels)
    if (level >= IsaLevel::kAvx2 && table_of(level).isa == std::string(isa)) return "avx2 or avx512";
  return isa;
}

bool has_isa_level(IsaLevel level) {
  struct Found {
    Found() {
      __builtin_cpu_init();
      avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
      avx512 = avx2 && has_avx512();
      dots = avx512 && has_fast_dots();
      amx = avx512 && has_amx();
    }
    bool avx2, avx512, dots, amx;
  };
  static const Found found;
  switch (level) {
    case IsaLevel::kGeneric: return true;
    case IsaLevel::kAvx2: return found.avx2;
    case IsaLevel::kAvx512: return found.avx512;
    case IsaLevel::kAvx512Bf16: return found.dots;
    case IsaLevel::kAmx: return found.amx;
  }
  return false;
}

IsaLevel best_isa_level() {
  IsaLevel best = IsaLevel::kGeneric;
  for (IsaLevel level : kIsaLevels)
    if (has_isa_level(level)) best = level;
  return best;
}

const KernelTable& kernels(IsaLevel level) {
  require(has_isa_level(level), ExitCode::kConfig, "this CPU lacks the instructions of the kernel level asked for");
  return table_of(level);
}

IsaLevel isa_level() {
  static const IsaLevel chosen = [] {
    const char* wish = std::getenv("LOCKSTEP_ISA");
    if (!wish || !*wish) return best_isa_level();
    for (IsaLevel level : kIsaLevels) {
      if (table_of(level).isa != std::string(wish)) continue;
      require(has_isa_level(level), ExitCode::kConfig, "LOCKSTEP_ISA=", wish,
              ": this CPU does not support it; choose a lower level, or unset LOCKSTEP_ISA");
      return level;
    }
    throw Error(ExitCode::kConfig, str("LOCKSTEP_ISA=", wish, ": must be generic, avx2, avx512, avx512_bf16 or amx"));
  }();
  return chosen;
}

const KernelTable& kernels() {
  static const KernelTable& table = kernels(isa_level());
  return table;
}

}  // namespace lockstep
