#include "data/streams/loader.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>

#include "core/base/caught.h"
#include "core/base/error.h"
#include "core/base/log.h"
#include "core/base/trace.h"
#include "core/tensor/raw_ops.h"
#include "data/streams/sample_order.h"

namespace lockstep {

class Loader::Impl {
 public:
  Impl(const Dataset& dataset, const LoaderOptions& options)
      : dataset_(dataset),
        options_(options),
        size_(dataset.size()),
        device_(home()),
        order_(dataset, {options.seed, options.shuffle, options.batch_global, options.pool, options.one_epoch}) {
    check_options();
    if (current_stream().device_queue()) copies_ = std::make_unique<Stream>(current_device(), Stream::Mode::kInline);
    planned_ = taken_cursor_ = valid_start();
    ready_.resize(static_cast<size_t>(options_.prefetch));
    const int threads = device_.has_bytes() ? options_.threads : 0;  // without bytes, batches are built in order
    try {
      for (int i = 0; i < threads; ++i)
        threads_.emplace_back([this, prefix = log_prefix(), rank = trace_owner.rank] {
          set_log_prefix(prefix);
          trace_owner.rank = rank;
          build_ahead();
        });
    } catch (const std::system_error& e) {
      const size_t started = threads_.size();
      stop();
      throw thread_refused(str("loader thread ", started + 1, " of data.threads ", options_.threads), e);
    } catch (...) {
      stop();
      throw;
    }
  }

  ~Impl() { stop(); }

  StepBatch next() {
    check(!done(), "next() after the last step of an evaluation pass");
    if (!copies_) return next_built();
    if (!ahead_) copy_ahead();
    Ahead now = *std::exchange(ahead_, std::nullopt);
    current_stream().wait(now.copied);
    if (!done() && is_built()) copy_ahead();
    return std::move(now.batch);
  }

  bool done() const { return !ahead_ && ended(taken_cursor_); }
  int64_t steps_per_epoch() const { return ceil_div(size_, options_.batch_global); }

 private:
  struct Prefetched {
    std::optional<StepBatch> batch;
    std::exception_ptr failure;
  };
  struct Ahead {
    StepBatch batch;
    Event copied;
  };

  // The device on which batches are built.
  static Device home() {
    const Device here = current_device();
    return here.type == DeviceType::kCuda ? host_memory_of(here) : here;
  }

  StepBatch next_built() {
    if (failure_) std::rethrow_exception(failure_);
    Prefetched made = threads_.empty() ? build_or_fail(planned_) : take();
    if (threads_.empty() && made.batch) planned_ = made.batch->next;
    if (!device_.has_bytes() && options_.threads > 0) count_ahead();
    if (made.failure) std::rethrow_exception(failure_ = made.failure);
    taken_cursor_ = made.batch->next;
    return std::move(*made.batch);
  }

  // True if next_built() would neither wait nor throw.
  bool is_built() {
    std::lock_guard lock(mutex_);
    return !threads_.empty() && prefetched(taken_).has_value() && !prefetched(taken_)->failure;
  }

  // The memory of the copies belongs to the copy stream, which reuses it after the work of the step that used it is
  // done.
  void copy_ahead() {
    Ahead ahead{next_built(), {}};
    const Device here = current_device();
    WithStream with(*copies_);
    WithMemoryUse use(MemoryUse::kBatches);
    for (MicroBatch& m : ahead.batch.mine) {
      for (auto& [name, tensor] : m.batch.tensors()) tensor = raw::to_device(tensor, here);
    }
    ahead.copied = copies_->record();
    ahead_ = std::move(ahead);
  }

  void stop() {
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    for (std::thread& t : threads_) t.join();
  }

  void check_options() const {
    const LoaderOptions& o = options_;
    check(o.size >= 1 && o.rank >= 0 && o.rank < o.size, "rank ", o.rank, " of ", o.size);
    check(o.threads >= 0 && o.prefetch >= 1, "a loader needs threads >= 0 (", o.threads, ") and prefetch >= 1 (",
          o.prefetch, ")");
    check(size_ > 0, "an empty dataset");
    require(o.batch_global >= 1 && o.batch_micro >= 1, ExitCode::kConfig, "batch.global (", o.batch_global,
            ") and batch.micro (", o.batch_micro, ") must be at least 1 sample");
    require(o.batch_micro <= o.batch_global, ExitCode::kConfig, "batch.micro is ", o.batch_micro,
            ", more than batch.global, which is ", o.batch_global, " samples");
    require(o.one_epoch || o.batch_global <= size_, ExitCode::kConfig, "batch.global is ", o.batch_global,
            ", but the training part of the data has only ", size_, " samples");
  }

  Cursor valid_start() const {
    Cursor c = options_.start;
    // The position comes from a checkpoint and may be invalid.
    require(c.epoch >= 0 && c.position >= 0 && c.position <= size_, ExitCode::kBadData,
            "the checkpoint was saved at sample ", c.position, " of epoch ", c.epoch,
            ", but an epoch of this data has ", size_, " samples: it belongs to other data or was changed");
    return c.position == size_ ? Cursor{c.epoch + 1, 0} : c;
  }

  bool ended(const Cursor& c) const { return options_.one_epoch && c.epoch > options_.start.epoch; }

  // A step never crosses the end of an epoch.
  Cursor after(const Cursor& c) const {
    int64_t position = c.position + options_.batch_global;
    return position >= size_ ? Cursor{c.epoch + 1, 0} : Cursor{c.epoch, position};
  }

  // Without bytes no threads build ahead, but the memory that their steps would take is allocated, so that it is
  // counted.
  void count_ahead() {
    Cursor cursor = planned_;
    for (auto& made : ready_) {
      made.reset();
      if (ended(cursor)) continue;
      made = build_or_fail(cursor);
      cursor = after(cursor);
    }
  }

  StepBatch build(const Cursor& c) const {
    TraceSpan span("load_batch");
    WithMemoryUse use(MemoryUse::kBatches);
    StepBatch step;
    step.epoch = c.epoch;
    step.position = c.position;
    step.samples = std::min(options_.batch_global, size_ - c.position);
    step.micro_count = ceil_div(step.samples, options_.batch_micro);
    step.next = after(c);
    // With buckets the samples of a step are sorted at once.
    const IndexRange positions{c.position, c.position + step.samples};
    const bool sorted = dataset_.spec().length_buckets > 1;
    const std::vector<int64_t> all = sorted ? order_(c.epoch, positions) : std::vector<int64_t>();
    const auto samples_of = [&](int64_t micro) {
      const int64_t begin = micro * options_.batch_micro, end = std::min(step.samples, begin + options_.batch_micro);
      if (!sorted) return order_(c.epoch, {c.position + begin, c.position + end});
      return std::vector<int64_t>(all.begin() + begin, all.begin() + end);
    };
    const std::vector<int64_t> built =
        options_.only >= 0 ? std::vector{options_.only}
                           : micro_batches_of(options_.schedule, step.micro_count, options_.rank, options_.size);
    for (int64_t i : built) {
      if (stop_) break;  // this step will not be used
      step.mine.push_back(build_micro(i, c.epoch, samples_of(i)));
      step.targets += step.mine.back().targets;
      for (auto& [name, tensor] : step.mine.back().batch.tensors()) span.add_bytes(tensor.bytes());
    }
    step.units = cuts_rows() ? 0 : step.samples * dataset_.spec().units;
    for (int64_t i = 0; cuts_rows() && i < step.micro_count; ++i) {
      const std::vector<int64_t> samples = samples_of(i);
      step.units += static_cast<int64_t>(samples.size()) * length_of(c.epoch, samples);
    }
    return step;
  }

  // Without bytes rows have their full length, so that the most memory is counted.
  bool cuts_rows() const { return dataset_.spec().length_buckets > 1 && device_.has_bytes(); }

  // Of the rows of a micro-batch.
  int64_t length_of(int64_t epoch, const std::vector<int64_t>& samples) const {
    int64_t longest = 1;
    for (int64_t sample : samples) longest = std::max(longest, dataset_.length(epoch, sample));
    return dataset_.spec().padded(longest);
  }

  // A tensor of a micro-batch, into which samples are read.
  struct Column {
    uint8_t* memory = nullptr;
    int64_t bytes = 0;           // of a row
    std::vector<uint8_t> whole;  // where rows are cut: a sample's, before it is
  };

  MicroBatch build_micro(int64_t index, int64_t epoch, std::vector<int64_t> of) const {
    trace_mark();
    const DataSpec& spec = dataset_.spec();
    const auto samples = std::make_shared<const std::vector<int64_t>>(std::move(of));
    const auto rows = static_cast<int64_t>(samples->size());
    MicroBatch micro;
    micro.index = index;
    micro.samples = samples;
    std::vector<Column> columns;
    std::vector<void*> sample;
    const int64_t length = cuts_rows() ? length_of(epoch, *samples) : 0;
    for (const TensorSpec& one : spec.tensors) {
      const bool cut = length > 0 && length < spec.units && one.shape == spec.input().shape;
      Shape shape{rows};
      for (int64_t extent : cut ? Shape{length} : one.shape) shape.push_back(extent);
      Tensor t = Tensor::unallocated(shape, one.dtype, device_);
      t.allocate();
      const int64_t bytes = t.bytes() / rows;
      columns.push_back({static_cast<uint8_t*>(t.write()), bytes, {}});
      if (cut) columns.back().whole.resize(static_cast<size_t>(one.shape.numel() * size_of(one.dtype)));
      micro.batch.add(one.name, std::move(t));
    }
    sample.resize(columns.size());
    const TensorSpec *labels = spec.find(kLabels), *weights = spec.find(kSampleWeights);
    const auto at = [&](const TensorSpec* one) { return static_cast<size_t>(one - spec.tensors.data()); };
    const int64_t targets = labels ? columns[at(labels)].bytes / size_of(DType::kInt32) : 1;
    if (!device_.has_bytes()) micro.targets = static_cast<double>(rows * targets);
    for (int64_t row = 0; row < rows && device_.has_bytes(); ++row) {
      for (size_t t = 0; t < columns.size(); ++t)
        sample[t] = columns[t].whole.empty() ? columns[t].memory + row * columns[t].bytes : columns[t].whole.data();
      dataset_.read(epoch, (*samples)[static_cast<size_t>(row)], {spec.tensors, sample});
      int64_t counted = targets;
      if (labels) {
        const auto* written = static_cast<const int32_t*>(sample[at(labels)]);
        counted -= std::count(written, written + targets, kIgnoreIndex);
      }
      const double weight = weights ? double{*static_cast<const float*>(sample[at(weights)])} : 1.0;
      micro.targets += weight * static_cast<double>(counted);
      for (Column& c : columns)
        if (!c.whole.empty()) std::copy_n(c.whole.data(), c.bytes, c.memory + row * c.bytes);
    }
    return micro;
  }

  Prefetched build_or_fail(const Cursor& c) const {
    Prefetched made;
    try {
      made.batch = build(c);
    } catch (...) {
      made.failure = std::current_exception();
    }
    return made;
  }

  std::optional<Prefetched>& prefetched(int64_t step) { return ready_[static_cast<size_t>(step % options_.prefetch)]; }

  // Runs on each loader thread: claims the next step that is not being built, as soon as there is room for it.
  void build_ahead() {
    trace_mark();
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return stop_ || (claimed_ < taken_ + options_.prefetch && !ended(planned_)); });
      if (stop_) return;
      int64_t step = claimed_++;
      Cursor cursor = std::exchange(planned_, after(planned_));
      lock.unlock();
      Prefetched made = build_or_fail(cursor);
      lock.lock();
      prefetched(step) = std::move(made);
      changed_.notify_all();
    }
  }

  Prefetched take() {
    const TraceSpan span("wait_for_batch");
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return prefetched(taken_).has_value(); });
    Prefetched made = std::move(*prefetched(taken_));
    prefetched(taken_).reset();
    ++taken_;
    changed_.notify_all();
    return made;
  }

  const Dataset& dataset_;
  const LoaderOptions options_;
  const int64_t size_;
  const Device device_;
  const SampleOrder order_;
  std::unique_ptr<Stream> copies_;  // to a GPU
  std::optional<Ahead> ahead_;      // this and the next two are used on the caller's thread only
  Cursor taken_cursor_;             // of next_built()
  std::exception_ptr failure_;

  std::mutex mutex_;
  std::condition_variable changed_;
  Cursor planned_;                                // the position of the next step to claim
  int64_t claimed_ = 0, taken_ = 0;               // steps
  std::vector<std::optional<Prefetched>> ready_;  // a ring of `prefetch` steps
  std::atomic<bool> stop_ = false;
  std::vector<std::thread> threads_;  // declared last, since they use all other members
};

Loader::Loader(const Dataset& dataset, const LoaderOptions& options)
    : impl_(std::make_unique<Impl>(dataset, options)) {}
Loader::~Loader() = default;
StepBatch Loader::next() { return impl_->next(); }
bool Loader::done() const { return impl_->done(); }
int64_t Loader::steps_per_epoch() const { return impl_->steps_per_epoch(); }

}  // namespace lockstep
