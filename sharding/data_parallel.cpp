#include "sharding/data_parallel.h"

#include <algorithm>
#include <exception>

#include "core/autograd/node.h"

namespace lockstep {
namespace {

// Exchanges under way at a time where gradients leave at once: the bound on their memory.
constexpr size_t kInFlight = 2;
// Where another rank's micro-batch leaves a block out, its part may come only when that rank's backward ends, which may
// wait for this one: memory then gives way.
constexpr Seconds kPatience{1};

}  // namespace

DataParallel::DataParallel(Module& model, Communicator& comm, DataParallelOptions options)
    : model_(model), comm_(comm), options_(std::move(options)), exceptions_(std::uncaught_exceptions()) {
  model_.name_tree();
  const auto all = static_cast<int64_t>(comm.size());
  const int64_t group = options_.level == ShardLevel::kNone ? 1 : options_.group > 0 ? options_.group : all;
  mesh_ = std::make_unique<Mesh>(comm, static_cast<int>(std::min(group, int64_t(1) << 30)));
  // A GPU's queue waits for NCCL's; a thread, for ranks that exchange by way of the host.
  if (comm.size() > 1)
    merging_ = std::make_unique<Stream>(current_device(),
                                        comm.backend() == "nccl" ? Stream::Mode::kInline : Stream::Mode::kThread);
  make_groups();
  for (size_t k = 0; k < groups_.size(); ++k) {
    groups_[k]->set_callbacks([this] { bound_memory(); }, [this, k] { group_ready(k); });
    for (Slot& s : groups_[k]->slots()) slots_.push_back(std::move(s));
  }
}

// Blocks are the root's children, whose parameters nobody else reads; what is left belongs to the root. Small blocks
// join their neighbours.
void DataParallel::make_groups() {
  struct Block {
    std::vector<Module*> modules;
    std::vector<NamedParameter> trainable, frozen;
    double bytes = 0;
  };
  auto frozen = [&](const std::string& name) { return options_.frozen && options_.frozen(name); };
  std::vector<NamedParameter> all = model_.parameters();
  require(std::any_of(all.begin(), all.end(), [&](auto& p) { return !frozen(p.name); }), ExitCode::kConfig,
          "the model has no trainable parameter");
  Block root;
  std::vector<Block> blocks;
  const double least = options_.bucket_mb * 1e6;
  size_t taken = 0;
  auto take = [&](Block& into, size_t count) {
    for (; count > 0; --count, ++taken) {
      (frozen(all[taken].name) ? into.frozen : into.trainable).push_back(all[taken]);
      into.bytes += static_cast<double>(all[taken].parameter->value.numel()) * sizeof(float);
    }
  };
  size_t of_children = 0;
  for (auto& [name, child] : model_.children()) of_children += child->parameters().size();
  take(root, all.size() - of_children);
  for (auto& [name, child] : model_.children()) {
    const size_t count = child->parameters().size();
    if (count == 0) continue;
    if (!child->self_contained()) {
      take(root, count);
      continue;
    }
    if (blocks.empty() || blocks.back().bytes >= least) blocks.emplace_back();
    blocks.back().modules.push_back(child.get());
    take(blocks.back(), count);
  }
  if (blocks.size() > 1 && blocks.back().bytes < least) {  // the last is small: back to its neighbour
    Block last = std::move(blocks.back());
    blocks.pop_back();
    Block& into = blocks.back();
    into.modules.insert(into.modules.end(), last.modules.begin(), last.modules.end());
    into.trainable.insert(into.trainable.end(), last.trainable.begin(), last.trainable.end());
    into.frozen.insert(into.frozen.end(), last.frozen.begin(), last.frozen.end());
  }

  auto made = [&](std::vector<NamedParameter> members, bool is_frozen) {
    std::string name = members.size() == 1 ? members[0].name : cat(members.front().name, " .. ", members.back().name);
    return std::make_unique<ParamGroup>(std::move(name), std::move(members), *mesh_, options_, is_frozen);
  };
  auto place = [&](Block& block) {
    GatherSchedule::Block out;
    if (!block.trainable.empty()) {
      groups_.insert(groups_.begin(), made(std::move(block.trainable), false));
      out.push_back(groups_.front().get());
    }
    if (!block.frozen.empty()) {
      frozen_.push_back(made(std::move(block.frozen), true));
      out.push_back(frozen_.back().get());
    }
    return out;
  };
  const GatherSchedule::Block root_groups = place(root);
  std::vector<GatherSchedule::Block> in_order;
  for (Block& b : blocks) in_order.push_back(place(b));
  for (auto& block : in_order) {
    of_block_.emplace_back();
    for (size_t k = 0; k < groups_.size(); ++k)
      if (std::find(block.begin(), block.end(), groups_[k].get()) != block.end()) of_block_.back().push_back(k);
  }
  gathers_ = std::make_unique<GatherSchedule>(*mesh_, options_, root_groups, std::move(in_order));
  gathers_->set_on_left([this](size_t block) { block_left(block); });
  if (mesh_->shards() == 1) return;  // everything is always here
  for (size_t b = 0; b < blocks.size(); ++b) hook(b, blocks[b].modules);
  model_.set_hooks({[this] { gathers_->enter_root(); }, {}, {}});
  hooked_.push_back(&model_);
}

void DataParallel::hook(size_t block, const std::vector<Module*>& modules) {
  for (Module* m : modules) {
    ModuleHooks hooks;
    hooks.before_forward = [this, block] { gathers_->enter(block, GatherSchedule::Pass::kForward); };
    if (gathers_->streams())
      hooks.before_backward = [this, block] { gathers_->enter(block, GatherSchedule::Pass::kBackward); };
    m->set_hooks(std::move(hooks));
    hooked_.push_back(m);
  }
}

DataParallel::~DataParallel() {
  // Collectives under way need ranks that will not come.
  if (std::uncaught_exceptions() > exceptions_) comm_.abort(ending_text(comm_.rank()));
  // The model may outlive us: its modules and parameters must not call back.
  for (Module* m : hooked_) m->set_hooks({});
  for (auto& p : model_.parameters())
    if (const auto& record = p.parameter->value.record()) record->before_grad = record->on_grad = nullptr;
}

MicroSchedule DataParallel::schedule() const {
  return options_.level >= ShardLevel::kGradients ? MicroSchedule::kWaves : MicroSchedule::kLocal;
}

void DataParallel::begin_step(int64_t micro_count, int64_t nominal_targets) {
  check(micro_count > 0 && nominal_targets > 0, "begin_step: ", micro_count, " micro-batches, ", nominal_targets,
        " nominal targets");
  micro_count_ = micro_count;
  nominal_ = nominal_targets;
  const int size = comm_.size();
  const bool waves = schedule() == MicroSchedule::kWaves;
  rounds_.assign(waves ? static_cast<size_t>(ceil_div(micro_count, size)) : 1, {});
  for (size_t i = 0; i < rounds_.size(); ++i)
    for (int r = 0; r < size; ++r) {
      const int64_t first = std::min(micro_count, static_cast<int64_t>(i) * size + r);
      rounds_[i].ranges.push_back(waves ? Range{first, std::min(micro_count, first + 1)}
                                        : split_evenly(micro_count, size, r));
    }
  rounds_.back().last = true;
  round_ = 0;
  done_ = 0;
  unused_ = 0;
  backward_end_s_ = 0;
  losses_.clear();
  for (auto& g : groups_) g->begin_step(micro_count);
  gathers_->begin();
  begin_round();
}

std::vector<int64_t> DataParallel::my_micro_batches() const {
  return micro_batches_of(schedule(), micro_count_, comm_.rank(), comm_.size());
}

bool DataParallel::group_has_data(const ParamGroup::Round& round) const {
  return !round.ranges[static_cast<size_t>(mesh_->rank_of(mesh_->replica(), 0))].empty();
}

void DataParallel::begin_round() {
  ready_.assign(groups_.size(), false);
  next_launch_ = 0;
  if (round_ == rounds_.size()) return;
  const ParamGroup::Round& round = rounds_[round_];
  const int last = mesh_->rank_of(mesh_->replica(), mesh_->shards() - 1);
  gathers_->begin_round(group_has_data(round) && round.ranges[static_cast<size_t>(last)].empty());
}

void DataParallel::backward(int64_t index, const Tensor& loss, int64_t targets) {
  const std::vector<int64_t> mine = my_micro_batches();
  check(done_ < static_cast<int64_t>(mine.size()) && index == mine[static_cast<size_t>(done_)],
        "backward of micro-batch ", index, ": this rank has done ", done_, " of its ",
        static_cast<int64_t>(mine.size()), ", which it runs in the order of my_micro_batches()");
  for (auto& g : groups_) g->begin_micro_batch(index);
  ++done_;
  unused_ = 0;
  lockstep::backward(loss, loss_gradient());
  backward_end_s_ = since_begin();
  gathers_->end_round(true);
  for (auto& g : groups_) unused_ += g->end_micro_batch();
  losses_.emplace_back(loss.detach(), targets);
  if (rounds_.size() == 1 && done_ < static_cast<int64_t>(mine.size())) return;  // the same round goes on
  ++round_;
  begin_round();
}

void DataParallel::group_ready(size_t k) {
  const Range& mine = rounds_[round_].ranges[static_cast<size_t>(comm_.rank())];
  if (rounds_.size() == 1 && done_ < mine.size()) return;  // more of this round's micro-batches to come
  ready_[k] = true;
  // In fixed order on every rank, so that collectives always match.
  while (next_launch_ < groups_.size() && ready_[next_launch_]) launch(next_launch_++);
}

void DataParallel::launch(size_t k) {
  std::vector<Transfer>& transfers = gathers_->transfers();
  in_flight_.push_back({k, transfers.size()});
  transfers.push_back({Transfer::Kind::kReduce, groups_[k]->name(), groups_[k]->layout().total() * 4, since_begin()});
  groups_[k]->reduce(rounds_[round_], merging_ ? *merging_ : current_stream());
}

void DataParallel::bound_memory() {
  while (in_flight_.size() >= kInFlight)
    if (!finish_oldest(gathers_->streams() ? std::optional(kPatience) : std::nullopt)) return;
}

// The last backward pass has left a block: what it did not use gets no gradient any more.
void DataParallel::block_left(size_t block) {
  for (size_t k : of_block_[block])
    if (following_) launch_through(k);
    else unused_ += groups_[k]->end_micro_batch();
}

// Without data: the groups up to this one, as long as memory for what arrives is there.
void DataParallel::launch_through(size_t k) {
  for (; next_launch_ <= k; ++next_launch_) {
    if (schedule() == MicroSchedule::kWaves) bound_memory();
    launch(next_launch_);
  }
}

bool DataParallel::finish_oldest(std::optional<Seconds> patience) {
  const Reduction r = in_flight_.front();
  const double needed = since_begin();
  if (!groups_[r.group]->finish_reduce(patience)) return false;
  in_flight_.pop_front();
  Transfer& t = gathers_->transfers()[r.transfer];
  t.needed_s = needed;
  t.ready_s = since_begin();
  return true;
}

// Where leaves stay, so does what the exchanges use, until the next step begins: a GPU's queue then waits for them, not
// the host. Elsewhere memory is given back as they end.
void DataParallel::finish_reductions() {
  const Stream& merging = merging_ ? *merging_ : current_stream();
  const bool queued = merging.mode() == Stream::Mode::kQueue && schedule() == MicroSchedule::kLocal;
  for (; queued && !in_flight_.empty(); in_flight_.pop_front()) {
    Transfer& t = gathers_->transfers()[in_flight_.front().transfer];
    t.needed_s = t.ready_s = since_begin();
  }
  while (!in_flight_.empty()) finish_oldest();
}

void DataParallel::forward_round(int64_t ranks_with_data, const std::function<void()>& mine) {
  check(in_flight_.empty(), "forward_round between begin_step and end_step");
  const int first = mesh_->rank_of(mesh_->replica(), 0), last = first + mesh_->shards() - 1;
  gathers_->begin();
  gathers_->begin_round(first < ranks_with_data && last >= ranks_with_data);
  if (comm_.rank() < ranks_with_data) {
    mine();
    gathers_->end_round(false);
  } else if (first < ranks_with_data) {
    gathers_->follow_round();
  }
}

std::string DataParallel::why_not_recorded() const {
  if (current_device().type != DeviceType::kCuda) return "only a GPU's work can be recorded";
  if (schedule() == MicroSchedule::kWaves)
    return cat("at sharding.level ", to_text(options_.level), " the host lets memory go in the midst of a step");
  if (comm_.size() > 1 && comm_.backend() != "nccl") return "ranks that exchange by way of the host cannot be recorded";
  return "";
}

StepReducer& DataParallel::reducer_of(int64_t micro_count) {
  return reducers_.try_emplace(micro_count, groups_, *mesh_, schedule(), micro_count).first->second;
}

void DataParallel::set_inputs(int64_t micro_count, const std::vector<int64_t>& targets, bool stop) {
  reducer_of(micro_count).set_inputs(targets, stop);
}

PendingStep DataParallel::end_step(double clip_norm, bool stop) {
  const auto mine_count = static_cast<int64_t>(my_micro_batches().size());
  check(done_ == mine_count, "end_step after ", done_, " of this rank's ", mine_count, " micro-batches");
  // A rank without a micro-batch takes part without data; in reductions as the others' backward passes get there.
  for (; round_ < rounds_.size(); ++round_) {
    following_ = true;
    next_launch_ = 0;
    if (group_has_data(rounds_[round_])) gathers_->follow_round();
    launch_through(groups_.size() - 1);
    following_ = false;
  }
  gathers_->settle();  // also what no forward pass asked for
  finish_reductions();
  if (merging_) current_stream().wait(merging_->record());

  StepReducer& reducer = reducer_of(micro_count_);
  std::vector<Tensor> losses;
  std::vector<int64_t> targets;
  for (auto& [loss, count] : losses_) {
    losses.push_back(loss);
    targets.push_back(count);
  }
  if (!context().recording) reducer.set_inputs(targets, stop);
  const double before = since_begin();
  PendingStep pending = reducer.run(losses, {static_cast<double>(nominal_), loss_scale_, clip_norm});
  double exposed_ms = (since_begin() - before) * 1e3;
  for (const Transfer& t : transfers()) exposed_ms += (t.ready_s - t.needed_s) * 1e3;
  pending.set_exposed(exposed_ms);

  Slot* slot = slots_.data();
  for (auto& g : groups_) {
    g->set_gradients(slot);
    slot += g->layout().pieces().size();
  }
  gathers_->changed(GatherSchedule::By::kUpdate);
  return pending;
}

PendingStep DataParallel::relaunched(const PendingStep& recorded) {
  gathers_->restart_clock();
  PendingStep pending = recorded.relaunched();
  gathers_->changed(GatherSchedule::By::kUpdate);
  return pending;
}

const std::vector<Slot>& DataParallel::slots() { return slots_; }

std::vector<StateEntry> DataParallel::state() const {
  gathers_->settle();
  std::vector<StateEntry> out;
  for (auto* groups : {&groups_, &frozen_})
    for (auto& g : *groups)
      for (StateEntry& e : g->state()) out.push_back(std::move(e));
  return out;
}

std::vector<StateEntry> DataParallel::whole_copies() const {
  std::vector<StateEntry> out;
  for (auto* groups : {&groups_, &frozen_})
    for (auto& g : *groups)
      for (StateEntry& e : g->whole_copies()) out.push_back(std::move(e));
  return out;
}

int64_t DataParallel::parameter_count() const {
  int64_t n = 0;
  for (auto* groups : {&groups_, &frozen_})
    for (auto& g : *groups)
      for (const Layout::Piece& p : g->layout().pieces()) n += p.numel();
  return n;
}

}  // namespace lockstep
