#include "core/nn/key_value_cache.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "core/base/trace.h"
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
    : capacity_(capacity), lengths_(static_cast<size_t>(sequences)) {}

void KeyValueCache::move(int64_t from, int64_t to) {
  const int64_t length = std::exchange(lengths_[static_cast<size_t>(from)], 0);
  lengths_[static_cast<size_t>(to)] = length;
  if (length == 0) return;
  for (auto& [_, all] : layers_)
    for (const Tensor& t : {all.keys, all.values})
      raw::copy(t.slice(0, to, to + 1).slice(1, 0, length), t.slice(0, from, from + 1).slice(1, 0, length));
}

bool KeyValueCache::begins() const {
  return std::all_of(lengths_.begin() + first_, lengths_.begin() + first_ + rows(), [](int64_t n) { return n == 0; });
}

Tensor KeyValueCache::positions(int64_t time) const {
  std::vector<int64_t> out;
  for (int64_t b = first_; b < first_ + rows(); ++b)
    for (int64_t t = 0; t < time; ++t) out.push_back(std::min(lengths_[static_cast<size_t>(b)] + t, capacity_ - 1));
  return of_each(out, {rows(), time});
}

Tensor KeyValueCache::last_of(const Tensor& x) const {
  if (x.dim(1) == 1) return x;
  std::vector<Tensor> each;
  for (int64_t b = 0; b < rows(); ++b) {
    const int64_t end = counts_[static_cast<size_t>(b)];
    each.push_back(slice(slice(x, 0, b, b + 1), 1, end - 1, end));
  }
  return each.size() == 1 ? each[0] : concat(each, 0);
}

KeyValueCache::KeysAndValues KeyValueCache::append(const Module& layer, const Tensor& keys, const Tensor& values) {
  trace_mark();
  KeysAndValues& all = layers_[&layer];
  const int64_t time = keys.dim(1);
  if (!all.keys) {
    const Shape shape{sequences(), capacity_, keys.dim(2), keys.dim(3)};
    all = {Tensor::zeros(shape, keys.dtype()), Tensor::zeros(shape, values.dtype())};
  }
  const KeysAndValues of_pass{all.keys.slice(0, first_, first_ + rows()), all.values.slice(0, first_, first_ + rows())};
  for (int64_t b = 0; b < rows(); ++b) {
    const int64_t begin = lengths_[static_cast<size_t>(first_ + b)], end = std::min(begin + time, capacity_);
    const auto put = [&](const Tensor& to, const Tensor& from) {
      raw::copy(to.slice(0, b, b + 1).slice(1, begin, end), from.slice(0, b, b + 1).slice(1, 0, end - begin));
    };
    put(of_pass.keys, keys), put(of_pass.values, values);
  }
  return of_pass;
}

CachedPass::CachedPass(KeyValueCache& cache, const std::vector<int64_t>& counts, int64_t first)
    : cache_(cache), exceptions_(std::uncaught_exceptions()) {
  const auto rows = static_cast<int64_t>(counts.size());
  check(rows > 0 && first >= 0 && first + rows <= cache.sequences(), "a cache of ", cache.sequences(),
        " sequences, new tokens of ", rows, " from sequence ", first, " on");
  const std::vector<int64_t> lengths(cache.lengths_.begin() + first, cache.lengths_.begin() + first + rows);
  for (size_t b = 0; b < counts.size(); ++b)
    check(counts[b] > 0 && lengths[b] + counts[b] <= cache.capacity_, "sequence ", first + static_cast<int64_t>(b),
          ": ", counts[b], " new tokens after ", lengths[b], " in a cache of ", cache.capacity_);
  cache.first_ = first, cache.counts_ = counts;
  cache.starts_ = of_each(lengths, {rows});
}

CachedPass::~CachedPass() {
  if (std::uncaught_exceptions() > exceptions_) return;  // the pass may have written a part of its keys alone
  for (size_t b = 0; b < cache_.counts_.size(); ++b)
    cache_.lengths_[static_cast<size_t>(cache_.first_) + b] += cache_.counts_[b];
}

Tensor causal_attention_of(const Module& layer, const Tensor& q, const Tensor& k, const Tensor& v,
                           const AttentionScope& scope, int64_t window, double score_cap) {
  check(!(scope.cache && scope.documents), layer.name(),
        ": a pass with documents cannot go on from a cache of keys and values");
  AttentionOptions o{.causal = true, .window = window, .documents = scope.documents, .score_cap = score_cap};
  if (scope.documents) return attention(q, k, v, o);
  if (!scope.cache) return causal_attention(q, k, v, window, score_cap);
  const auto [keys, values] = scope.cache->append(layer, k, v);
  if (scope.cache->begins()) return causal_attention(q, k, v, window, score_cap);  // which a GPU's library computes
  o.starts = scope.cache->starts();
  return attention(q, keys, values, o);
}

}  // namespace lockstep
