#include "launch/training/chaos.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <limits>
#include <thread>

#include "core/autograd/node.h"
#include "core/base/log.h"
#include "core/tensor/raw_ops.h"

namespace lockstep {
namespace {

constexpr uint32_t kFlippedBit = 1u << 20;  // of the mantissa: the value changes by up to an eighth, and stays finite

// Of the first element that is not 0: a bit of 0 is too small a number to matter.
void flip_bit(const Tensor& values) {
  const Tensor flat = values.flatten();
  const std::vector<float> now = flat.to_vector<float>();
  if (now.empty()) return;
  const auto found = std::find_if(now.begin(), now.end(), [](float v) { return v != 0; });
  const int64_t at = found == now.end() ? 0 : found - now.begin();
  const auto bits = std::bit_cast<uint32_t>(now[static_cast<size_t>(at)]) ^ kFlippedBit;
  raw::copy(flat.slice(0, at, at + 1), Tensor::full({1}, std::bit_cast<float>(bits)));
}

void flip_first(const std::vector<StateEntry>& parameters) {
  const auto held = std::find_if(parameters.begin(), parameters.end(), [](auto& e) { return e.data.numel() > 0; });
  if (held != parameters.end()) flip_bit(held->data);
}

// A write to memory that may not be written.
[[noreturn]] void fault_of_memory() {
  void* page = ::mmap(nullptr, 1, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  *static_cast<volatile char*>(page) = 1;
  std::abort();
}

}  // namespace

int64_t attempt_of_job() {
  const char* text = std::getenv("LOCKSTEP_ATTEMPT");
  if (!text || !*text) return 1;
  const std::string_view word = text;
  int64_t attempt = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), attempt);
  require(error == std::errc() && end == word.data() + word.size() && attempt >= 1, ExitCode::kConfig,
          "LOCKSTEP_ATTEMPT=", word, " is not a number of 1 or more");
  return attempt;
}

Chaos::Chaos(const ChaosOptions& options, int rank, int64_t attempt) {
  for (const ChaosFault& f : options.faults)
    if (f.rank == rank && (f.attempt == 0 || f.attempt == attempt)) faults_.push_back(f);
}

bool Chaos::due(std::string_view kind, int64_t step) const {
  const bool now =
      std::any_of(faults_.begin(), faults_.end(), [&](const auto& f) { return f.kind == kind && f.step == step; });
  if (now) log_warning(str("chaos.faults: ", kind, " at step ", step));
  return now;
}

void Chaos::before_step(int64_t step) const {
  if (due("kill", step)) ::raise(SIGKILL);
  if (due("stop", step)) ::raise(SIGSTOP);
  if (due("segv", step)) fault_of_memory();
  if (due("exit", step)) ::_exit(0);
  for (const ChaosFault& f : faults_)
    if (f.kind == "slow" && step >= f.step) std::this_thread::sleep_for(std::chrono::duration<double>(f.seconds));
}

void Chaos::while_loading(int64_t step) const {
  if (!due("hang", step)) return;
  for (;;) ::pause();
}

double Chaos::loss_gradient(int64_t step, double gradient) const {
  return due("nan", step) ? std::numeric_limits<double>::quiet_NaN() : gradient;
}

void Chaos::before_backward(int64_t step, bool first, const Module& model) const {
  const bool always = std::any_of(faults_.begin(), faults_.end(),
                                  [&](const ChaosFault& f) { return f.kind == "gradients" && step >= f.step; });
  if (first) (void)due("gradients", step);
  if (!always && !(first && due("gradient", step))) return;
  for (const NamedParameter& p : model.parameters()) {
    const auto& record = p.parameter->value.record();
    if (!record || !record->on_grad) continue;
    record->on_grad = [of = record.get(), next = record->on_grad] {
      flip_bit(of->grad);
      const auto original = next;
      of->on_grad = original;  // ends this function object: only locals from here on
      original();
    };
    return;
  }
}

void Chaos::after_update(int64_t step, const std::vector<StateEntry>& parameters) const {
  if (due("weight", step)) flip_first(parameters);
}

void Chaos::at_rest(int64_t step, const std::vector<StateEntry>& parameters) const {
  if (due("memory", step)) flip_first(parameters);
}

void Chaos::before_write(int64_t step) const {
  require(!due("full", step), ExitCode::kStorage, "chaos.faults: the disk counts as full for the checkpoint of step ",
          step);
}

}  // namespace lockstep
