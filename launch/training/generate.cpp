#include "launch/training/generate.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <span>

#include "core/autograd/node.h"
#include "core/base/philox.h"
#include "core/models/token_transformer.h"
#include "core/nn/key_value_cache.h"
#include "core/tensor/raw_ops.h"
#include "launch/training/build_model.h"
#include "launch/weights/load_weights.h"
#include "optim/weight_average.h"

namespace lockstep {
namespace {

using Ranked = std::vector<std::pair<float, int32_t>>;  // logit and token, likeliest first

// Of two tokens with equal logits the one with the lower id comes first. Only as many as may be chosen are returned.
Ranked rank_tokens(std::span<const float> logits, const std::vector<int32_t>& seen, const GenerateOptions& o) {
  Ranked out(o.vocabulary > 0 ? std::min(logits.size(), static_cast<size_t>(o.vocabulary)) : logits.size());
  for (size_t i = 0; i < out.size(); ++i) out[i] = {logits[i], static_cast<int32_t>(i)};
  if (o.repetition_penalty != 1) {
    const std::set<int32_t> once(seen.begin(), seen.end());
    const auto penalty = static_cast<float>(o.repetition_penalty);
    for (const int32_t token : once) {
      float& logit = out[static_cast<size_t>(token)].first;
      logit = logit > 0 ? logit / penalty : logit * penalty;
    }
  }
  const auto all = static_cast<int64_t>(out.size());
  const int64_t wanted = o.temperature <= 0 ? 1 : o.top_k > 0 ? std::min(o.top_k, all) : all;
  std::partial_sort(out.begin(), out.begin() + wanted, out.end(),
                    [](auto& a, auto& b) { return a.first != b.first ? a.first > b.first : a.second < b.second; });
  out.resize(static_cast<size_t>(wanted));
  return out;
}

// `uniform` lies in [0, 1).
int32_t choose(const Ranked& ranked, const GenerateOptions& o, double uniform) {
  if (ranked.size() == 1) return ranked[0].second;
  std::vector<double> weights;
  double total = 0;
  for (const auto& [logit, token] : ranked)
    total += weights.emplace_back(std::exp((logit - ranked[0].first) / o.temperature));
  if (o.top_p < 1) {
    double kept = 0;
    size_t n = 0;
    while (n < weights.size() && kept < o.top_p * total) kept += weights[n++];
    weights.resize(std::max<size_t>(n, 1)), total = kept;
  }
  if (o.min_p > 0) {
    while (weights.back() < o.min_p * weights[0]) total -= weights.back(), weights.pop_back();
  }
  double left = uniform * total;
  for (size_t i = 0; i < weights.size(); ++i) {
    left -= weights[i];
    if (left < 0) return ranked[i].second;
  }
  return ranked[weights.size() - 1].second;
}

std::unique_ptr<Model> placed_model(const Settings& settings, const TaskSpec& task) {
  auto model = build_model(settings, task);
  place_parameters(*model, 1);
  model->eval();
  return model;
}

std::vector<StateEntry> entries_of(const Model& model) {
  std::vector<StateEntry> entries;
  for (auto& p : model.parameters())
    entries.push_back({cat(kParameters, p.name), p.parameter->value.shape(), 0, p.parameter->value.detach().flatten()});
  for (auto& b : model.buffers())
    entries.push_back({cat(kBuffers, b.name), b.buffer->value.shape(), 0, b.buffer->value.flatten()});
  return entries;
}

// fp32, whatever the model computes in.
Tensor on_host(const Tensor& logits) { return raw::to_host(raw::cast(logits, DType::kFloat32)); }

}  // namespace

std::unique_ptr<Model> load_pretrained(const Settings& settings, const TaskSpec& task) {
  auto model = placed_model(settings, task);
  load_weights(*settings.pretrained, entries_of(*model));
  return model;
}

std::unique_ptr<Model> load_model(const Settings& settings, const Checkpoint& checkpoint, bool averages) {
  auto model = placed_model(settings, task_of(checkpoint.info));
  const std::vector<StateEntry> entries = entries_of(*model);
  if (checkpoint.info.base.empty()) {
    load_entries(checkpoint, entries);
  } else {
    std::vector<StateEntry> base, own;
    for (const StateEntry& e : entries)
      (e.name.starts_with(kParameters) && settings.parallel.frozen(name_in_model(e.name)) ? base : own).push_back(e);
    load_entries(checkpoint, own);
    const auto from = settings.pretrained ? std::nullopt : std::optional(open_newest(settings.init.from));
    require_base_of(settings, checkpoint, to_hex(read_initial(settings, from ? &*from : nullptr, base, own)));
  }
  if (averages) load_entries(checkpoint, averages_of(checkpoint, entries));
  return model;
}

void compute_in(Model& model, DType type) {
  NoGrad no_grad;
  for (auto& p : model.parameters())
    if (p.parameter->value.dtype() != type) p.parameter->value = raw::cast(p.parameter->value.detach(), type);
}

void generate(Model& model, std::vector<std::vector<int32_t>> sequences, int64_t context,
              const GenerateOptions& options, const OnToken& on_token) {
  constexpr uint64_t kPurpose = 0x67656e;  // keeps these random numbers apart from others of the seed
  NoGrad no_grad;
  const auto count = static_cast<int64_t>(sequences.size());
  int64_t longest = 0;
  bool fit = true;
  for (const auto& s : sequences) {
    check(!s.empty(), "generate: a prompt without tokens");
    longest = std::max(longest, static_cast<int64_t>(s.size()));
    fit = fit && static_cast<int64_t>(s.size()) <= context;
  }
  auto* transformer = dynamic_cast<TokenTransformer*>(&model);
  const bool cached = options.cache && fit && transformer && transformer->takes_cache();
  KeyValueCache cache(cached ? count : 0, std::min(context, longest + options.tokens));
  std::vector<bool> going(sequences.size(), true);

  const auto in_cache = [&](size_t b) {
    return cached && static_cast<int64_t>(sequences[b].size()) <= cache.capacity();
  };
  // Of sequences that the cache has room for: one pass over the tokens that it does not have yet.
  const auto cached_logits = [&] {
    int64_t time = 1;
    std::vector<int64_t> counts;
    const auto is_new = [&](size_t b) { return going[b] && in_cache(b); };
    for (size_t b = 0; b < sequences.size(); ++b) {
      if (!is_new(b)) cache.truncate(static_cast<int64_t>(b), 0);  // its row of the batch is not looked at
      counts.push_back(is_new(b) ? static_cast<int64_t>(sequences[b].size()) - cache.lengths()[b] : 1);
      time = std::max(time, counts.back());
    }
    std::vector<int32_t> tokens;
    for (size_t b = 0; b < sequences.size(); ++b) {
      const auto first = is_new(b) ? sequences[b].end() - counts[b] : sequences[b].begin();
      tokens.insert(tokens.end(), first, first + counts[b]);
      tokens.resize((b + 1) * static_cast<size_t>(time));
    }
    const CachedPass pass(cache, counts);
    return on_host((*transformer)(raw::to_device(Tensor::of(tokens, {count, time}), current_device()), pass.scope()));
  };
  // Of one sequence alone, over its last tokens.
  const auto plain_logits = [&](const std::vector<int32_t>& tokens) {
    const int64_t used = std::min(static_cast<int64_t>(tokens.size()), context);
    const Tensor input = Tensor::of(std::vector<int32_t>(tokens.end() - used, tokens.end()), {1, used});
    return on_host(model(raw::to_device(input, current_device())).slice(1, used - 1, used));
  };
  for (int64_t n = 0; n < options.tokens; ++n) {
    Tensor of_all;
    for (size_t b = 0; b < sequences.size() && !of_all.defined(); ++b)
      if (in_cache(b)) of_all = cached_logits();
    const double uniform = uniform_of(philox(options.seed, static_cast<uint64_t>(n), kPurpose).v[0]);
    bool any = false;
    for (size_t b = 0; b < sequences.size(); ++b) {
      if (!going[b]) continue;
      const Tensor logits = in_cache(b) ? of_all : plain_logits(sequences[b]);
      const auto classes = static_cast<size_t>(logits.dim(-1));
      const float* at = logits.values<float>() + (in_cache(b) ? b * classes : 0);
      const int32_t token = choose(rank_tokens({at, classes}, sequences[b], options), options, uniform);
      sequences[b].push_back(token);
      const bool ends = std::find(options.ends.begin(), options.ends.end(), token) != options.ends.end();
      going[b] = !ends && on_token(b, token);
      any = any || going[b];
    }
    if (!any) break;
  }
}

}  // namespace lockstep
