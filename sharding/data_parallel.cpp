#include "sharding/data_parallel.h"

#include <algorithm>
#include <exception>

#include "core/autograd/node.h"
#include "core/base/trace.h"
#include "sharding/gather_schedule.h"
#include "sharding/mesh.h"
#include "sharding/model_blocks.h"
#include "sharding/model_buffers.h"
#include "sharding/parameter_bucket.h"
#include "sharding/reduce_schedule.h"
#include "sharding/step_reducer.h"
#include "sharding/transfer_log.h"

namespace lockstep {

DataParallel::DataParallel(Module& model, const Axis& data, DataParallelOptions options)
    : model_(model), options_(std::move(options)), exceptions_(std::uncaught_exceptions()) {
  model_.name_tree();
  const auto all = static_cast<int64_t>(data.size);
  const int64_t group = options_.level == ShardLevel::kNone ? 1 : options_.group > 0 ? options_.group : all;
  log_ = std::make_unique<TransferLog>();
  mesh_ = std::make_unique<Mesh>(data, static_cast<int>(std::min(group, int64_t(1) << 30)));
  reductions_ = std::make_unique<ReduceSchedule>(*mesh_, options_, *log_);
  make_buckets();
  buffers_ = std::make_unique<ModelBuffers>(model_, *mesh_);
}

// Backward ends with the model's first block, so that reductions begin with the last one's bucket.
void DataParallel::make_buckets() {
  ModelBlocks model = blocks_of(model_, options_);
  const auto place = [&](std::vector<NamedParameter> members, bool frozen) {
    std::string name = members.size() == 1 ? members[0].name : str(members.front().name, " .. ", members.back().name);
    return std::make_unique<ParameterBucket>(std::move(name), std::move(members), *mesh_, options_, frozen);
  };
  const auto buckets_of = [&](ModelBlock& block) {
    GatherSchedule::Block out;
    if (!block.trainable.empty()) {
      trainable_.insert(trainable_.begin(), place(std::move(block.trainable), false));
      out.push_back(trainable_.front().get());
    }
    const auto coded = std::stable_partition(block.frozen.begin(), block.frozen.end(), [&](const NamedParameter& p) {
      return !options_.coded || !options_.coded(p.name);
    });
    for (const auto& [begin, end] : {std::pair(block.frozen.begin(), coded), std::pair(coded, block.frozen.end())}) {
      if (begin == end) continue;
      frozen_.push_back(place({begin, end}, true));
      out.push_back(frozen_.back().get());
    }
    return out;
  };
  const GatherSchedule::Block root = buckets_of(model.root);
  std::vector<GatherSchedule::Block> blocks;
  for (ModelBlock& b : model.blocks) blocks.push_back(buckets_of(b));

  for (auto& b : trainable_) {
    reductions_->add(*b);
    for (Slot& s : b->slots()) slots_.push_back(std::move(s));
  }
  std::vector<std::vector<size_t>> reduced_of_block(blocks.size());
  for (size_t i = 0; i < blocks.size(); ++i)
    for (size_t k = 0; k < trainable_.size(); ++k)
      if (std::find(blocks[i].begin(), blocks[i].end(), trainable_[k].get()) != blocks[i].end())
        reduced_of_block[i].push_back(k);
  reductions_->set_blocks(std::move(reduced_of_block));
  gathers_ = std::make_unique<GatherSchedule>(*mesh_, options_, root, std::move(blocks), *log_, *reductions_);
  if (mesh_->shard().size == 1) return;  // all parameters are always whole
  for (size_t b = 0; b < model.blocks.size(); ++b) call_on_passes(b, model.blocks[b].modules);
  model_.set_hooks({[this] { gathers_->enter_root(); }, {}, {}});
  hooked_.push_back(&model_);
}

void DataParallel::call_on_passes(size_t block, const std::vector<Module*>& modules) {
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
  if (std::uncaught_exceptions() > exceptions_) mesh_->data().comm().abort(rank_is_ending(mesh_->data().index));
  for (Module* m : hooked_) m->set_hooks({});  // the model may outlive us
  train_only({});
}

MicroSchedule DataParallel::schedule() const { return reductions_->micro_schedule(); }
std::vector<int64_t> DataParallel::my_micro_batches() const { return reductions_->my_micro_batches(); }
void DataParallel::watch(int64_t index, const GradientSink& sink) { reductions_->watch(index, sink); }
void DataParallel::keep_leaves(size_t index) { reductions_->buckets()[index]->keep_leaves(); }
size_t DataParallel::sums() const { return options_.reduce == ReduceMode::kExact ? reductions_->buckets().size() : 0; }
void DataParallel::set_sum_observer(const std::function<void(const Tensor& sum)>& observer) {
  reductions_->set_sum_observer(observer);
}
void DataParallel::require_gather() { gathers_->invalidate(GatherSchedule::By::kUpdate); }
const std::vector<Transfer>& DataParallel::transfers() const { return log_->transfers(); }
int DataParallel::unused_in_last_step() const { return reductions_->unused(); }

void DataParallel::train_only(std::string_view module) {
  if (module == trained_module_) return;
  trained_module_ = module;
  for (auto& b : trainable_)
    for (const NamedParameter& p : b->members())
      set_requires_grad(p.parameter->value, module.empty() || is_of_module(p.name, module));
}

void DataParallel::begin_step(int64_t micro_count, int64_t nominal_targets, std::string_view module) {
  check(micro_count > 0 && nominal_targets > 0, "begin_step: ", micro_count, " micro-batches, ", nominal_targets,
        " nominal targets");
  train_only(module);
  micro_count_ = micro_count;
  nominal_ = nominal_targets;
  backward_end_s_ = 0;
  losses_.clear();
  buffers_->begin_step();
  log_->restart();
  reductions_->begin_step(micro_count);
  gathers_->begin();
  announce_round();
}

void DataParallel::compute_apart(int64_t nominal_targets, std::string_view module, const std::function<Tensor()>& loss,
                                 const GradientSink& sink) {
  check(reductions_->idle(), "compute_apart between begin_step and end_step");
  train_only(module);
  nominal_ = nominal_targets;
  log_->restart();
  gathers_->begin();
  gathers_->begin_round(false);
  reductions_->begin_apart(sink);
  lockstep::backward(loss(), loss_gradient());
  buffers_->discard();
  gathers_->end_round(true);
  reductions_->end_apart();
}

void DataParallel::announce_round() {
  if (reductions_->has_round()) gathers_->begin_round(reductions_->shard_group_is_split());
}

void DataParallel::backward(int64_t index, const Tensor& loss, double targets, std::optional<double> gradient) {
  reductions_->begin_micro_batch(index);
  buffers_->collect();
  lockstep::backward(loss, gradient.value_or(loss_gradient()));
  buffers_->discard();
  backward_end_s_ = log_->since_begin();
  gathers_->end_round(true);
  const bool round_ended = reductions_->end_micro_batch();
  losses_.emplace_back(loss.detach(), targets);
  if (round_ended) announce_round();
}

PendingStep DataParallel::end_step(double clip_norm, const StepRequests& requests) {
  trace_mark();
  reductions_->check_all_done();
  // A rank without a micro-batch takes part without data; in reductions as the others' backward passes get there.
  while (reductions_->has_round()) {
    reductions_->begin_following();
    if (reductions_->shard_group_has_data()) gathers_->follow_round();
    reductions_->end_following();
  }
  gathers_->settle();  // also what no forward pass asked for
  reductions_->finish();

  StepReducer& reducer = reducer_of(micro_count_);
  StepInputs inputs{micro_count_, {}, requests};
  std::vector<Tensor> losses;
  for (auto& [loss, targets] : losses_) {
    losses.push_back(loss);
    inputs.targets.push_back(targets);
  }
  if (!context().recording) reducer.set_inputs(inputs);
  const double before = log_->since_begin();
  PendingStep pending = reducer.run(losses, {static_cast<double>(nominal_), loss_scale_, clip_norm});
  double exposed_ms = (log_->since_begin() - before) * 1e3;
  for (const Transfer& t : log_->transfers()) exposed_ms += (t.ready_s - t.needed_s) * 1e3;
  pending.set_exposed(exposed_ms);
  buffers_->fold(schedule(), micro_count_, pending.verdict());

  Slot* slot = slots_.data();
  for (auto& b : reductions_->buckets()) {
    b->set_gradients(slot);
    slot += b->parameters().members().size();
  }
  gathers_->invalidate(GatherSchedule::By::kUpdate);
  return pending;
}

StepReducer& DataParallel::reducer_of(int64_t micro_count) {
  std::unique_ptr<StepReducer>& reducer = reducers_[micro_count];
  if (!reducer) reducer = std::make_unique<StepReducer>(reductions_->buckets(), *mesh_, schedule(), micro_count);
  return *reducer;
}

std::string DataParallel::why_not_recorded() const {
  if (current_device().type != DeviceType::kCuda) return "only a GPU's work can be recorded";
  if (schedule() == MicroSchedule::kWaves)
    return str("at sharding.level ", to_text(options_.level), " the host frees memory during a step");
  if (const Axis& data = mesh_->data(); data.size > 1 && data.comm().backend() != "nccl")
    return "exchanges through host memory cannot be recorded";
  return "";
}

void DataParallel::set_inputs(const StepInputs& inputs) { reducer_of(inputs.micro_count).set_inputs(inputs); }

PendingStep DataParallel::relaunched(const PendingStep& recorded) {
  log_->restart();
  PendingStep pending = recorded.relaunched();
  gathers_->invalidate(GatherSchedule::By::kUpdate);
  return pending;
}

void DataParallel::forward_round(int64_t ranks_with_data, const std::function<void()>& mine) {
  check(reductions_->idle(), "forward_round between begin_step and end_step");
  const int first = mesh_->rank_of(mesh_->replica().index, 0), last = first + mesh_->shard().size - 1;
  log_->restart();
  gathers_->begin();
  gathers_->begin_round(first < ranks_with_data && last >= ranks_with_data);
  if (mesh_->data().index < ranks_with_data) {
    mine();
    gathers_->end_round(false);
  } else if (first < ranks_with_data) {
    gathers_->follow_round();
  }
}

std::vector<StateEntry> DataParallel::state() const {
  gathers_->settle();
  std::vector<StateEntry> out;
  for (auto* buckets : {&trainable_, &frozen_})
    for (auto& b : *buckets)
      if (!b->of_files())
        for (StateEntry& e : b->state()) out.push_back(std::move(e));
  for (StateEntry& e : buffers_->state()) out.push_back(std::move(e));
  return out;
}

std::vector<StateEntry> DataParallel::base_state() const {
  gathers_->settle();
  std::vector<StateEntry> out;
  for (auto& b : frozen_)
    if (b->of_files())
      for (StateEntry& e : b->state()) out.push_back(std::move(e));
  return out;
}

void DataParallel::state_was_loaded() {
  gathers_->invalidate(GatherSchedule::By::kOthers);
  buffers_->gather();
}

std::vector<StateEntry> DataParallel::whole_copies() const {
  std::vector<StateEntry> out;
  for (auto* buckets : {&trainable_, &frozen_})
    for (auto& b : *buckets)
      for (StateEntry& e : b->whole_copies()) out.push_back(std::move(e));
  return out;
}

int64_t DataParallel::parameter_count() const {
  int64_t n = 0;
  for (auto* buckets : {&trainable_, &frozen_})
    for (auto& b : *buckets)
      for (const BucketLayout::Member& p : b->layout().members()) n += p.numel();
  return n;
}

}  // namespace lockstep
