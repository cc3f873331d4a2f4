// Recurrent layers on a CPU: each thread takes some samples through all steps, so that threads wait for one another
// once in a pass. The weight is packed once for all of them. With a large weight and few samples each thread would
// spend its time on reading all of the weight: then threads share the products of each step instead.
#include "core/kernels/recurrent_steps.h"

#include "core/kernels/entries.h"
#include "core/kernels/gemm/gemm_serial.h"

namespace lockstep::inline LOCKSTEP_ISA {
namespace {

constexpr int kWeights = 3;  // scratch slot, of the calling thread

// One thread of several.
class ThisThread : public Parallel {
 public:
  explicit ThisThread(Parallel& all) : all_(all) {}
  void run(int64_t n, int64_t, Body body) override { body(0, n); }
  int threads() const override { return 1; }
  void* scratch(int slot, int64_t bytes) override { return all_.scratch(slot, bytes); }
  const KernelTable* device_kernels() const override { return nullptr; }

 private:
  Parallel& all_;
};

struct Passes {
  Parallel& where;

  void pointwise(PointwiseOp op, const PointwiseArgs& p) { passes::pointwise(where, op, p); }
  void cell(CellPass pass, const PointwiseArgs& p) { passes::cell(where, pass, p); }
};

template <class T>
struct OnThisThread : Passes {
  const PackedMatrix<T>* packed;  // by StepWeight

  void multiply(StepWeight which, const GemmArgs& g) { gemm_serial<T>(where, g, {}, packed[static_cast<int>(which)]); }
};

struct OnAllThreads : Passes {
  void multiply(StepWeight, const GemmArgs& g) { gemm(where, g); }
};

bool shares_weight(const Parallel& parallel, const RecurrentArgs& a) {
  constexpr int64_t kFewSamples = 4, kLargeWeight = 2 << 20;  // of a thread; bytes
  return parallel.threads() > 1 && a.batch < kFewSamples * parallel.threads() &&
         a.all_gates() * a.hidden * size_of(a.low) > kLargeWeight;
}

template <class T>
void recurrent_in(Parallel& parallel, const RecurrentArgs& a) {
  PackedMatrix<T> packed[2];
  int64_t sizes[2] = {};
  const auto weight = [](int i) { return static_cast<StepWeight>(i); };
  const int weights = a.time == 1 ? 0 : a.lstm() ? 1 : 2;
  for (int i = 0; i < weights; ++i)
    sizes[i] = packed_size<T>(a.low, step_weight_rows(a, weight(i)), step_weight_cols(a, weight(i)));
  T* room = static_cast<T*>(parallel.scratch(kWeights, (sizes[0] + sizes[1]) * static_cast<int64_t>(sizeof(T))));
  for (int i = 0; i < weights; room += sizes[i], ++i)
    packed[i] =
        pack_matrix<T>(step_weight(a, weight(i)), step_weight_rows(a, weight(i)), step_weight_cols(a, weight(i)), room);
  auto body = [&](int64_t begin, int64_t end) {
    ThisThread thread(parallel);
    OnThisThread<T> run{{thread}, packed};
    RecurrentSteps(a, begin, end - begin, run).all();
  };
  parallel.run(a.batch, (a.batch + parallel.threads() - 1) / parallel.threads(), body);
}

}  // namespace

void recurrent(Parallel& parallel, const RecurrentArgs& a) {
  if (shares_weight(parallel, a)) {
    OnAllThreads run{{parallel}};
    return RecurrentSteps(a, 0, a.batch, run).all();
  }
  a.wide == DType::kFloat64 ? recurrent_in<double>(parallel, a) : recurrent_in<float>(parallel, a);
}

}  // namespace lockstep::inline LOCKSTEP_ISA
