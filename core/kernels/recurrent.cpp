// Recurrent layers on a CPU: each thread takes some samples through all steps, so that threads wait for one another
// once in a pass. The weight is packed once for all of them.
#include "core/kernels/recurrent_steps.h"

#include "core/kernels/entries.h"
#include "core/kernels/gemm_serial.h"

#if defined(LOCKSTEP_TILES)
namespace lockstep::avx512 {  // has this level's other kernels
void pointwise(Parallel&, PointwiseOp, const PointwiseArgs&);
void cell(Parallel&, CellPass, const PointwiseArgs&);
}  // namespace lockstep::avx512
#endif

namespace lockstep::inline LOCKSTEP_ISA {
namespace {

#if defined(LOCKSTEP_TILES)
namespace passes = avx512;
#else
namespace passes = LOCKSTEP_ISA;
#endif

constexpr int kWeights = 3;  // scratch slot, of the calling thread

// One thread of several.
class ThisThread : public Parallel {
 public:
  explicit ThisThread(Parallel& all) : all_(all) {}
  void run(int64_t n, int64_t, Body body) override { body(0, n); }
  int threads() const override { return 1; }
  void* scratch(int slot, int64_t bytes) override { return all_.scratch(slot, bytes); }

 private:
  Parallel& all_;
};

template <class T>
struct OnThisThread {
  ThisThread thread;
  const PackedMatrix<T>* packed;

  void multiply(StepWeight which, const GemmArgs& g) { gemm_serial<T>(thread, g, {}, packed[static_cast<int>(which)]); }
  void pointwise(PointwiseOp op, const PointwiseArgs& p) { passes::pointwise(thread, op, p); }
  void cell(CellPass pass, const PointwiseArgs& p) { passes::cell(thread, pass, p); }
};

template <class T>
void recurrent_in(Parallel& parallel, const RecurrentArgs& a) {
  PackedMatrix<T> packed[2];
  const auto size = [&](StepWeight w) {
    return w == StepWeight::kOwn && a.lstm() ? 0
                                             : packed_size<T>(a.low, step_weight_rows(a, w), step_weight_cols(a, w));
  };
  const int64_t joint = size(StepWeight::kJoint), own = size(StepWeight::kOwn);
  const bool multiplies = a.time > 1;
  T* room = static_cast<T*>(parallel.scratch(kWeights, (joint + own) * static_cast<int64_t>(sizeof(T))));
  for (StepWeight w : {StepWeight::kJoint, StepWeight::kOwn})
    if (multiplies && (w == StepWeight::kJoint || !a.lstm()))
      packed[static_cast<int>(w)] = pack_matrix<T>(step_weight(a, w), step_weight_rows(a, w), step_weight_cols(a, w),
                                                   w == StepWeight::kJoint ? room : room + joint);
  constexpr int64_t kTogether = 4;  // rows of a product
  const int64_t share = (a.batch + parallel.threads() - 1) / parallel.threads();
  auto body = [&](int64_t begin, int64_t end) {
    OnThisThread<T> run{ThisThread(parallel), packed};
    RecurrentSteps(a, begin, end - begin, run).all();
  };
  parallel.run(a.batch, (share + kTogether - 1) / kTogether * kTogether, body);
}

}  // namespace

void recurrent(Parallel& parallel, const RecurrentArgs& a) {
  a.wide == DType::kFloat64 ? recurrent_in<double>(parallel, a) : recurrent_in<float>(parallel, a);
}

}  // namespace lockstep::inline LOCKSTEP_ISA
