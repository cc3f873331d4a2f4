#include "optim/optimizer.h"

#include <algorithm>
#include <cmath>

#include "core/base/name_pattern.h"
#include "core/base/partition.h"
#include "core/base/trace.h"
#include "core/kernels/kernels.h"
#include "core/tensor/raw_ops.h"
#include "optim/copies_beside.h"

namespace lockstep {

std::vector<Field> fields(OptimRule& o) {
  return {field("pattern", o.pattern, "parameters whose dotted name matches; * matches any characters"),
          field("decay", o.decay, "weight decay for these parameters; default: as without this rule")
              .with_choices({"default", "on", "off"}),
          field("lr_scale", o.lr_scale.value, "multiplies the learning rate")
              .with_range(0, kMostRate)
              .that_notes(o.lr_scale.given),
          field("frozen", o.frozen.value, "no gradient, no update").that_notes(o.frozen.given)};
}

std::vector<Field> fields(OptimOptions& o) {
  return {
      field("lr", o.lr, "peak learning rate").with_range(0, kMostRate),
      field("weight_decay", o.weight_decay,
            "decay of weights each step, as a fraction of the learning rate (sgd: added to the gradient)")
          .with_range(0, kMostRate),
      field("decay_vectors", o.decay_vectors, "let weight decay apply to norms and biases too"),
      field("clip_norm", o.clip_norm, "scale gradients down to this global norm; 0: no clipping").with_range(0, 1e30),
      field("skip_limit", o.skip_limit, "stop after this many steps in a row without a finite gradient")
          .with_unit("steps")
          .at_least(1),
      field("ema", o.ema,
            "decay of a moving average of the parameters, which is saved beside them: eval, generate and export take "
            "it with --ema; 0: none")
          .with_range(0, kMostBeta)
          .without_effect_at_default(),
      list_field("rules", o.rules,
                 "overrides by parameter name; of each key the last matching rule that gives it applies")};
}

namespace {

// Of the rules that match the name, the last that gives the value; null where none does.
template <class T>
const T* last_of(const OptimOptions& o, const std::string& name, RuleValue<T> OptimRule::*value) {
  const T* out = nullptr;
  for (const OptimRule& r : o.rules)
    if ((r.*value).given && matches(r.pattern, name)) out = &(r.*value).value;
  return out;
}

}  // namespace

bool is_frozen(const OptimOptions& o, const std::string& name) {
  const bool* frozen = last_of(o, name, &OptimRule::frozen);
  return frozen && *frozen;
}

bool rules_leave_others(const OptimOptions& o, const std::vector<std::string>& names) {
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    const auto last = std::find_if(o.rules.rbegin(), o.rules.rend(), [&](auto& r) { return matches(r.pattern, name); });
    if (last == o.rules.rend()) return false;
    const double* scale = last_of(o, name, &OptimRule::lr_scale);
    return last->frozen.value != is_frozen(o, name) || last->lr_scale.value != (scale ? *scale : 1);
  });
}

void apply_rules(const OptimOptions& o, std::vector<Slot>& slots, const std::vector<std::string>& all_names) {
  for (Slot& s : slots) {
    if (o.decay_vectors) s.decay = true;
    for (const OptimRule& r : o.rules)
      if (r.decay != "default" && matches(r.pattern, s.name)) s.decay = r.decay == "on";
    if (const double* scale = last_of(o, s.name, &OptimRule::lr_scale)) s.lr_scale = *scale;
  }
  for (const OptimRule& r : o.rules)
    require(
        std::any_of(all_names.begin(), all_names.end(), [&](const std::string& n) { return matches(r.pattern, n); }),
        ExitCode::kConfig, "optim.rules: pattern '", r.pattern, "' matches no parameter of this model; the first is '",
        all_names.empty() ? "" : all_names[0], "'");
}

namespace {

constexpr int64_t kChunk = 1 << 20;     // elements of a slot in host memory that are copied to the device at a time
constexpr int64_t kObserved = 1 << 18;  // elements of a slot that are observed at a time, on the host

// Elements [begin, end) of a slot.
Slot part_of(const Slot& slot, int64_t begin, int64_t end) {
  Slot part = slot;
  part.offset = slot.offset + begin;
  part.master = slot.master.slice(0, begin, end);
  part.gradient = slot.gradient.slice(0, begin, end);
  if (slot.copy) part.copy = slot.copy.slice(0, begin, end);
  return part;
}

}  // namespace

Optimizer::Optimizer(const std::vector<Slot>& slots,
                     const std::function<std::vector<std::string>(const Slot&)>& moments, Moments kept) {
  WithMemoryUse use(MemoryUse::kMoments);
  for (const Slot& s : slots) {
    WithMemoryFor named(s.name);
    check(kept == Moments::kFloat32 || s.region.is_aligned(kStateChunk), "optimizer: moments of 8 bits for ", s.name,
          " ", to_text(s.region), " of ", s.region.shape, ", which cuts the tensor's blocks of ", kStateChunk,
          " elements");
    moments_.emplace_back();
    const int64_t n = s.master.numel();
    const auto make = [&](int64_t count, DType type) {
      WithMemoryUse place(s.in_host_memory ? MemoryUse::kInHost : MemoryUse::kMoments);
      Tensor made = Tensor::unallocated({count}, type, s.master.device());
      made.allocate();
      raw::fill(made, 0);
      return made;
    };
    for (const std::string& name : moments(s)) {
      StateEntry e{str(name, "/", s.name), s.region, s.offset, {}};
      e.data = make(n, kept == Moments::k8Bit ? DType::kUInt8 : DType::kFloat32);
      if (kept == Moments::k8Bit) e.scales = make(ceil_div(n, kStateChunk), DType::kFloat32);
      moments_.back().push_back(std::move(e));
    }
    while (s.in_host_memory && staging_.size() < 1 + moments_.back().size())
      staging_.push_back(Tensor::empty({kChunk}));
  }
  numbers_ = Tensor::zeros({UpdateControlArgs::kCount});
  control_ = Tensor::zeros({UpdateControl::kCount});
  verdict_ = Tensor::zeros({UpdateControlArgs::kVerdict});
}

namespace {

// Copies a few numbers from the host to the device, in stream order.
void store(const Tensor& to, std::initializer_list<double> values) {
  StoreArgs a;
  a.out = static_cast<float*>(to.write());
  for (double v : values) a.value[a.count++] = static_cast<float>(v);
  raw::launch([](Parallel& p, const StoreArgs& args) { kernels(p).store(p, args); }, a);
}

}  // namespace

void Optimizer::set_lr(double lr) {
  check(std::isfinite(lr) && lr >= 0, "optimizer: the learning rate ", lr, " is not a finite number of 0 or more");
  lr_ = lr;
}

void Optimizer::step(const std::vector<Slot>& slots, const StepVerdict& verdict) {
  check(!std::isnan(lr_), "optimizer: step() without a learning rate; set one by set_lr()");
  prepare(lr_);
  store(verdict_, {verdict.grad_scale, verdict.finite ? 0.0 : 1.0});
  update(slots, verdict_);
  settle(!verdict.finite);
}

void Optimizer::prepare(double lr) {
  const TraceOp op("optimizer");
  check(unsettled_ <= 1, "optimizer: prepare() with two updates that are not settled");
  double first = 1, second = 1, first_after = 1, second_after = 1;  // _after: if the unsettled update was not skipped
  corrections(updates_ + 1, first, second);
  corrections(updates_ + 2, first_after, second_after);
  store(numbers_, {lr, unsettled_ > 0 ? 1.0 : 0.0, first, second, first_after, second_after});
  ++unsettled_;
}

void Optimizer::update(const std::vector<Slot>& slots, const Tensor& verdict) {
  trace_mark();
  const TraceOp op("optimizer");
  check(slots.size() == moments_.size(), "optimizer: ", static_cast<int64_t>(slots.size()), " slots, made for ",
        static_cast<int64_t>(moments_.size()));
  UpdateControlArgs a;
  a.numbers = static_cast<const float*>(numbers_.read());
  a.verdict = static_cast<const float*>(verdict.read());
  a.control = static_cast<float*>(control_.write());
  raw::launch([](Parallel& p, const UpdateControlArgs& args) { kernels(p).update_control(p, args); }, a);
  for (size_t first = 0, end = 0; first < slots.size(); first = end) {
    end = end_of_group(slots, first);
    const int64_t before = observed_;
    update_group(slots, first, end, a.control);
    if (!observer_) continue;
    int64_t elements = 0;
    for (size_t i = first; i < end; ++i) elements += slots[i].master.numel();
    check(observed_ - before == elements, "optimizer: the observer was not told of all state of ", slots[first].name,
          "'s group");
  }
}

void Optimizer::update_group(const std::vector<Slot>& slots, size_t first, size_t end, const float* control) {
  if (observer_) {
    for (size_t i = first; i < end; ++i) update_observed(slots[i], i, control);
    return;
  }
  for (size_t i = first; i < end; ++i) {
    batches_ = !is_by_chunk(slots[i], moments_[i]);  // chunks share their staging memory
    run_pass(slots, i,
             [&](const Slot& part, const std::vector<Tensor>& moments) { update_slot(part, moments, control); });
  }
  batches_ = false;
  apply_batched();
}

// The slot's master and moments, as entries of the state.
std::vector<StateEntry> Optimizer::state_of(const Slot& slot, size_t i) const {
  std::vector<StateEntry> out{{slot.name, slot.region, slot.offset, slot.master}};
  out.insert(out.end(), moments_[i].begin(), moments_[i].end());
  return out;
}

std::vector<UpdateObserver::Part> Optimizer::parts_of(const std::vector<Slot>& slots, size_t first, size_t end) const {
  std::vector<UpdateObserver::Part> out;
  for (size_t i = first; i < end; ++i)
    for (const StateEntry& e : state_of(slots[i], i))
      if (e.data.numel() > 0) out.push_back({e.data.read(), 0, e});
  return out;
}

void Optimizer::begin_group(const std::vector<Slot>& slots, size_t first, size_t end) {
  if (!observer_) return;
  observer_->before_update(parts_of(slots, first, end));
  for (size_t i = first; i < end; ++i) observed_ += slots[i].master.numel();
}

void Optimizer::end_group(const std::vector<Slot>& slots, size_t first, size_t end) {
  if (observer_) observer_->after_update(parts_of(slots, first, end));
}

// In parts that are copied to scratch that stays in the caches, observed, updated and observed there, and copied back:
// what changes in the memory of the state meanwhile is written over. An update is elementwise, so the bits do not
// depend on the parts.
void Optimizer::update_observed(const Slot& slot, size_t i, const float* control) {
  const WithMemoryUse use(MemoryUse::kScratch);
  const int64_t most = current_stream().device_queue() ? kChunk : kObserved;
  const std::vector<StateEntry> state = state_of(slot, i);
  const auto copy = [](const StateEntry& to, const StateEntry& from) {
    raw::copy(to.data, from.data);
    if (to.scales) raw::copy(to.scales, from.scales);
  };
  for (int64_t begin = 0; begin < slot.master.numel(); begin += most) {
    const int64_t end = std::min(begin + most, slot.master.numel());
    std::vector<UpdateObserver::Part> parts;
    std::vector<Tensor> values;
    for (const StateEntry& e : state) {
      StateEntry here = e.part(begin, end);
      here.data = Tensor::empty(here.data.shape(), here.data.dtype());
      if (here.scales) here.scales = Tensor::empty(here.scales.shape());
      copy(here, e.part(begin, end));
      parts.push_back({e.data.read(), begin, here});
    }
    observer_->before_update(parts);
    for (const auto& p : parts) values.push_back(p.now.scales ? p.now.values(0, end - begin) : p.now.data);
    Slot part = part_of(slot, begin, end);
    part.master = values[0];
    const std::vector<Tensor> moments(values.begin() + 1, values.end());
    update_slot(part, moments, control);
    for (size_t k = 0; k < parts.size(); ++k)
      if (parts[k].now.scales) parts[k].now.set_values(0, values[k]);
    observer_->after_update(parts);
    for (size_t k = 0; k < parts.size(); ++k) copy(state[k].part(begin, end), parts[k].now);
    observed_ += end - begin;
  }
}

void Optimizer::apply(const char* op, const PointwiseArgs& args) {
  if (!batched_.empty() && op != batched_op_) apply_batched();
  batched_op_ = op;
  batched_.push_back(args);
  if (!batches_) apply_batched();
}

void Optimizer::apply_batched() {
  if (batched_.empty()) return;
  if (copies_ && !copies_->empty() && current_stream().mode() == Stream::Mode::kInline) {
    current_stream().enqueue(
        [op = batched_op_, parts = std::move(batched_), copies = copies_](Parallel& p) {
          for (const PointwiseArgs& part : parts) update_and_copy(p, op, part, *copies);
        },
        {"update"});
    batched_.clear();
    return;
  }
  TaskCost cost{"update"};
  for (size_t i = 0; counts_costs() && i < batched_.size(); ++i) cost.bytes += cost_of(batched_[i]).bytes;
  current_stream().enqueue(
      [op = batched_op_, parts = std::move(batched_)](Parallel& p) { kernels(p).update(p, op, parts); }, cost);
  batched_.clear();
}

// What is copied block by block, so that it is read from the caches. An update is elementwise, so the bits do not
// depend on the blocks.
void Optimizer::update_and_copy(Parallel& p, const char* op, const PointwiseArgs& args, CopiesBeside& copies) {
  constexpr int64_t kBlock = 1 << 14;  // elements, for each thread
  const bool flat = args.dims <= 1 && std::all_of(args.out, args.out + args.outs, [](const Operand& o) {
                      return o.strides[0] == 1 && o.dtype == DType::kFloat32;
                    });
  if (!flat) return kernels(p).update(p, op, {&args, 1});
  PointwiseArgs part = args;
  const auto out = [&](int j) { return static_cast<const float*>(part.out[j].data); };
  for (int64_t left = args.numel; left > 0; left -= part.numel) {
    int64_t alone = left;
    for (int j = 0; j < part.outs; ++j) alone = std::min(alone, copies.until_next(out(j), left));
    part.sizes[0] = part.numel = alone > 0 ? alone : std::min(left, kBlock * p.threads());
    kernels(p).update(p, op, {&part, 1});
    for (int j = 0; alone == 0 && j < part.outs; ++j) copies.written(p, out(j), part.numel);
    const auto advance = [&](Operand& o) {
      o.data = static_cast<char*>(o.data) + part.numel * o.strides[0] * size_of(o.dtype);
    };
    std::for_each(part.out, part.out + part.outs, advance);
    std::for_each(part.in, part.in + part.ins, advance);
  }
  fence_past_caches();
}

bool Optimizer::is_by_chunk(const Slot& slot, const std::vector<StateEntry>& moments) const {
  return slot.in_host_memory || (!moments.empty() && moments[0].scales);
}

void Optimizer::update_slot(const Slot&, const std::vector<Tensor>&, const float*) {
  check(false, "an optimizer overrides update_slot() or update_group()");
}

void Optimizer::run_pass(const std::vector<Slot>& slots, size_t i, const Pass& pass) {
  const std::vector<StateEntry>& moments = moments_[i];
  if (is_by_chunk(slots[i], moments)) return run_by_chunk(slots[i], moments, pass);
  std::vector<Tensor> whole;
  for (const StateEntry& e : moments) whole.push_back(e.data);
  pass(slots[i], whole);
}

void Optimizer::settle(bool skipped) {
  check(unsettled_ > 0, "optimizer: settle() without an unsettled update");
  --unsettled_;
  if (!skipped) ++updates_;
}

// The device holds one chunk of the state in fp32 at a time. A pass is elementwise, so the bits do not depend on the
// chunks.
void Optimizer::run_by_chunk(const Slot& slot, const std::vector<StateEntry>& moments, const Pass& pass) {
  WithMemoryUse use(MemoryUse::kScratch);
  for (int64_t begin = 0; begin < slot.master.numel(); begin += kChunk) {
    const int64_t end = std::min(begin + kChunk, slot.master.numel());
    const auto bring = [&](size_t i, const Tensor& values) {
      const Tensor here = staging_[i].slice(0, 0, end - begin);
      raw::copy(here, values);
      return here;
    };
    Slot part = part_of(slot, begin, end);
    const Tensor master = part.master;
    if (slot.in_host_memory) part.master = bring(moments.size(), master);
    std::vector<Tensor> here;
    for (const StateEntry& e : moments)
      here.push_back(e.scales ? e.values(begin, end) : bring(here.size(), e.values(begin, end)));
    pass(part, here);
    for (size_t i = 0; i < moments.size(); ++i) moments[i].set_values(begin, here[i]);
    if (slot.in_host_memory) raw::copy(master, part.master);
  }
}

std::vector<StateEntry> Optimizer::state(const std::vector<Slot>& slots) const {
  check(slots.size() == moments_.size(), "optimizer: the state of other slots than it was made for");
  std::vector<StateEntry> out;
  for (const auto& of_slot : moments_) out.insert(out.end(), of_slot.begin(), of_slot.end());
  return out;
}

void require_whole_region(const Slot& s, std::string_view update) {
  check(s.region.is_whole(), update, " depends on whole parameters, but of ", s.name, " ", s.region.shape,
        " this rank's layer holds ", to_text(s.region));
}

size_t end_of_group(const std::vector<Slot>& slots, size_t first) {
  size_t end = first + 1;
  while (slots[first].group && end < slots.size() && slots[end].group == slots[first].group) ++end;
  return end;
}

int64_t group_total(const Slot& slot) {
  return slot.group ? slot.group->total() : round_up(slot.master.numel(), kStateChunk);
}

PointwiseArgs update_args(const Slot& s, std::initializer_list<Tensor> outs, std::initializer_list<Tensor> ins) {
  PointwiseArgs a = raw::pointwise_args(outs, ins);
  if (!s.copy) return a;
  check(s.copy.is_contiguous() && s.copy.numel() == a.numel && a.dims <= 1, "optimizer: the copy of ", s.name, ": ",
        s.copy);
  Operand& o = a.out[a.outs++];
  o.data = s.copy.write();
  o.dtype = s.copy.dtype();
  o.strides[0] = 1;
  return a;
}

}  // namespace lockstep
