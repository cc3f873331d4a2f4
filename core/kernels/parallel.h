// Parallel: where a kernel runs: the threads of a CPU stream, or an accelerator's queue, which brings kernels of its
// own; and FunctionRef, a callable borrowed for one call. Owned by the stream (core/device/thread_pool, backend).
// Included by files compiled per instruction-set level: keep std containers out.
#pragma once

#include <cstdint>

namespace lockstep {

template <class Signature>
class FunctionRef;

template <class R, class... Args>
class FunctionRef<R(Args...)> {
 public:
  template <class F>
  FunctionRef(F& f)  // NOLINT: implicit on purpose
      : object_(&f), call_([](void* o, Args... args) -> R { return (*static_cast<F*>(o))(args...); }) {}
  R operator()(Args... args) const { return call_(object_, args...); }

 private:
  void* object_;
  R (*call_)(void*, Args...);
};

struct KernelTable;

class Parallel {
 public:
  using Body = FunctionRef<void(int64_t begin, int64_t end)>;
  virtual ~Parallel() = default;
  // Runs body over [0, n) in pieces of at least `grain` items (the last may be smaller), in any order, on any thread.
  // A kernel's result must not depend on where the pieces end.
  virtual void run(int64_t n, int64_t grain, Body body) = 0;
  virtual int threads() const = 0;
  // Scratch of the calling thread, 64-byte aligned, kept between calls; contents undefined. Slots 0 to 3 are
  // independent.
  virtual void* scratch(int slot, int64_t bytes) = 0;
  // The kernels of an accelerator, which take its queue (core/device/backend.h); null on a CPU.
  virtual const KernelTable* device_kernels() const { return nullptr; }
};

}  // namespace lockstep
