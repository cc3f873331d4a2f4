#include "data/streams/sample_order.h"

#include <algorithm>
#include <utility>

#include "core/base/error.h"
#include "core/base/trace.h"
#include "data/samples/sampler.h"

namespace lockstep {

SampleOrder::SampleOrder(const Dataset& data, const OrderOptions& options)
    : data_(data),
      options_(options),
      size_(data.size()),
      pool_size_(options.whole ? size_ : std::min(size_, options.step * std::min(options.pool, size_))) {}

std::vector<int64_t> SampleOrder::operator()(int64_t epoch, IndexRange positions) const {
  trace_mark();
  check(positions.begin >= 0 && positions.begin <= positions.end && positions.end <= size_, "positions [",
        positions.begin, ", ", positions.end, ") of ", size_);
  std::vector<int64_t> out;
  out.reserve(static_cast<size_t>(positions.size()));
  if (data_.spec().length_buckets <= 1) {
    const Sampler order(size_, options_.seed, epoch, options_.shuffle);
    for (int64_t p = positions.begin; p < positions.end; ++p) out.push_back(order(p));
    return out;
  }
  for (int64_t p = positions.begin; p < positions.end;) {
    const int64_t number = p / pool_size_, end = std::min(positions.end, (number + 1) * pool_size_);
    const auto held = pool(epoch, number);
    for (; p < end; ++p) out.push_back(held->samples[static_cast<size_t>(p - number * pool_size_)]);
  }
  return out;
}

// Threads that wait would otherwise compute the same.
std::shared_ptr<const SampleOrder::Pool> SampleOrder::pool(int64_t epoch, int64_t number) const {
  std::lock_guard lock(mutex_);
  if (!last_ || last_->epoch != epoch || last_->number != number)
    last_ = std::make_shared<const Pool>(sorted(epoch, number));
  return last_;
}

SampleOrder::Pool SampleOrder::sorted(int64_t epoch, int64_t number) const {
  const int64_t begin = number * pool_size_, count = std::min(pool_size_, size_ - begin);
  const Sampler order(size_, options_.seed, epoch, options_.shuffle);
  std::vector<std::pair<int64_t, int64_t>> by_length;  // length, sample
  by_length.reserve(static_cast<size_t>(count));
  for (int64_t p = begin; p < begin + count; ++p) {
    const int64_t sample = order(p);
    by_length.emplace_back(data_.spec().padded(data_.length(epoch, sample)), sample);
  }
  std::stable_sort(by_length.begin(), by_length.end(), [](auto& a, auto& b) { return a.first < b.first; });

  // Step s takes the turn(s)-th of the parts. The last step of an epoch may have fewer samples, and so has its part.
  Pool out{epoch, number, {}};
  out.samples.reserve(by_length.size());
  const int64_t step = options_.whole ? count : options_.step, steps = ceil_div(count, step);
  const Sampler turn(steps, options_.seed ^ static_cast<uint64_t>(number + 1) << 32, epoch,
                     options_.shuffle && !options_.whole);
  const int64_t lack = steps * step - count, short_part = turn(steps - 1);
  for (int64_t s = 0; s < steps; ++s) {
    const int64_t part = turn(s), first = part * step - (part > short_part ? lack : 0);
    const int64_t end = first + step - (part == short_part ? lack : 0);
    for (int64_t i = first; i < end; ++i) out.samples.push_back(by_length[static_cast<size_t>(i)].second);
  }
  return out;
}

}  // namespace lockstep
