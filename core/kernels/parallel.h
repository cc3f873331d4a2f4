// Parallel: where a kernel runs: on the threads of a CPU stream, or on an accelerator's queue, which has kernels of its
// own. FunctionRef: a reference to a callable, for the duration of one call. Owned by the stream
// (core/device/thread_pool, backend). Files compiled for each instruction-set level include this: no std containers.
#pragma once

#include <concepts>
#include <cstdint>

namespace lockstep {

template <class Signature>
class FunctionRef;

template <class R, class... Args>
class FunctionRef<R(Args...)> {
 public:
  template <class F>
  requires(!std::same_as<F, FunctionRef>)  // a copy refers to the callable, not to the reference that was copied
      FunctionRef(F& f)                    // NOLINT: implicit on purpose
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
  // The kernels of the accelerator whose queue this is (core/device/backend.h); null on a CPU.
  virtual const KernelTable* device_kernels() const { return nullptr; }
};

}  // namespace lockstep
