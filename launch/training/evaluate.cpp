#include "launch/training/evaluate.h"

#include <algorithm>
#include <cmath>

#include "core/autograd/node.h"
#include "core/base/flight_recorder.h"
#include "core/ops/ops.h"
#include "launch/training/build_model.h"

namespace lockstep {
namespace {

using Row = std::vector<double>;

// The rows of all ranks, sorted: the same on every rank, whoever brought which.
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

// The sums of all ranks' counts.
ClassCounts counts_of_all_ranks(const Axis& ranks, const ClassCounts& mine) {
  std::vector<Row> rows;
  for (size_t i = 0; i < mine.size(); ++i)
    rows.push_back({static_cast<double>(i), static_cast<double>(mine[i].labels), static_cast<double>(mine[i].right),
                    static_cast<double>(mine[i].predicted)});
  ClassCounts out;
  for (const Row& r : rows_of_all_ranks(ranks, rows, 4)) {
    out.resize(static_cast<size_t>(r[0]) + 1);  // the rows are sorted by class
    out.back().labels += static_cast<int64_t>(r[1]);
    out.back().right += static_cast<int64_t>(r[2]);
    out.back().predicted += static_cast<int64_t>(r[3]);
  }
  return out;
}

// A micro-batch's row: its first sample, summed loss, targets, and two values of each metric that is a quotient of
// sums.
constexpr size_t kBeforeMetrics = 3;

}  // namespace

Batch as_computed(const Batch& batch, DType compute) {
  Batch out;
  for (auto& [name, tensor] : batch.tensors())
    out.add(name, is_floating(tensor.dtype()) && name != kTargets ? cast(tensor, compute) : tensor);
  return out;
}

std::vector<Metric> metrics_of(std::vector<Metric> metrics, const DataSpec& spec) {
  if (!task_of(spec).regression) return metrics;
  std::erase_if(metrics, [](const Metric& metric) { return metric.of_labels; });
  metrics.push_back(rmse(spec.target_std));
  return metrics;
}

EvalReport evaluate(Model& model, DataParallel& parallel, const Dataset& data, const EvalOptions& options) {
  const Axis& ranks = parallel.mesh().data();
  NoGrad no_grad;
  model.eval();
  LoaderOptions o;
  o.batch_micro = options.micro_batch;
  o.batch_global = options.micro_batch * ranks.size * 4;
  o.shuffle = false;
  o.one_epoch = true;
  o.rank = ranks.index;
  o.size = ranks.size;
  o.threads = options.loader_threads;
  o.schedule = MicroSchedule::kWaves;
  Loader loader(data, o);
  std::vector<Row> sums;
  std::vector<std::vector<Row>> tables(options.metrics.size());  // score, sample, outcome
  std::vector<ClassCounts> counts(options.metrics.size());
  while (!loader.done()) {
    FlightPhase phase("evaluate");
    const StepBatch step = loader.next();
    for (int64_t first = 0; first < step.micro_count; first += ranks.size)
      parallel.forward_round(std::min<int64_t>(ranks.size, step.micro_count - first), [&] {
        const MicroBatch& m = step.mine[static_cast<size_t>(first / ranks.size)];
        WithRandom random({options.seed, options.step, m.samples});
        const Batch batch = as_computed(m.batch, options.compute);
        const Tensor output = model.output_of(batch);
        const int64_t at = step.position + m.index * o.batch_micro;
        Row row{static_cast<double>(at), model.batch_loss(output, batch).item(), static_cast<double>(m.targets)};
        for (size_t i = 0; i < options.metrics.size(); ++i) {
          const Metric& metric = options.metrics[i];
          const MetricSum part = metric.sum ? metric.sum(output, batch) : MetricSum{};
          row.insert(row.end(), {part.sum, static_cast<double>(part.count)});
          if (metric.count) metric.count(output, batch, counts[i]);
          if (metric.rows)
            for (const MetricRow& r : metric.rows(output, batch, at))
              tables[i].push_back({r.score, static_cast<double>(r.sample), r.outcome});
        }
        sums.push_back(std::move(row));
      });
  }
  model.train();

  EvalReport report;
  Row total(kBeforeMetrics + 2 * options.metrics.size());
  for (const Row& row : rows_of_all_ranks(ranks, sums, total.size()))  // in the order of the samples
    for (size_t i = 1; i < row.size(); ++i) total[i] += row[i];
  report.targets = static_cast<int64_t>(total[2]);
  report.loss = total[1] / static_cast<double>(report.targets);
  for (size_t i = 0; i < options.metrics.size(); ++i) {
    const Metric& metric = options.metrics[i];
    const double sum = total[kBeforeMetrics + 2 * i], count = total[kBeforeMetrics + 2 * i + 1];
    if (metric.count) {
      const ClassCounts all = counts_of_all_ranks(ranks, counts[i]);
      if (const auto value = metric.of_counts(all)) report.metrics.emplace_back(metric.name, *value);
      if (report.warning.empty()) report.warning = one_class_warning(all);
    } else if (metric.rows) {
      std::vector<MetricRow> sorted;
      for (const Row& r : rows_of_all_ranks(ranks, tables[i], 3))
        sorted.push_back({r[0], static_cast<int64_t>(r[1]), r[2]});
      report.metrics.emplace_back(metric.name, metric.of_rows(sorted));
    } else if (count > 0) {
      report.metrics.emplace_back(metric.name, metric.root ? std::sqrt(sum / count) : sum / count);
    }
  }
  return report;
}

}  // namespace lockstep
