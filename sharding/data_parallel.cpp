#include "sharding/data_parallel.h"

#include <cmath>

#include "core/autograd/node.h"
#include "core/kernels/kernels.h"

namespace lockstep {

std::vector<Field> fields(DataParallelOptions& o) {
  return {enum_field(
              "reduce", o.reduce, {{"exact", ReduceMode::kExact}, {"fast", ReduceMode::kFast}},
              "how gradients are added across ranks: exact gives the same bits at every number of ranks; fast uses the "
              "communication library's own order"),
          field("comm.bucket", o.bucket_mb,
                "gradients are exchanged in groups of at least this size, while backward goes on")
              .with_unit("MB")
              .with_range(0, 100000)
              .without_effect_on_math()};
}

DataParallel::DataParallel(Module& model, Communicator& comm, DataParallelOptions options)
    : model_(model), comm_(comm), options_(std::move(options)) {
  model_.name_tree();
  // Groups follow the order of registration and never split a module's neighbours needlessly; the sweep ends with the
  // first.
  std::vector<NamedParameter> trainable, frozen;
  for (NamedParameter& p : model_.parameters())
    (options_.frozen && options_.frozen(p.name) ? frozen : trainable).push_back(p);
  require(!trainable.empty(), ExitCode::kConfig, "the model has no trainable parameter");
  const double least = options_.bucket_mb * 1e6 / sizeof(float);
  std::vector<std::vector<NamedParameter>> parts(1);
  double size = 0;
  for (auto it = trainable.rbegin(); it != trainable.rend(); ++it) {
    if (size >= least && !parts.back().empty()) {
      parts.emplace_back();
      size = 0;
    }
    parts.back().insert(parts.back().begin(), *it);
    size += static_cast<double>(it->parameter->value.numel());
  }
  for (auto& part : parts) {
    std::string name = part.size() == 1 ? part[0].name : cat(part.front().name, " .. ", part.back().name);
    groups_.push_back(std::make_unique<ParamGroup>(std::move(name), std::move(part), options_.seed, false));
  }
  for (size_t k = 0; k < groups_.size(); ++k) groups_[k]->set_on_ready([this, k] { group_ready(k); });
  if (!frozen.empty())
    groups_.push_back(std::make_unique<ParamGroup>("frozen", std::move(frozen), options_.seed, true));
  for (auto& g : groups_)
    if (!g->frozen())
      for (const Layout::Piece& p : g->layout().pieces()) {
        Slot s;
        s.name = p.name;
        s.global_shape = p.shape;
        s.master = g->flat_parameters().slice(0, p.offset, p.offset + p.numel());
        slots_.push_back(std::move(s));
      }
  std::vector<NamedParameter> all = model_.parameters();
  for (Slot& s : slots_)
    for (auto& p : all)
      if (p.name == s.name) s.decay = p.parameter->decay;
}

DataParallel::~DataParallel() {
  // The model may outlive us: its parameters must not call back.
  for (auto& p : model_.parameters())
    if (p.parameter->value.record()) p.parameter->value.record()->on_grad = nullptr;
}

double DataParallel::since_begin() const { return Seconds(std::chrono::steady_clock::now() - begun_).count(); }

void DataParallel::begin_step(int64_t micro_count, int64_t nominal_targets) {
  check(micro_count > 0 && nominal_targets > 0, "begin_step: ", micro_count, " micro-batches, ", nominal_targets,
        " nominal targets");
  begun_ = std::chrono::steady_clock::now();
  micro_count_ = micro_count;
  nominal_ = nominal_targets;
  ranges_.clear();
  for (int r = 0; r < comm_.size(); ++r) ranges_.push_back(split_evenly(micro_count, comm_.size(), r));
  for (auto& g : groups_)
    if (!g->frozen()) g->begin_step(micro_count);
  ready_.assign(groups_.size(), false);
  next_launch_ = 0;
  done_ = 0;
  unused_ = 0;
  exposed_ms_ = 0;
  backward_end_s_ = 0;
  losses_.clear();
  launches_.clear();
}

std::vector<int64_t> DataParallel::my_micro_batches() const {
  return micro_batches_of(MicroSchedule::kLocal, micro_count_, comm_.rank(), comm_.size());
}

void DataParallel::backward(int64_t index, const Tensor& loss, int64_t targets) {
  const Range mine = ranges_[static_cast<size_t>(comm_.rank())];
  check(index == mine.begin + done_ && index < mine.end, "backward of micro-batch ", index, ": this rank runs [",
        mine.begin, ", ", mine.end, ") in order and is at ", mine.begin + done_);
  for (auto& g : groups_)
    if (!g->frozen()) g->begin_micro_batch(index);
  ++done_;
  lockstep::backward(loss, 1.0 / static_cast<double>(nominal_));
  backward_end_s_ = since_begin();
  unused_ = 0;
  for (auto& g : groups_)
    if (!g->frozen()) unused_ += g->end_micro_batch();
  losses_.emplace_back(loss.detach(), targets);
}

void DataParallel::group_ready(size_t k) {
  if (done_ < ranges_[static_cast<size_t>(comm_.rank())].size()) return;  // more micro-batches to come
  ready_[k] = true;
  launch_ready();
}

// In fixed order on every rank, so that collectives always match.
void DataParallel::launch_ready() {
  while (next_launch_ < groups_.size() && !groups_[next_launch_]->frozen() && ready_[next_launch_]) {
    launches_.push_back({groups_[next_launch_]->name(), since_begin()});
    groups_[next_launch_++]->launch(comm_, options_.reduce, ranges_);
  }
}

std::vector<double> DataParallel::norm_nodes(const ParamGroup& group) const {
  const Layout& layout = group.layout();
  const Range slice = layout.slice(comm_.rank(), comm_.size());
  const int64_t chunks = slice.size() / Layout::kUnit;
  std::vector<double> sums(static_cast<size_t>(chunks)), out;
  if (chunks == 0) return out;
  const float* values = static_cast<const float*>(group.slice_gradient().read());
  current_stream().enqueue([&](Parallel& p) { kernels().chunk_norms(p, values, slice.size(), sums.data()); });
  current_stream().synchronize();
  for (const Layout::Overlap& o : layout.overlaps(slice)) {
    const Layout::Piece& piece = layout.pieces()[static_cast<size_t>(o.piece)];
    // Chunk c of the piece is sums[first + c].
    const double* first = sums.data() + (piece.offset - slice.begin) / Layout::kUnit;
    for (const Range& node : maximal_nodes(o.chunks, piece.chunks())) out.push_back(tree_sum(first, node));
  }
  return out;
}

StepResult DataParallel::finish_step(double clip_norm, bool stop) {
  check(done_ == ranges_[static_cast<size_t>(comm_.rank())].size(), "finish_step after ", done_, " of this rank's ",
        ranges_[static_cast<size_t>(comm_.rank())].size(), " micro-batches");
  for (size_t k = 0; k < groups_.size(); ++k) ready_[k] = true;  // a rank without a micro-batch takes part without data
  launch_ready();
  const int size = comm_.size();
  auto timed = [&](auto&& f) {
    const double before = since_begin();
    f();
    exposed_ms_ += (since_begin() - before) * 1e3;
  };

  // Small values travel together: losses and counts of my micro-batches, then the norm's tree nodes.
  std::vector<double> mine{stop ? 1.0 : 0.0};
  for (const auto& [loss, targets] : losses_) {
    mine.push_back(loss.item());
    mine.push_back(static_cast<double>(targets));
  }
  std::vector<Work> gathers;
  for (auto& g : groups_) {
    if (g->frozen()) continue;
    timed([&] { g->merge(comm_, options_.reduce, ranges_); });
    for (double v : norm_nodes(*g)) mine.push_back(v);
    gathers.push_back(g->gather(comm_));
  }

  std::vector<int64_t> counts;
  std::vector<std::vector<Layout::Overlap>> overlaps;  // by rank and group
  for (int r = 0; r < size; ++r) {
    int64_t count = 1 + 2 * ranges_[static_cast<size_t>(r)].size();
    for (auto& g : groups_) {
      if (g->frozen()) continue;
      for (auto& o : g->layout().overlaps(g->layout().slice(r, size)))
        count += static_cast<int64_t>(
            maximal_nodes(o.chunks, g->layout().pieces()[static_cast<size_t>(o.piece)].chunks()).size());
    }
    counts.push_back(count);
  }
  std::vector<double> all = mine;
  if (size > 1) {
    int64_t total = 0;
    for (int64_t c : counts) total += c;
    Tensor in = Tensor::of(mine, {static_cast<int64_t>(mine.size())}), out = Tensor::empty({total}, DType::kFloat64);
    timed([&] {
      comm_.all_gather(out, in, counts, "losses and norms").wait();
      all = out.to_vector();
      for (Work& w : gathers) w.wait();
    });
  }

  // Every rank folds the same values in the same order.
  StepResult result;
  double loss_sum = 0, norm_squared = 0;
  std::vector<std::pair<std::string, double>> by_name;
  std::vector<std::vector<TreeStack<double>>> stacks;
  for (auto& g : groups_) {
    stacks.emplace_back();
    if (!g->frozen())
      for (auto& p : g->layout().pieces()) stacks.back().emplace_back(p.chunks());
  }
  size_t at = 0;
  for (int r = 0; r < size; ++r) {
    const bool asked = all[at++] != 0;
    result.stop = result.stop || asked;
    for (int64_t i = 0; i < ranges_[static_cast<size_t>(r)].size(); ++i) {
      loss_sum += all[at++];
      result.targets += static_cast<int64_t>(all[at++]);
    }
    for (size_t k = 0; k < groups_.size(); ++k) {
      if (groups_[k]->frozen()) continue;
      const Layout& layout = groups_[k]->layout();
      for (auto& o : layout.overlaps(layout.slice(r, size)))
        for (const Range& node : maximal_nodes(o.chunks, layout.pieces()[static_cast<size_t>(o.piece)].chunks()))
          stacks[k][static_cast<size_t>(o.piece)].push(node, all[at++],
                                                       [](double& into, double from) { into += from; });
    }
  }
  for (size_t k = 0; k < groups_.size(); ++k)
    for (size_t p = 0; p < stacks[k].size(); ++p)
      by_name.emplace_back(groups_[k]->layout().pieces()[p].name, stacks[k][p].nodes()[0].second);
  std::sort(by_name.begin(), by_name.end());
  for (auto& [name, sum] : by_name) {
    norm_squared += sum;
    if (!std::isfinite(sum) && result.nonfinite.empty()) result.nonfinite = name;
  }

  const double correction =
      result.targets > 0 ? static_cast<double>(nominal_) / static_cast<double>(result.targets) : 0;
  result.loss = result.targets > 0 ? loss_sum / static_cast<double>(result.targets) : 0;
  result.grad_norm = std::sqrt(norm_squared) * correction;
  result.finite = std::isfinite(result.grad_norm) && std::isfinite(result.loss);
  if (!result.finite && result.nonfinite.empty()) result.nonfinite = std::isfinite(result.loss) ? "their sum" : "loss";
  result.grad_scale = correction;
  if (clip_norm > 0 && result.grad_norm > clip_norm) result.grad_scale *= clip_norm / result.grad_norm;
  result.exposed_ms = exposed_ms_;

  size_t s = 0;
  for (auto& g : groups_) {
    if (g->frozen()) continue;
    for (const Layout::Piece& p : g->layout().pieces())
      slots_[s++].gradient = g->flat_gradients().slice(0, p.offset, p.offset + p.numel());
  }
  return result;
}

const std::vector<Slot>& DataParallel::slots() { return slots_; }

std::vector<StateEntry> DataParallel::state() const {
  std::vector<StateEntry> out;
  for (auto& g : groups_)
    for (const Layout::Piece& p : g->layout().pieces())
      out.push_back(
          {"parameters/" + p.name, p.shape, 0, g->flat_parameters().slice(0, p.offset, p.offset + p.numel())});
  return out;
}

int64_t DataParallel::parameter_count() const {
  int64_t n = 0;
  for (auto& g : groups_)
    for (const Layout::Piece& p : g->layout().pieces()) n += p.numel();
  return n;
}

}  // namespace lockstep
