#include "sharding/step_reducer.h"

#include <algorithm>

#include "core/base/trace.h"
#include "core/kernels/kernels.h"
#include "core/tensor/raw_ops.h"

namespace lockstep {
namespace {

int64_t owned_nodes(const ParameterBucket& bucket, int rank) {
  int64_t count = 0;
  for (const BucketLayout::Overlap& o : bucket.layout().overlaps(bucket.part_of(rank)))
    count += static_cast<int64_t>(
        maximal_nodes(o.chunks, bucket.layout().members()[static_cast<size_t>(o.member)].chunks()).size());
  return count;
}

// As the kernel joins them.
constexpr int kStop = 1, kSave = 2, kTrace = 4;
int bits_of(const StepRequests& r) { return (r.stop ? kStop : 0) | (r.save ? kSave : 0) | (r.trace ? kTrace : 0); }
constexpr int64_t kFirstLoss = 2;  // behind a rank's requests and its time
StepRequests requests_of(int bits) { return {(bits & kStop) != 0, (bits & kSave) != 0, (bits & kTrace) != 0}; }

}  // namespace

// Where the values that all ranks bring lie, once they are gathered in the order of the ranks. Of each rank: its
// requests, its time, loss and targets of each of its micro-batches, its nodes of the norms.
struct StepReducer::Places {
  std::vector<int32_t> losses;          // by micro-batch
  std::vector<int32_t> requests, busy;  // by rank
  std::vector<int64_t> norms;           // by rank: of its first node
};

StepReducer::StepReducer(const Buckets& buckets, const Mesh& mesh, MicroSchedule schedule, int64_t micro_count)
    : buckets_(buckets), mesh_(mesh), micro_count_(micro_count) {
  const Places places = places_of(schedule);
  std::vector<NormPlan> norms = norms_of(places);
  std::sort(norms.begin(), norms.end(), [](const NormPlan& a, const NormPlan& b) { return a.name < b.name; });
  // As StepOutcomeArgs has it: losses, requests, the first node of each tensor and the end, nodes.
  std::vector<int32_t> plan = places.losses, nodes;
  plan.insert(plan.end(), places.requests.begin(), places.requests.end());
  std::vector<std::string> names;
  for (const NormPlan& n : norms) {
    plan.push_back(narrow<int32_t>(static_cast<int64_t>(nodes.size()) / 2));
    nodes.insert(nodes.end(), n.nodes.begin(), n.nodes.end());
    names.push_back(n.name);
  }
  plan.push_back(narrow<int32_t>(static_cast<int64_t>(nodes.size()) / 2));
  plan.insert(plan.end(), nodes.begin(), nodes.end());
  plan_ = Tensor::of(plan, {static_cast<int64_t>(plan.size())});
  names_ = std::make_shared<const std::vector<std::string>>(std::move(names));
  busy_at_ = std::make_shared<const std::vector<int32_t>>(places.busy);
}

StepReducer::Places StepReducer::places_of(MicroSchedule schedule) {
  const int size = mesh_.data().size;
  Places out;
  out.losses.resize(static_cast<size_t>(micro_count_));
  int64_t begin = 0;
  for (int r = 0; r < size; ++r) {
    int64_t next = begin;
    out.requests.push_back(narrow<int32_t>(next++));
    out.busy.push_back(narrow<int32_t>(next++));
    for (int64_t i : micro_batches_of(schedule, micro_count_, r, size)) {
      out.losses[static_cast<size_t>(i)] = narrow<int32_t>(next);
      next += 2;
    }
    out.norms.push_back(next);
    for (auto& b : buckets_) next += owned_nodes(b->parameters(), r);
    counts_.push_back(next - begin);
    begin = next;
  }
  return out;
}

// Each tensor's nodes in the order in which its tree adds them.
std::vector<StepReducer::NormPlan> StepReducer::norms_of(const Places& places) const {
  std::vector<int64_t> next = places.norms;
  std::vector<NormPlan> out;
  for (auto& b : buckets_) {
    const BucketLayout& layout = b->parameters().layout();
    std::vector<TreeStack<char>> stacks;
    const size_t first = out.size();
    for (auto& p : layout.members()) {
      stacks.emplace_back(p.chunks());
      out.push_back({p.name, {}});
    }
    const auto add_nodes_of = [&](int rank) {
      for (auto& o : layout.overlaps(b->parameters().part_of(rank))) {
        const auto p = static_cast<size_t>(o.member);
        for (const IndexRange& node : maximal_nodes(o.chunks, layout.members()[p].chunks())) {
          int32_t joins = 0;
          stacks[p].push(node, 0, [&](char, char) { ++joins; });
          std::vector<int32_t>& nodes = out[first + p].nodes;
          nodes.push_back(narrow<int32_t>(next[static_cast<size_t>(rank)]++));
          nodes.push_back(joins);
          check(stacks[p].nodes().size() < StepOutcomeArgs::kMostOpen, "a norm's tree with too many open subtrees");
        }
      }
    };
    for (int s = 0; s < mesh_.shard().size; ++s)  // in the order of the flat buffer
      for (int replica = 0; replica < mesh_.replica().size; ++replica) add_nodes_of(mesh_.rank_of(replica, s));
  }
  return out;
}

void StepReducer::set_inputs(const StepInputs& inputs) {
  std::vector<double> values{static_cast<double>(bits_of(inputs.requests)), inputs.requests.busy_ms};
  for (double t : inputs.targets) {
    values.push_back(0);  // the loss's place
    values.push_back(t);
  }
  const Tensor brought = Tensor::of(values, {static_cast<int64_t>(values.size())});
  if (known_) raw::copy(known_, brought);  // always in one place, where a graph finds it
  else known_ = brought;
}

PendingStep StepReducer::run(const std::vector<Tensor>& losses, const Scales& scales) {
  trace_mark();
  const TraceOp op("step_outcome");
  const Axis& data = mesh_.data();
  const auto mine_count = static_cast<int64_t>(losses.size());
  const Tensor mine = Tensor::empty({counts_[static_cast<size_t>(data.index)]}, DType::kFloat64);
  int64_t filled = known_.numel();
  check(filled == kFirstLoss + 2 * mine_count, "set_inputs: ", filled, " values for ", mine_count, " micro-batches");
  raw::copy(mine.slice(0, 0, filled), known_);
  for (size_t i = 0; i < losses.size(); ++i) {
    const auto at = kFirstLoss + 2 * static_cast<int64_t>(i);
    raw::copy(mine.slice(0, at, at + 1), losses[i].flatten());
  }
  for (auto& b : buckets_) {
    const int64_t count = b->norm_nodes().numel();
    if (count > 0) raw::copy(mine.slice(0, filled, filled + count), b->norm_nodes());
    filled += count;
  }
  check(filled == mine.numel(), "the step's small values: ", filled, " of ", mine.numel());
  Tensor gathered = mine;
  if (data.size > 1) {
    int64_t total = 0;
    for (int64_t c : counts_) total += c;
    gathered = Tensor::empty({total}, DType::kFloat64);
    data.comm().all_gather(gathered, mine, counts_, "losses and norms").wait();
  }

  // Every rank folds the same values in the same order.
  PendingStep pending;
  StepOutcomeArgs a;
  a.micro_batches = micro_count_;
  a.ranks = data.size;
  a.tensors = static_cast<int64_t>(names_->size());
  a.values = static_cast<const double*>(gathered.read());
  a.losses = static_cast<const int32_t*>(plan_.read());
  a.requests = a.losses + a.micro_batches;
  a.first = a.requests + a.ranks;
  a.nodes = a.first + a.tensors + 1;
  a.nominal = scales.nominal;
  a.loss_scale = scales.loss_scale;
  a.clip_norm = scales.clip_norm;
  pending.outcome_ = Tensor::empty({StepOutcomeArgs::kCount}, DType::kFloat64);
  pending.verdict_ = Tensor::empty({UpdateControlArgs::kVerdict});
  a.out = static_cast<double*>(pending.outcome_.write());
  a.verdict = static_cast<float*>(pending.verdict_.write());
  raw::launch([](Parallel& p, const StepOutcomeArgs& args) { kernels(p).step_outcome(p, args); }, a);
  pending.names_ = names_;
  if (data.size > 1) pending.gathered_ = gathered, pending.busy_at_ = busy_at_;
  if (!context().recording) pending.bring_to_host();
  return pending;
}

void PendingStep::bring_to_host() {
  on_host_ = raw::to_host(outcome_);
  if (gathered_) gathered_on_host_ = raw::to_host(gathered_);
  there_ = current_stream().record();
}

PendingStep PendingStep::relaunched() const {
  PendingStep again = *this;
  again.exposed_ms_ = 0;
  again.bring_to_host();
  return again;
}

StepResult PendingStep::wait(std::optional<Seconds> deadline) const {
  if (!there_.synchronize(deadline))
    throw Error(ExitCode::kRankLost, str("not done within ", deadline->count(),
                                         " s: a rank is missing from one of its exchanges, or hangs in one"));
  StepResult result;
  result.exposed_ms = exposed_ms_;
  if (!on_host_.device().has_bytes()) {  // nothing was computed
    result.grad_scale = 1;
    result.finite = true;
    return result;
  }
  using A = StepOutcomeArgs;
  const auto* out = static_cast<const double*>(on_host_.read());
  result.loss = out[A::kLoss];
  result.grad_norm = out[A::kGradNorm];
  result.targets = out[A::kTargets];
  result.grad_scale = out[A::kGradScale];
  result.requests = requests_of(static_cast<int>(out[A::kRequests]));
  if (gathered_on_host_) {
    const auto* all = static_cast<const double*>(gathered_on_host_.read());
    for (const int32_t at : *busy_at_) result.busy_ms.push_back(all[at]);
  }
  const auto problem = static_cast<int64_t>(out[A::kProblem]);
  result.finite = problem == 0;
  if (problem == A::kLossProblem) result.nonfinite = "loss";
  else if (problem == A::kNormProblem) result.nonfinite = "their sum";
  else if (!result.finite) result.nonfinite = (*names_)[static_cast<size_t>(problem - A::kFirstTensor)];
  return result;
}

}  // namespace lockstep
