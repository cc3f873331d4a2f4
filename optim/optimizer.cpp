#include "optim/optimizer.h"

#include <algorithm>
#include <cmath>

#include "core/base/partition.h"
#include "core/base/trace.h"
#include "core/kernels/kernels.h"
#include "core/tensor/raw_ops.h"

namespace lockstep {

std::vector<Field> fields(OptimRule& o) {
  return {field("pattern", o.pattern, "parameters whose dotted name matches; * matches any characters"),
          field("decay", o.decay, "weight decay for these parameters").with_choices({"default", "on", "off"}),
          field("lr_scale", o.lr_scale, "multiplies the learning rate").with_range(0, kMostRate),
          field("frozen", o.frozen, "no gradient, no update")};
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
      list_field("rules", o.rules, "overrides by parameter name; the last match applies")};
}

bool matches(const std::string& pattern, const std::string& name) {
  // Greedy matching with one position to backtrack to.
  size_t p = 0, n = 0, star = std::string::npos, from = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      from = n;
    } else if (p < pattern.size() && pattern[p] == name[n]) {
      ++p, ++n;
    } else if (star != std::string::npos) {
      p = star + 1;
      n = ++from;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

bool is_frozen(const OptimOptions& o, const std::string& name) {
  bool frozen = false;
  for (const OptimRule& r : o.rules)
    if (matches(r.pattern, name)) frozen = r.frozen;
  return frozen;
}

void apply_rules(const OptimOptions& o, std::vector<Slot>& slots, const std::vector<std::string>& all_names) {
  for (Slot& s : slots) {
    if (o.decay_vectors) s.decay = true;
    for (const OptimRule& r : o.rules) {
      if (!matches(r.pattern, s.name)) continue;
      if (r.decay != "default") s.decay = r.decay == "on";
      s.lr_scale = r.lr_scale;
    }
  }
  for (const OptimRule& r : o.rules)
    require(
        std::any_of(all_names.begin(), all_names.end(), [&](const std::string& n) { return matches(r.pattern, n); }),
        ExitCode::kConfig, "optim.rules: pattern '", r.pattern, "' matches no parameter of this model; the first is '",
        all_names.empty() ? "" : all_names[0], "'");
}

namespace {
constexpr int64_t kChunk = 1 << 20;  // elements of a slot in host memory that are copied to the device at a time
}

Optimizer::Optimizer(const std::vector<Slot>& slots,
                     const std::function<std::vector<std::string>(const Slot&)>& moments) {
  WithMemoryUse use(MemoryUse::kMoments);
  for (const Slot& s : slots) {
    WithMemoryFor named(s.name);
    moments_.emplace_back();
    moment_names_.push_back(moments(s));
    const size_t count = moment_names_.back().size();
    for (size_t i = 0; i < count; ++i) {
      WithMemoryUse place(s.in_host_memory ? MemoryUse::kInHost : MemoryUse::kMoments);
      Tensor moment = Tensor::unallocated({s.master.numel()}, DType::kFloat32, s.master.device());
      moment.allocate();
      raw::fill(moment, 0);
      moments_.back().push_back(std::move(moment));
    }
    while (s.in_host_memory && staging_.size() < 1 + count) staging_.push_back(Tensor::empty({kChunk}));
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

void Optimizer::step(const std::vector<Slot>& slots, const UpdateScalars& s) {
  prepare(s.lr);
  store(verdict_, {s.grad_scale, s.skip ? 1.0 : 0.0});
  update(slots, verdict_);
  settle(s.skip);
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
    update_group(slots, first, end, a.control);
  }
}

void Optimizer::update_group(const std::vector<Slot>& slots, size_t first, size_t end, const float* control) {
  for (size_t i = first; i < end; ++i)
    run_pass(slots, i,
             [&](const Slot& part, const std::vector<Tensor>& moments) { update_slot(part, moments, control); });
}

void Optimizer::update_slot(const Slot&, const std::vector<Tensor>&, const float*) {
  check(false, "an optimizer overrides update_slot() or update_group()");
}

void Optimizer::run_pass(const std::vector<Slot>& slots, size_t i, const Pass& pass) {
  if (slots[i].in_host_memory) run_by_chunk(slots[i], moments_[i], pass);
  else pass(slots[i], moments_[i]);
}

void Optimizer::settle(bool skipped) {
  check(unsettled_ > 0, "optimizer: settle() without an unsettled update");
  --unsettled_;
  if (!skipped) ++updates_;
}

// The device holds one chunk of the state at a time. A pass is elementwise, so the bits do not depend on the chunks.
void Optimizer::run_by_chunk(const Slot& slot, const std::vector<Tensor>& moments, const Pass& pass) {
  std::vector<Tensor> state{slot.master};
  state.insert(state.end(), moments.begin(), moments.end());
  for (int64_t begin = 0; begin < slot.master.numel(); begin += kChunk) {
    const int64_t end = std::min(begin + kChunk, slot.master.numel());
    std::vector<Tensor> here;
    for (size_t i = 0; i < state.size(); ++i) {
      here.push_back(staging_[i].slice(0, 0, end - begin));
      raw::copy(here[i], state[i].slice(0, begin, end));
    }
    Slot part = slot;
    part.offset = slot.offset + begin;
    part.master = here[0];
    part.gradient = slot.gradient.slice(0, begin, end);
    if (slot.copy) part.copy = slot.copy.slice(0, begin, end);
    pass(part, {here.begin() + 1, here.end()});
    for (size_t i = 0; i < state.size(); ++i) raw::copy(state[i].slice(0, begin, end), here[i]);
  }
}

std::vector<StateEntry> Optimizer::state(const std::vector<Slot>& slots) const {
  std::vector<StateEntry> out;
  for (size_t i = 0; i < slots.size(); ++i)
    for (size_t k = 0; k < moments_[i].size(); ++k)
      out.push_back(
          {cat(moment_names_[i][k], "/", slots[i].name), slots[i].global_shape, slots[i].offset, moments_[i][k]});
  return out;
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
