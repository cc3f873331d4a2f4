#include "launch/doctor/burn.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <utility>

#include "core/autograd/node.h"
#include "core/base/host.h"
#include "core/device/backend.h"
#include "core/kernels/kernels.h"
#include "core/nn/init.h"
#include "core/ops/ops.h"
#include "core/state/state.h"
#include "core/tensor/raw_ops.h"

namespace lockstep {
namespace {

constexpr const char* kBurn = "doctor: burn";
constexpr int64_t kBlock = 16 << 20;  // elements that memory is filled with again and again: 64 MiB

using Seconds = std::chrono::duration<double>;

Tensor values(const char* name, const Shape& shape, double deviation = 1) {
  std::vector<float> out(static_cast<size_t>(shape.numel()));
  fill_initial(Init::normal(deviation), 17, name, 0, shape.numel(), out.data());
  return raw::to_device(Tensor::of(std::move(out), shape), current_device());
}

Hash128 hash_of(const Tensor& t) {
  const Tensor host = raw::to_host(raw::cast(t.detach(), DType::kFloat32));
  current_stream().synchronize();
  return digest_of("", 0, static_cast<const float*>(host.read()), host.numel());
}

// A part of a pass: what it is called, and what it computes.
struct Part {
  std::string name;
  std::function<std::vector<Tensor>()> compute;
};

// The results and the gradients of some operations.
std::vector<Tensor> with_gradients(std::vector<Tensor> leaves,
                                   const std::function<Tensor(const std::vector<Tensor>&)>& forward) {
  for (Tensor& t : leaves) {
    t = t.detach();
    require_grad(t, true);
  }
  const Tensor out = forward(leaves);
  backward(sum(mul(out, out)));
  std::vector<Tensor> all{out};
  for (const Tensor& t : leaves) {
    all.push_back(grad_of(t));
    clear_grad(t);
  }
  return all;
}

Part products(DType type) {
  const Tensor x = raw::cast(values("x", {256, 768}), type), w = raw::cast(values("w", {1024, 768}, 0.03), type);
  return {str("products in ", type == DType::kFloat32 ? "fp32" : "bf16"), [x, w] {
            return with_gradients({x, w}, [](const auto& t) { return linear(t[0], t[1]); });
          }};
}

Part attention_part() {
  const Tensor qkv = values("qkv", {2, 192, 3 * 128});
  return {"attention",
          [qkv] { return with_gradients({qkv}, [](const auto& t) { return causal_attention(t[0], 2); }); }};
}

Part pointwise_part() {
  const Tensor x = values("rows", {512, 768}), scale = values("scale", {768}), shift = values("shift", {768});
  return {"norms and exponentials", [=] {
            return with_gradients({x, scale, shift},
                                  [](const auto& t) { return softmax(silu_mul(layer_norm(t[0], t[1], t[2]), t[0])); });
          }};
}

// Written whole before any of it is read, so that it goes through the memory and not the caches.
Part memory_part(int64_t bytes) {
  const Tensor block = values("memory", {kBlock}), all = Tensor::empty({std::max(kBlock, bytes / 4)});
  return {str("memory, ", all.numel() * 4 / (1 << 20), " MiB"), [=] {
            for (int64_t at = 0; at < all.numel(); at += kBlock) {
              const int64_t n = std::min(kBlock, all.numel() - at);
              raw::copy(all.slice(0, at, at + n), block.slice(0, 0, n));
            }
            return std::vector<Tensor>{all};
          }};
}

// What most of the texts of one group are; empty where no more than half of them agree.
std::string most_of(const std::vector<std::string>& texts) {
  std::map<std::string, size_t> count;
  for (const std::string& t : texts) ++count[t];
  for (const auto& [text, n] : count)
    if (2 * n > texts.size()) return text;
  return {};
}

}  // namespace

Burned burn(Communicator& comm, const BurnOptions& o) {
  std::vector<Part> parts{products(DType::kFloat32), products(DType::kBFloat16), attention_part(), pointwise_part()};
  if (o.memory > 0) parts.push_back(memory_part(o.memory));
  const auto run = [&](const Part& part, int64_t pass) {
    Hash128 sum;
    for (const Tensor& t : part.compute()) {
      if (o.disturb) o.disturb(pass, part.name, t);
      sum += hash_of(t);
    }
    return to_hex(sum);
  };
  // A first pass by all: who computes alike is asked what is right.
  std::string mine = bits_of_isa(kernels().isa);
  if (current_device().type == DeviceType::kCuda)
    mine = str(device_backend().properties(current_device().index).name, ", ", device_backend().versions());
  mine += "\n";
  std::vector<std::string> right;
  for (const Part& p : parts) right.push_back(run(p, 1));
  for (const std::string& hash : right) mine += hash + "\n";
  const auto all = all_gather_text(comm, mine, kBurn);
  const auto kind_of = [](const std::string& text) { return text.substr(0, text.find('\n')); };
  const auto hash_in = [](const std::string& text, size_t part) {
    const size_t at = text.find('\n') + 1 + 33 * part;
    return text.substr(at, 32);
  };
  struct Wrong {
    int64_t times = 0, first = 0;
  };
  std::vector<Wrong> wrong(parts.size());
  for (size_t p = 0; p < parts.size(); ++p) {
    std::vector<std::string> alike;
    for (const std::string& text : all)
      if (kind_of(text) == kind_of(mine)) alike.push_back(hash_in(text, p));
    const std::string agreed = most_of(alike);
    if (agreed.empty() || agreed == right[p]) continue;
    wrong[p] = {1, 1};
    right[p] = agreed;
  }
  const auto begun = std::chrono::steady_clock::now();
  const auto elapsed = [&] {
    return o.elapsed ? o.elapsed() : Seconds(std::chrono::steady_clock::now() - begun).count();
  };
  int64_t passes = 1;
  while (elapsed() < o.seconds) {
    ++passes;
    for (size_t p = 0; p < parts.size(); ++p) {
      if (run(parts[p], passes) == right[p]) continue;
      if (wrong[p].times++ == 0) wrong[p].first = passes;
    }
    if (o.progress) o.progress(elapsed(), passes);
  }
  std::string found;
  for (size_t p = 0; p < parts.size(); ++p)
    if (wrong[p].times > 0)
      found += str(found.empty() ? "" : "; ", parts[p].name, " in ", wrong[p].times, " of ", passes,
                   passes == 1 ? " pass" : " passes", ", first in pass ", wrong[p].first);
  Burned out;
  for (const int64_t n : all_gather_values(comm, passes, kBurn)) out.passes += n;
  const auto texts = all_gather_text(comm, found.empty() ? "" : str(host_name(), "\n", found), kBurn);
  for (size_t r = 0; r < texts.size(); ++r)
    if (const size_t end = texts[r].find('\n'); end != std::string::npos)
      out.findings.push_back(str("rank ", static_cast<int64_t>(r), " on ", texts[r].substr(0, end),
                                 " computed other values than before, or than most ranks: ", texts[r].substr(end + 1),
                                 ". Its processor or memory is at fault: take the machine out"));
  for (size_t p = 0; p < parts.size(); ++p) {
    std::map<std::string, std::vector<std::string>> by_kind;
    for (const std::string& text : all) by_kind[kind_of(text)].push_back(hash_in(text, p));
    for (const auto& [kind, hashes] : by_kind)
      if (most_of(hashes).empty())
        out.findings.push_back(str("no more than half of the ranks that compute as ", kind, " agree on ", parts[p].name,
                                   ": run it with more ranks to learn which are wrong"));
  }
  return out;
}

}  // namespace lockstep
