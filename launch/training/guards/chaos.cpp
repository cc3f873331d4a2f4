#include "launch/training/guards/chaos.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <thread>

#include "core/autograd/node.h"
#include "core/base/log.h"
#include "core/tensor/raw_ops.h"

namespace lockstep {
namespace {

constexpr uint32_t kFlippedBit = 1u << 20;  // of the mantissa: the value changes by up to an eighth, and stays finite
constexpr uint16_t kFlippedBitOfBf16 = 1u << 4, kFlippedBitOfFp16 = 1u << 7;
constexpr int64_t kProducts = 8;  // the first ones of a micro-batch, of which one is wrong

void flip_first(const std::vector<StateEntry>& parameters) {
  const auto held = std::find_if(parameters.begin(), parameters.end(), [](auto& e) { return e.data.numel() > 0; });
  if (held != parameters.end()) Chaos::flip_bit(held->data);
}

// As soon as the gradient of the model's first parameter is complete.
void flip_gradient(const Module& model) {
  for (const NamedParameter& p : model.parameters()) {
    const auto& record = p.parameter->value.record();
    if (!record || !record->on_grad) continue;
    record->on_grad = [of = record.get(), next = record->on_grad] {
      Chaos::flip_bit(of->grad);
      const auto original = next;
      of->on_grad = original;  // ends this function object: only locals from here on
      original();
    };
    return;
  }
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

namespace {

// Of the first value that is not 0: a bit of 0 is too small a number to matter.
template <class Word>
void flip_first_of(Word* values, int64_t count, Word bit) {
  const auto nonzero = [](Word v) { return static_cast<Word>(v << 1) != 0; };
  Word* found = std::find_if(values, values + count, nonzero);
  *(found == values + count ? values : found) ^= bit;
}

}  // namespace

// In host memory in the order of the stream, and not as a write of the tensor: nothing that computes rightly writes it.
void Chaos::flip_bit(const Tensor& values) {
  const Tensor flat = values.flatten();
  const int64_t n = flat.numel();
  if (n == 0) return;
  if (!flat.device().in_host_memory()) {
    std::vector<float> now = flat.to_vector<float>();
    std::vector<uint32_t> words(now.size());
    std::memcpy(words.data(), now.data(), now.size() * sizeof(float));
    flip_first_of(words.data(), n, kFlippedBit);
    std::memcpy(now.data(), words.data(), now.size() * sizeof(float));
    return raw::copy(flat, Tensor::of(now, {n}));
  }
  void* at = const_cast<void*>(flat.read());
  const DType type = flat.dtype();
  current_stream().enqueue([at, n, type](Parallel&) {
    if (type == DType::kFloat32) flip_first_of(static_cast<uint32_t*>(at), n, kFlippedBit);
    else if (type == DType::kBFloat16) flip_first_of(static_cast<uint16_t*>(at), n, kFlippedBitOfBf16);
    else flip_first_of(static_cast<uint16_t*>(at), n, kFlippedBitOfFp16);
  });
}

const ChaosFault* Chaos::since(std::string_view kind, int64_t step) const {
  const auto found = std::find_if(faults_.begin(), faults_.end(),
                                  [&](const ChaosFault& f) { return f.kind == kind && step >= f.step; });
  return found == faults_.end() ? nullptr : &*found;
}

void Chaos::before_pass(int64_t step, bool first, const Module& model) const {
  if (first)
    for (const char* kind : {"gradients", "activations", "products", "sums"}) (void)due(kind, step);
  if (const ChaosFault* fault = since("products", step)) {
    raw::set_product_observer([left = fault->step % kProducts](const Tensor& result) mutable {
      if (left-- != 0) return;
      const Shape row({result.dim(-1)});
      flip_bit(Tensor::view_of(result.storage(), result.offset(), row, result.dtype()));
    });
  }
  if (const ChaosFault* fault = since("activations", step)) {
    std::vector<Module*> blocks = model.blocks();
    std::erase_if(blocks,
                  [](const Module* m) { return m->children().empty(); });  // an embedding, which may be read beside
    if (blocks.empty()) blocks = model.blocks();
    blocks[static_cast<size_t>(fault->step) % blocks.size()]->set_observer(&flip_bit);
  }
  if (since("gradients", step) || (first && due("gradient", step))) flip_gradient(model);
}

bool Chaos::adds_wrongly(int64_t step) const { return since("sums", step) != nullptr; }

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
