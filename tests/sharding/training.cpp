#include "tests/sharding/training.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "core/base/philox.h"
#include "core/models/gpt.h"
#include "core/models/mlp.h"
#include "core/ops/ops.h"
#include "core/tensor/raw_ops.h"
#include "optim/builtin.h"
#include "sharding/transfer_log.h"

namespace lockstep::testing {
namespace {

float number(int64_t sample, int64_t i) {
  return 2 * uniform_of(philox(9, static_cast<uint64_t>(sample), static_cast<uint64_t>(i)).v[0]) - 1;
}

// [end - begin, width] made of the samples' own numbers.
Tensor features(int64_t step, int64_t begin, int64_t end, int64_t width) {
  std::vector<float> v;
  for (int64_t s = begin; s < end; ++s)
    for (int64_t i = 0; i < width; ++i) v.push_back(number(1000 * step + s, i));
  return Tensor::of(v, {end - begin, width});
}

Tensor labels(int64_t step, int64_t begin, int64_t end, int64_t width, int64_t classes, int64_t ignore_every,
              int64_t& counted) {
  std::vector<int32_t> v;
  for (int64_t s = begin; s < end; ++s)
    for (int64_t i = 0; i < width; ++i) {
      const int64_t draw = philox(8, static_cast<uint64_t>(1000 * step + s), static_cast<uint64_t>(i)).v[0];
      const bool ignored = ignore_every && draw % ignore_every == 0;
      v.push_back(ignored ? kIgnoreIndex : static_cast<int32_t>(draw / 7 % classes));
      counted += !ignored;
    }
  return Tensor::of(v, {end - begin, width});
}

class OddModel : public Model {
 public:
  OddModel()
      : tied_(parameter("tied", {7, 7}, Init::normal(0.5))),
        scale_(parameter("scale", {1}, Init::ones())),
        odd_(parameter("odd", {67}, Init::normal(0.1))),
        sometimes_(parameter("sometimes", {7, 7}, Init::normal(0.3))),
        never_(parameter("never", {65}, Init::normal(0.3))),
        frozen_(parameter("frozen", {7}, Init::normal(1))) {}
  Tensor forward(const Tensor& x) override {
    Tensor h = tanh(add(linear(x, tied_), frozen_));
    h = mul(linear(h, tied_), scale_);
    if (use_sometimes) h = linear(h, sometimes_);
    return add(h, slice(odd_, 0, 30, 37));
  }
  bool use_sometimes = false;

 private:
  Tensor &tied_, &scale_, &odd_, &sometimes_, &never_, &frozen_;
};

std::string bits(double v) {
  uint64_t u;
  memcpy(&u, &v, 8);
  return std::to_string(u);
}

std::unique_ptr<Optimizer> make_optimizer(const std::string& name, const std::vector<Slot>& slots) {
  if (name == "sgd") return make_sgd({.momentum = 0.9, .weight_decay = 0.01, .nesterov = true}, slots);
  if (name == "lamb") return make_lamb({.weight_decay = 0.1}, slots);
  if (name == "muon") return make_muon({.adamw = {.weight_decay = 0.1}}, slots);
  if (name == "adamw8bit") return make_adamw8bit({.weight_decay = 0.1}, slots);
  check(name == "adamw", "no optimizer ", name);
  return make_adamw({.weight_decay = 0.1}, slots);
}

Outcome train_one(Communicator& comm, const Job& job) {
  std::unique_ptr<Model> model = job.make();
  const int places = apply_recompute(*model, job.recompute);
  EXPECT_EQ(places > 0, job.recompute != Recompute::kNone);
  DataParallel parallel(*model, comm, job.parallel);
  const auto optimizer = make_optimizer(job.optimizer, parallel.slots());
  optimizer->set_lr(0.01);
  Outcome out;
  out.overlapped = true;
  auto entries = [&] {
    std::vector<StateEntry> all = parallel.state();
    for (const StateEntry& e : optimizer->state(parallel.slots())) all.push_back(e);
    for (const StateEntry& e : parallel.base_state()) all.push_back(e);
    return all;
  };
  if (job.parallel.frozen_of_files) {  // what files of that type can hold
    for (const StateEntry& e : parallel.base_state())
      e.set_values(0, raw::cast(e.values(0, e.data.numel()), job.parallel.file_type));
    parallel.state_was_loaded();
  }
  if (!job.state.empty()) {
    for (const StateEntry& e : entries())
      if (e.data.numel() > 0)
        e.set_values(0, Tensor::of(std::vector<float>(job.state.at(e.name).begin() + e.offset,
                                                      job.state.at(e.name).begin() + e.end()),
                                   e.data.shape()));
    parallel.state_was_loaded();
  }
  parallel.set_loss_scale(job.loss_scale);
  optimizer->set_updates(job.first_step);
  for (int64_t step = job.first_step; step < job.steps; ++step) {
    parallel.begin_step(job.micro_count, job.nominal_targets);
    for (int64_t i : parallel.my_micro_batches()) {
      const IndexRange r = split_evenly(job.batch, job.micro_count, i);
      auto samples = std::make_shared<std::vector<int64_t>>();
      for (int64_t s = r.begin; s < r.end; ++s) samples->push_back(step * job.batch + s);
      WithRandom with({5, step, samples});
      auto [loss, targets] = job.loss(*model, step, r.begin, r.end);
      parallel.backward(i, loss, targets);
    }
    out.steps.push_back(parallel.finish_step(job.clip));
    out.unused.push_back(parallel.unused_in_last_step());
    out.transfers = parallel.transfers();
    bool early = false;
    for (const Transfer& t : out.transfers)
      early |= t.kind == Transfer::Kind::kReduce && t.started_s < parallel.backward_end_s();
    out.overlapped &= early;
    const StepResult& r = out.steps.back();
    std::vector<Slot> slots = parallel.slots();
    for (Slot& slot : slots)
      if (!job.copies) slot.copy = {};
    optimizer->step(slots, r);
  }
  for (const StateEntry& e : entries()) {
    Outcome::Held h{e.name, e.region.numel(), e.offset, {}};
    if (e.data.numel() > 0) h.values = e.values(0, e.data.numel()).to_vector<float>();
    out.held.push_back(std::move(h));
  }
  return out;
}

// Puts the ranks' slices together; replicas must be equal.
void assemble(std::vector<Outcome>& all) {
  std::map<std::string, std::vector<float>> whole;
  std::map<std::string, std::vector<bool>> there;
  for (size_t r = 0; r < all.size(); ++r)
    for (const Outcome::Held& e : all[r].held) {
      whole[e.name].resize(static_cast<size_t>(e.whole));
      there[e.name].resize(static_cast<size_t>(e.whole));
      const std::vector<float>& mine = e.values;
      for (size_t i = 0; i < mine.size(); ++i) {
        const size_t at = static_cast<size_t>(e.offset) + i;
        if (there[e.name][at]) {
          ASSERT_EQ(0, memcmp(&whole[e.name][at], &mine[i], sizeof(float)))
              << e.name << "[" << at << "] of rank " << r << " is no replica: " << mine[i] << ", elsewhere "
              << whole[e.name][at];
        }
        whole[e.name][at] = mine[i];
        there[e.name][at] = true;
      }
    }
  Hash128 digest;
  std::vector<float> parameters;
  for (auto& [name, values] : whole) {
    const std::vector<bool>& have = there[name];
    ASSERT_TRUE(std::all_of(have.begin(), have.end(), [](bool b) { return b; })) << name << " is not held whole";
    digest += digest_of(name, 0, values.data(), static_cast<int64_t>(values.size()));
    if (name.rfind("parameters/", 0) == 0) parameters.insert(parameters.end(), values.begin(), values.end());
  }
  for (Outcome& o : all) o.digest = to_hex(digest), o.state = whole, o.parameters = parameters;
}

}  // namespace

std::vector<Outcome> train(const Job& job, int ranks, const RankOptions& options) {
  std::vector<Outcome> out(static_cast<size_t>(ranks));
  run_ranks(
      ranks, [&](Communicator& comm) { out[static_cast<size_t>(comm.rank())] = train_one(comm, job); }, options);
  assemble(out);
  return out;
}

std::string agreed_digest(const Job& job, int ranks, const RankOptions& options) {
  const std::vector<Outcome> all = train(job, ranks, options);
  std::string first;
  for (size_t r = 0; r < all.size(); ++r) {
    std::string text = all[r].digest;
    for (const StepResult& s : all[r].steps)
      text += str(" ", bits(s.loss), " ", bits(s.grad_norm), " ", bits(s.grad_scale), " ", s.targets, " ", s.finite,
                  " ", s.nonfinite);
    if (r == 0) first = text;
    EXPECT_EQ(text, first) << "rank " << r << " of " << ranks;
  }
  return first;
}

Job mlp_job() {
  Job job;
  job.make = [] { return std::make_unique<Mlp>(MlpOptions{.hidden = {9, 5}}, TaskSpec{{6}, 3}); };
  job.loss = [](Model& model, int64_t step, int64_t begin, int64_t end) {
    int64_t counted = 0;
    const Tensor y = labels(step, begin, end, 1, 3, 0, counted);
    return std::pair(cross_entropy(model(features(step, begin, end, 6)), y.reshape({end - begin})), counted);
  };
  return job;
}

Job gpt_job() {
  Job job;
  job.make = [] {
    return std::make_unique<Gpt>(GptOptions{.layers = 2, .heads = 2, .width = 12, .dropout = 0.1}, TaskSpec{{6}, 11});
  };
  job.loss = [](Model& model, int64_t step, int64_t begin, int64_t end) {
    int64_t counted = 0, all = 0;
    const Tensor x = labels(step + 50, begin, end, 6, 11, 0, all), y = labels(step, begin, end, 6, 11, 5, counted);
    return std::pair(cross_entropy(model(x), y), counted);
  };
  job.nominal_targets = 13 * 6;
  job.clip = 0.5;
  return job;
}

Job odd_job() {
  Job job;
  job.make = [] { return std::make_unique<OddModel>(); };
  job.loss = [](Model& model, int64_t step, int64_t begin, int64_t end) {
    static_cast<OddModel&>(model).use_sometimes =
        step > 0 && (begin / 4 + step) % 2 == 0;  // not at all in the first step
    int64_t counted = 0;
    const Tensor y = labels(step, begin, end, 1, 7, 0, counted);
    return std::pair(cross_entropy(model(features(step, begin, end, 7)), y.reshape({end - begin})), counted);
  };
  job.parallel.frozen = [](const std::string& name) { return name == "frozen"; };
  job.clip = 0.01;
  job.optimizer = "sgd";
  job.steps = 4;
  return job;
}

}  // namespace lockstep::testing
