#include "launch/training/evaluation/evaluate.h"

#include <algorithm>
#include <cmath>

#include "core/autograd/node.h"
#include "core/base/flight_recorder.h"
#include "core/ops/ops.h"
#include "launch/training/step/global_batch.h"
#include "sharding/mesh.h"

namespace lockstep {
namespace {

using Row = std::vector<double>;

}  // namespace

std::vector<Row> rows_of_all_ranks(const Axis& ranks, const std::vector<Row>& mine, size_t width) {
  std::vector<double> values;
  for (const Row& row : mine) values.insert(values.end(), row.begin(), row.end());
  if (ranks.size > 1) {
    const auto count = static_cast<int64_t>(values.size());
    const auto counts = all_gather_values(ranks.comm(), count, "evaluation");
    int64_t total = 0;
    for (int64_t c : counts) total += c;
    Tensor all = Tensor::empty({total}, DType::kFloat64);
    ranks.comm().all_gather(all, Tensor::of(values, {count}), counts, "evaluation").wait();
    values = all.to_vector();
  }
  std::vector<Row> rows;
  for (auto at = values.begin(); values.end() - at >= static_cast<std::ptrdiff_t>(width);
       at += static_cast<std::ptrdiff_t>(width))
    rows.emplace_back(at, at + static_cast<std::ptrdiff_t>(width));
  std::sort(rows.begin(), rows.end());
  return rows;
}

namespace {

// The sums of all ranks' counts.
Confusion confusion_of_all_ranks(const Axis& ranks, const Confusion& mine) {
  std::vector<Row> rows{{-1, static_cast<double>(mine.classes), 0}};
  for (const auto& [pair, count] : mine.counts)
    rows.push_back({static_cast<double>(pair.first), static_cast<double>(pair.second), static_cast<double>(count)});
  Confusion out;
  for (const Row& r : rows_of_all_ranks(ranks, rows, 3)) {
    if (r[0] < 0) out.classes = std::max(out.classes, static_cast<int64_t>(r[1]));
    else out.counts[{static_cast<int64_t>(r[0]), static_cast<int64_t>(r[1])}] += static_cast<int64_t>(r[2]);
  }
  return out;
}

// What this rank measured of micro-batches.
class Sums {
 public:
  explicit Sums(const std::vector<Metric>& metrics)
      : metrics_(metrics), tables_(metrics.size()), counts_(metrics.size()) {
    for (const Metric& metric : metrics) {
      const auto same = [&](const Metric& earlier) { return same_function(earlier.count, metric.count); };
      counted_by_.push_back(static_cast<size_t>(std::find_if(metrics.begin(), metrics.end(), same) - metrics.begin()));
    }
  }

  // `at`: the first sample's index in the data.
  void add(int64_t at, double loss, double targets, const Tensor& output, const Batch& batch) {
    Row row{static_cast<double>(at), loss, targets};
    for (size_t i = 0; i < metrics_.size(); ++i) {
      const Metric& metric = metrics_[i];
      const MetricSum part = metric.sum ? metric.sum(output, batch) : MetricSum{};
      row.insert(row.end(), {metric.of_loss ? loss : part.sum, static_cast<double>(part.count)});
      if (metric.count && counts(i)) metric.count(output, batch, counts_[i]);
      if (metric.rows)
        for (const MetricRow& r : metric.rows(output, batch, at))
          tables_[i].push_back({r.score, static_cast<double>(r.sample), r.outcome, static_cast<double>(r.group)});
    }
    rows_.push_back(std::move(row));
  }

  EvalReport report(const Axis& ranks) const {
    EvalReport out;
    Row total(kBeforeMetrics + 2 * metrics_.size());
    for (const Row& row : rows_of_all_ranks(ranks, rows_, total.size()))  // in the order of the samples
      for (size_t i = 1; i < row.size(); ++i) total[i] += row[i];
    out.targets = total[2];
    out.loss = total[1] / out.targets;
    std::vector<Confusion> confusions(metrics_.size());
    for (size_t i = 0; i < metrics_.size(); ++i)
      if (metrics_[i].count && counts(i)) confusions[i] = confusion_of_all_ranks(ranks, counts_[i]);
    for (size_t i = 0; i < metrics_.size(); ++i)
      add_metric(ranks, i, confusions[counted_by_[i]], total[kBeforeMetrics + 2 * i], total[kBeforeMetrics + 2 * i + 1],
                 out);
    return out;
  }

 private:
  // A micro-batch's row: its first sample, summed loss, targets, and two values of each metric that is a quotient of
  // sums.
  static constexpr size_t kBeforeMetrics = 3;

  static bool same_function(const std::function<CountPredictions>& a, const std::function<CountPredictions>& b) {
    if (&a == &b) return true;
    CountPredictions* const* one = a.target<CountPredictions*>();
    CountPredictions* const* other = b.target<CountPredictions*>();
    return one && other && *one == *other;
  }
  bool counts(size_t i) const { return counted_by_[i] == i; }  // for itself, and for those behind it

  void add_metric(const Axis& ranks, size_t i, const Confusion& all, double sum, double count, EvalReport& out) const {
    const Metric& metric = metrics_[i];
    if (metric.count) {
      if (all.counts.empty()) return;
      for (auto& figure : metric.of_counts(all)) out.metrics.push_back(std::move(figure));
      if (out.warning.empty()) out.warning = one_class_warning(all);
      out.confusion = all;
    } else if (metric.rows) {
      std::vector<MetricRow> sorted;
      for (const Row& r : rows_of_all_ranks(ranks, tables_[i], 4))
        sorted.push_back({r[0], static_cast<int64_t>(r[1]), r[2], static_cast<int64_t>(r[3])});
      if (const auto value = sorted.empty() ? std::nullopt : metric.of_rows(sorted))
        out.metrics.emplace_back(metric.name, *value);
    } else if (count > 0) {
      const double value = sum / count * metric.scale;
      out.metrics.emplace_back(metric.name, metric.root ? std::sqrt(value) : value);
    }
  }

  const std::vector<Metric>& metrics_;
  std::vector<Row> rows_;
  std::vector<std::vector<Row>> tables_;  // score, sample, outcome, group
  std::vector<Confusion> counts_;
  std::vector<size_t> counted_by_;  // of each metric, the first that counts by the same function
};

// A micro-batch as metrics see it: with the numbers of its samples before they were rounded to "targets".
Batch as_measured(const Dataset& data, int64_t epoch, const Batch& batch, const std::vector<int64_t>& samples) {
  std::vector<double> numbers;
  for (const int64_t sample : samples)
    if (const auto number = data.target_number(epoch, sample)) numbers.push_back(*number);
  Batch out = batch;
  if (!numbers.empty() && numbers.size() == samples.size())
    out.add(std::string(kExactTargets), Tensor::of(numbers, {std::ssize(numbers)}));
  return out;
}

constexpr MicroSchedule kPassSchedule = MicroSchedule::kWaves;

}  // namespace

Batch as_computed(const Batch& batch, DType compute) {
  Batch out;
  for (auto& [name, tensor] : batch.tensors())
    out.add(name, is_floating(tensor.dtype()) && name != kTargets && name != kSampleWeights && name != kReference
                      ? cast(tensor, compute)
                      : tensor);
  return out;
}

void for_each_step(Task& task, DataParallel& parallel, const Dataset& data, const EvalOptions& options,
                   int64_t batch_global, const char* phase, const std::function<void(const StepBatch&)>& use) {
  const Axis& ranks = parallel.mesh().data();
  NoGrad no_grad;
  task.module().eval();
  LoaderOptions o;
  o.batch_micro = options.micro_batch;
  o.batch_global = batch_global;
  o.shuffle = false;
  o.one_epoch = true;
  o.rank = ranks.index;
  o.size = ranks.size;
  o.threads = options.loader_threads;
  o.schedule = kPassSchedule;
  Loader loader(data, o);
  while (!loader.done()) {
    FlightPhase in_phase(phase);
    use(loader.next());
  }
  task.module().train();
}

int64_t samples_of_pass(const DataParallel& parallel, const EvalOptions& options) {
  return options.micro_batch * parallel.mesh().data().size * 4;
}

void for_each_output(Task& task, DataParallel& parallel, const StepBatch& step, const EvalOptions& options,
                     const UseOutput& use) {
  const int size = parallel.mesh().data().size;
  for (int64_t first = 0; first < step.micro_count; first += size)
    parallel.forward_round(std::min<int64_t>(size, step.micro_count - first), [&] {
      const MicroBatch& m = step.mine[static_cast<size_t>(first / size)];
      WithRandom random({options.seed, options.step, m.samples});
      const Batch batch = as_computed(m.batch, options.compute);
      use(task.output(batch), batch, m, step.position + m.index * options.micro_batch);
    });
}

EvalReport evaluate(Task& task, DataParallel& parallel, const Dataset& data, const EvalOptions& options) {
  const Axis& ranks = parallel.mesh().data();
  auto* of_all = dynamic_cast<GlobalBatchTask*>(&task);
  Sums sums(options.metrics);
  const auto add_global_batch = [&](const StepBatch& step) {
    const Tensor outputs = outputs_of_all(parallel, step, options.micro_batch, kPassSchedule, [&](const MicroBatch& m) {
      WithRandom random({options.seed, options.step, m.samples});
      return task.output(as_computed(m.batch, options.compute));
    });
    if (ranks.index == 0)
      sums.add(step.position, sum(of_all->losses(outputs)).item(), static_cast<double>(step.samples), outputs, {});
  };
  const auto add_micro_batches = [&](const StepBatch& step) {
    for_each_output(task, parallel, step, options,
                    [&](const Tensor& output, const Batch& batch, const MicroBatch& m, int64_t first) {
                      sums.add(first, task.loss_of(output, batch).item(), m.targets, output,
                               as_measured(data, step.epoch, batch, *m.samples));
                    });
  };
  for_each_step(task, parallel, data, options, of_all ? options.global_batch : samples_of_pass(parallel, options),
                "evaluate", [&](const StepBatch& step) { of_all ? add_global_batch(step) : add_micro_batches(step); });
  return sums.report(ranks);
}

}  // namespace lockstep
