#include "launch/training/evaluate.h"

#include <algorithm>
#include <array>

#include "core/autograd/node.h"
#include "core/ops/ops.h"

namespace lockstep {
namespace {

using Row = std::array<double, 4>;  // of a micro-batch: its first sample, summed loss, targets, correct ones

std::vector<Row> rows_of_all_ranks(Communicator& comm, const std::vector<Row>& mine) {
  std::vector<double> values;
  for (const Row& row : mine) values.insert(values.end(), row.begin(), row.end());
  if (comm.size() > 1) {
    const auto count = static_cast<int64_t>(values.size());
    const auto counts = all_gather_values(comm, count, "evaluation");
    int64_t total = 0;
    for (int64_t c : counts) total += c;
    Tensor all = Tensor::empty({total}, DType::kFloat64);
    comm.all_gather(all, Tensor::of(values, {count}), counts, "evaluation").wait();
    values = all.to_vector();
  }
  std::vector<Row> rows;
  for (size_t i = 0; i + 4 <= values.size(); i += 4)
    rows.push_back({values[i], values[i + 1], values[i + 2], values[i + 3]});
  std::sort(rows.begin(), rows.end());  // by first sample: sums are formed in one order
  return rows;
}

}  // namespace

Tensor input_of(const MicroBatch& m, DType compute) {
  return is_floating(m.input.dtype()) ? cast(m.input, compute) : m.input;
}

EvalReport evaluate(Model& model, DataParallel& parallel, Communicator& comm, const Dataset& data,
                    const EvalOptions& options) {
  NoGrad no_grad;
  model.eval();
  LoaderOptions o;
  o.batch_micro = options.micro_batch;
  o.batch_global = options.micro_batch * comm.size() * 4;
  o.shuffle = false;
  o.one_epoch = true;
  o.rank = comm.rank();
  o.size = comm.size();
  o.threads = options.loader_threads;
  o.schedule = MicroSchedule::kWaves;
  Loader loader(data, o);
  std::vector<Row> mine;
  while (!loader.done()) {
    const StepBatch batch = loader.next();
    for (int64_t first = 0; first < batch.micro_count; first += comm.size())
      parallel.forward_round(std::min<int64_t>(comm.size(), batch.micro_count - first), [&] {
        const MicroBatch& m = batch.mine[static_cast<size_t>(first / comm.size())];
        WithRandom random({options.seed, options.step, m.samples});
        const Tensor output = model(input_of(m, options.compute));
        mine.push_back({static_cast<double>(batch.position + m.index * o.batch_micro),
                        model.loss(output, m.target).item(), static_cast<double>(m.targets),
                        static_cast<double>(count_correct(output, m.target))});
      });
  }
  model.train();
  EvalReport report;
  double loss = 0, correct = 0;
  bool classifier = true;
  for (auto& [first, sum, targets, right] : rows_of_all_ranks(comm, mine)) {
    loss += sum;
    report.targets += static_cast<int64_t>(targets);
    correct += right;
    classifier = classifier && right >= 0;
  }
  report.loss = loss / static_cast<double>(report.targets);
  if (classifier) report.accuracy = correct / static_cast<double>(report.targets);
  return report;
}

}  // namespace lockstep
