#include "launch/training/generate.h"

#include <algorithm>
#include <cmath>

#include "core/autograd/node.h"
#include "core/base/philox.h"
#include "core/tensor/raw_ops.h"
#include "optim/weight_average.h"

namespace lockstep {
namespace {

using Ranked = std::vector<std::pair<float, int32_t>>;  // logit and token, likeliest first

Ranked rank_tokens(const Tensor& last_logits) {
  const Tensor host = raw::to_host(last_logits);
  const float* logits = host.values<float>();
  Ranked out(static_cast<size_t>(host.numel()));
  for (size_t i = 0; i < out.size(); ++i) out[i] = {logits[i], static_cast<int32_t>(i)};
  std::sort(out.begin(), out.end(),
            [](auto& a, auto& b) { return a.first != b.first ? a.first > b.first : a.second < b.second; });
  return out;
}

// `uniform` lies in [0, 1).
int32_t choose(const Ranked& ranked, const GenerateOptions& o, double uniform) {
  if (o.temperature <= 0) return ranked[0].second;
  const size_t among = o.top_k > 0 ? std::min<size_t>(static_cast<size_t>(o.top_k), ranked.size()) : ranked.size();
  const auto weight = [&](size_t i) { return std::exp((ranked[i].first - ranked[0].first) / o.temperature); };
  double total = 0;
  for (size_t i = 0; i < among; ++i) total += weight(i);
  double left = uniform * total;
  for (size_t i = 0; i < among; ++i) {
    left -= weight(i);
    if (left < 0) return ranked[i].second;
  }
  return ranked[among - 1].second;
}

}  // namespace

std::unique_ptr<Model> load_model(const Settings& settings, const Checkpoint& checkpoint, bool averages) {
  auto model = settings.model->build({checkpoint.info.input, checkpoint.info.classes});
  place_parameters(*model, 1);
  model->eval();
  std::vector<StateEntry> entries;
  for (auto& p : model->parameters())
    entries.push_back({"parameters/" + p.name, p.parameter->value.shape(), 0, p.parameter->value.detach().flatten()});
  for (auto& b : model->buffers())
    entries.push_back({"buffers/" + b.name, b.buffer->value.shape(), 0, b.buffer->value.flatten()});
  load_entries(checkpoint, entries);
  if (averages) load_entries(checkpoint, averages_of(checkpoint, entries));
  return model;
}

void generate(Model& model, std::vector<int32_t> tokens, int64_t context, const GenerateOptions& options,
              const std::function<void(int32_t token)>& on_token) {
  constexpr uint64_t kPurpose = 0x67656e;  // keeps these random numbers apart from others of the seed
  NoGrad no_grad;
  for (int64_t n = 0; n < options.tokens; ++n) {
    const int64_t used = std::min(static_cast<int64_t>(tokens.size()), context);
    const Tensor input = Tensor::of(std::vector<int32_t>(tokens.end() - used, tokens.end()), {1, used});
    const Tensor logits = model(input);
    const Tensor flat = logits.flatten();
    const Ranked ranked = rank_tokens(flat.slice(0, flat.numel() - logits.dim(-1), flat.numel()));
    const double uniform = uniform_of(philox(options.seed, static_cast<uint64_t>(n), kPurpose).v[0]);
    tokens.push_back(choose(ranked, options, uniform));
    on_token(tokens.back());
  }
}

}  // namespace lockstep
