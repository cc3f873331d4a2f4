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
namespace amx {  // has what multiplies bf16
void gemm(Parallel&, const GemmArgs&);
void conv(Parallel&, const ConvArgs&);
void conv_backward_input(Parallel&, const ConvArgs&);
void conv_backward_weight(Parallel&, const ConvArgs&);
void attention(Parallel&, const AttentionArgs&);
void attention_backward(Parallel&, const AttentionArgs&);
}  // namespace amx

namespace {

const KernelTable& amx_table() {
  static const KernelTable all = [] {
    KernelTable t = avx512::table;
    t.isa = "amx";
    t.gemm = amx::gemm;
    t.conv = amx::conv;
    t.conv_backward_input = amx::conv_backward_input;
    t.conv_backward_weight = amx::conv_backward_weight;
    t.attention = amx::attention;
    t.attention_backward = amx::attention_backward;
    return t;
  }();
  return all;
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

// The processor has AMX, the system lets this process use it, and its products have the bits that are defined.
bool has_amx() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  // Asked of the processor itself: not every compiler's __builtin_cpu_supports() knows these names.
  constexpr unsigned kTiles = 1u << 24, kBf16 = 1u << 22;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & kTiles) == 0 || (d & kBf16) == 0) return false;
  if (::syscall(SYS_arch_prctl, kRequestPermission, kTileData) != 0) return false;
  return product_of(amx_table()) == product_of(avx512::table);
}

}  // namespace

const char* bits_of_isa(const char* isa) {
  const std::string name = isa;
  return name == "avx2" || name == "avx512" || name == "amx" ? "avx2 or avx512" : isa;
}

IsaLevel best_isa_level() {
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
  if (avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq")) {
    static const bool amx = has_amx();
    return amx ? IsaLevel::kAmx : IsaLevel::kAvx512;
  }
  return avx2 ? IsaLevel::kAvx2 : IsaLevel::kGeneric;
}

const KernelTable& kernels(IsaLevel level) {
  require(level <= best_isa_level(), ExitCode::kConfig,
          "this CPU lacks the instructions of the kernel level asked for");
  switch (level) {
    case IsaLevel::kGeneric: return generic::table;
    case IsaLevel::kAvx2: return avx2::table;
    case IsaLevel::kAvx512: return avx512::table;
    case IsaLevel::kAmx: return amx_table();
  }
  return generic::table;
}

IsaLevel isa_level() {
  static const IsaLevel chosen = [] {
    const char* wish = std::getenv("LOCKSTEP_ISA");
    if (!wish || !*wish) return best_isa_level();
    for (IsaLevel level : {IsaLevel::kGeneric, IsaLevel::kAvx2, IsaLevel::kAvx512, IsaLevel::kAmx})
      if (level <= best_isa_level() && kernels(level).isa == std::string(wish)) return level;
    throw Error(ExitCode::kConfig,
                cat("LOCKSTEP_ISA=", wish, " is not generic, avx2, avx512 or amx, or this CPU lacks it"));
  }();
  return chosen;
}

const KernelTable& kernels() {
  static const KernelTable& table = kernels(isa_level());
  return table;
}

}  // namespace lockstep
