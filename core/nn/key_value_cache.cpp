#include "core/nn/key_value_cache.h"

#include <algorithm>
#include <exception>

#include "core/ops/ops.h"
#include "core/tensor/raw_ops.h"

namespace lockstep {
namespace {

Tensor of_each(const std::vector<int64_t>& values, const Shape& shape) {
  std::vector<int32_t> narrow(values.begin(), values.end());
  return raw::to_device(Tensor::of(narrow, shape), current_device());
}

}  // namespace

KeyValueCache::KeyValueCache(int64_t sequences, int64_t capacity)
    : capacity_(capacity), lengths_(static_cast<size_t>(sequences)), counts_(static_cast<size_t>(sequences)) {}

Tensor KeyValueCache::positions(int64_t time) const {
  std::vector<int64_t> out;
  for (const int64_t length : lengths_)
    for (int64_t t = 0; t < time; ++t) out.push_back(std::min(length + t, capacity_ - 1));
  return of_each(out, {sequences(), time});
}

Tensor KeyValueCache::last_of(const Tensor& x) const {
  if (x.dim(1) == 1) return x;
  std::vector<Tensor> rows;
  for (int64_t b = 0; b < sequences(); ++b) {
    const int64_t end = counts_[static_cast<size_t>(b)];
    rows.push_back(slice(slice(x, 0, b, b + 1), 1, end - 1, end));
  }
  return rows.size() == 1 ? rows[0] : concat(rows, 0);
}

const KeyValueCache::KeysAndValues& KeyValueCache::append(const Module& layer, const Tensor& keys,
                                                          const Tensor& values) {
  KeysAndValues& all = layers_[&layer];
  const int64_t time = keys.dim(1);
  if (!all.keys) {
    const Shape shape{sequences(), capacity_, keys.dim(2), keys.dim(3)};
    all = {Tensor::zeros(shape, keys.dtype()), Tensor::zeros(shape, values.dtype())};
  }
  for (int64_t b = 0; b < sequences(); ++b) {
    const int64_t begin = lengths_[static_cast<size_t>(b)], end = std::min(begin + time, capacity_);
    const auto put = [&](const Tensor& to, const Tensor& from) {
      raw::copy(to.slice(0, b, b + 1).slice(1, begin, end), from.slice(0, b, b + 1).slice(1, 0, end - begin));
    };
    put(all.keys, keys), put(all.values, values);
  }
  return all;
}

CachedPass::CachedPass(KeyValueCache& cache, const std::vector<int64_t>& counts)
    : cache_(cache), exceptions_(std::uncaught_exceptions()) {
  check(counts.size() == cache.lengths_.size(), "a cache of ", cache.sequences(), " sequences, new tokens of ",
        counts.size());
  for (size_t b = 0; b < counts.size(); ++b)
    check(counts[b] > 0 && cache.lengths_[b] + counts[b] <= cache.capacity_, "sequence ", b, ": ", counts[b],
          " new tokens after ", cache.lengths_[b], " in a cache of ", cache.capacity_);
  cache.counts_ = counts;
  cache.starts_ = of_each(cache.lengths_, {cache.sequences()});
}

CachedPass::~CachedPass() {
  if (std::uncaught_exceptions() > exceptions_) return;  // the pass may have written a part of its keys alone
  for (size_t b = 0; b < cache_.lengths_.size(); ++b) cache_.lengths_[b] += cache_.counts_[b];
}

Tensor causal_attention_of(const Module& layer, const Tensor& q, const Tensor& k, const Tensor& v,
                           const AttentionScope& scope, int64_t window) {
  check(!(scope.cache && scope.documents), layer.name(),
        ": a pass with documents cannot go on from a cache of keys and values");
  if (scope.documents) return attention(q, k, v, {.causal = true, .window = window, .documents = scope.documents});
  if (!scope.cache) return causal_attention(q, k, v, window);
  const auto& [keys, values] = scope.cache->append(layer, k, v);
  return attention(q, keys, values, {.causal = true, .window = window, .starts = scope.cache->starts()});
}

}  // namespace lockstep
