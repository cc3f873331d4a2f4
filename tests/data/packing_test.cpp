// Packing: every label once an epoch, in few samples, the same for all who ask; and a packed row costs and teaches what
// its records do alone.
#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <random>
#include <set>

#include "core/autograd/node.h"
#include "core/models/gpt.h"
#include "core/models/llama.h"
#include "core/nn/recompute.h"
#include "core/ops/ops.h"
#include "data/samples/text/packed_dataset.h"
#include "data/streams/mixture.h"
#include "data/streams/open_dataset.h"
#include "data/streams/sample_order.h"
#include "data/streams/subset.h"
#include "tests/support/files.h"

namespace lockstep::packing_test {
namespace {

using test::expect_error;

// Records of some lengths; token i is (7 i + i / 5) % vocabulary. With `answers`, every third token is no target.
class Texts final : public TokenSource {
 public:
  explicit Texts(std::vector<int64_t> lengths, bool answers = false) : answers_(answers) {
    for (int64_t length : lengths) ends_.push_back((ends_.empty() ? 0 : ends_.back()) + length);
  }
  int64_t size() const override { return ends_.back(); }
  int64_t vocabulary_size() const override { return 31; }
  const Vocabulary* vocabulary() const override { return nullptr; }
  Hash128 identity() const override { return {}; }
  static int32_t token(int64_t i) { return static_cast<int32_t>((7 * i + i / 5) % 31); }
  void read(IndexRange tokens, int32_t* out) const override {
    for (int64_t i = tokens.begin; i < tokens.end; ++i) *out++ = token(i);
  }
  bool has_targets() const override { return answers_; }
  void read_targets(IndexRange tokens, uint8_t* out) const override {
    for (int64_t i = tokens.begin; i < tokens.end; ++i) *out++ = i % 3 != 0;
  }
  int64_t records() const override { return static_cast<int64_t>(ends_.size()); }
  void visit_records(const std::function<void(IndexRange tokens)>& use) const override {
    for (size_t i = 0; i < ends_.size(); ++i) use({i > 0 ? ends_[i - 1] : 0, ends_[i]});
  }

 private:
  std::vector<int64_t> ends_;
  bool answers_;
};

struct Sample {
  std::vector<int32_t> tokens, labels, documents, positions;
  friend bool operator==(const Sample&, const Sample&) = default;
};

Sample sample_of(const Dataset& data, int64_t epoch, int64_t index) {
  const auto context = static_cast<size_t>(data.spec().input().shape[0]);
  Sample s{std::vector<int32_t>(context, -7), std::vector<int32_t>(context, -7), std::vector<int32_t>(context, -7),
           std::vector<int32_t>(context, -7)};
  std::vector<void*> memory{s.tokens.data(), s.labels.data(), s.documents.data(), s.positions.data()};
  memory.resize(data.spec().tensors.size());
  data.read(epoch, index, {data.spec().tensors, memory});
  return s;
}

// The documents of a packed sample: their tokens, and a last label.
std::vector<std::vector<int32_t>> documents_of(const Sample& s) {
  std::vector<std::vector<int32_t>> out;
  for (size_t i = 0; i < s.tokens.size(); ++i) {
    if (s.positions[i] == 0) out.emplace_back();
    EXPECT_EQ(s.documents[i], static_cast<int32_t>(out.size()) - 1);
    EXPECT_EQ(s.positions[i], static_cast<int32_t>(out.back().size()));
    out.back().push_back(s.tokens[i]);
    if (i + 1 == s.tokens.size() || s.positions[i + 1] == 0) out.back().push_back(s.labels[i]);
  }
  return out;
}

std::vector<int64_t> some_lengths(int count, int longest) {
  std::mt19937 random(5);
  std::vector<int64_t> out;
  for (int i = 0; i < count; ++i) out.push_back(1 + static_cast<int64_t>(random() % static_cast<unsigned>(longest)));
  return out;
}

TEST(Packing, EveryPieceIsOnceInEachEpoch) {
  const std::vector<int64_t> lengths = some_lengths(500, 70);
  const auto source = std::make_shared<Texts>(lengths);
  const PackedDataset data(source, {0, 500}, {.context = 32, .exchange = true, .seed = 3});
  // What must be there: records, those above 33 tokens in pieces.
  std::multiset<std::vector<int32_t>> expected;
  int64_t begin = 0, positions = 0;
  for (int64_t length : lengths) {
    for (int64_t at = 0; at < length - 1; at += 32) {
      std::vector<int32_t> piece;
      for (int64_t i = at; i <= std::min(at + 32, length - 1); ++i) piece.push_back(Texts::token(begin + i));
      positions += static_cast<int64_t>(piece.size()) - 1;
      expected.insert(piece);
    }
    begin += length;
  }
  EXPECT_LE(data.size(), 1 + positions * 101 / 3200) << "more than a hundredth is padding";
  std::set<std::vector<int32_t>> first_samples;
  for (int64_t epoch : {0, 1, 5}) {
    std::multiset<std::vector<int32_t>> found;
    for (int64_t i = 0; i < data.size(); ++i) {
      const Sample s = sample_of(data, epoch, i);
      EXPECT_EQ(s, sample_of(data, epoch, i));
      for (auto& document : documents_of(s))
        if (document.back() != kIgnoreIndex) found.insert(document);
    }
    EXPECT_EQ(found, expected) << "epoch " << epoch;
    first_samples.insert(sample_of(data, epoch, data.size() - 1).tokens);
  }
  EXPECT_GT(first_samples.size(), 1u) << "records of equal length stay where they are";
}

TEST(Packing, PaddedRecordsAndTargets) {
  const auto source = std::make_shared<Texts>(std::vector<int64_t>{3, 1, 6}, true);
  const PackedDataset data(source, {0, 3}, {.context = 4, .ignore_tokens = {Texts::token(2)}, .pad = true});
  ASSERT_EQ(data.size(), 3) << "a record of one token has no label; six tokens are two pieces";
  EXPECT_EQ(data.spec().find("documents"), nullptr);
  for (const auto& [index, length] : {std::pair(0, 2), std::pair(1, 4), std::pair(2, 1)})
    EXPECT_EQ(data.length(0, index), length);
  const auto t = [](int64_t i) { return Texts::token(i); };
  constexpr int32_t kNone = kIgnoreIndex;
  Sample s = sample_of(data, 0, 0);
  EXPECT_EQ(s.tokens, (std::vector<int32_t>{t(0), t(1), 0, 0}));
  EXPECT_EQ(s.labels, (std::vector<int32_t>{t(1), kNone, kNone, kNone})) << "token 2 is ignored";
  s = sample_of(data, 0, 1);
  EXPECT_EQ(s.tokens, (std::vector<int32_t>{t(4), t(5), t(6), t(7)}));
  EXPECT_EQ(s.labels, (std::vector<int32_t>{t(5), kNone, t(7), t(8)})) << "token 6 is no target";
  s = sample_of(data, 0, 2);
  EXPECT_EQ(s.tokens, (std::vector<int32_t>{t(8), 0, 0, 0}));
  EXPECT_EQ(s.labels, (std::vector<int32_t>{kNone, kNone, kNone, kNone})) << "token 9 is no target";
}

TEST(Packing, HiddenTokensOfPaddedRecords) {
  const auto source = std::make_shared<Texts>(std::vector<int64_t>(200, 7));
  const PackedDataset data(source, {0, 200}, {.context = 5, .pad = true, .seed = 4, .mask = 0.4});
  ASSERT_EQ(data.size(), 400) << "pieces of five and two tokens";
  EXPECT_EQ(data.spec().classes, 32) << "and the mask";
  EXPECT_FALSE(data.spec().next_tokens);
  int64_t hidden = 0, shown = 0, other_epoch = 0;
  for (int64_t i = 0; i < data.size(); ++i) {
    const Sample s = sample_of(data, 1, i), later = sample_of(data, 2, i);
    const int64_t count = i % 2 ? 2 : 5, begin = i / 2 * 7 + i % 2 * 5;
    EXPECT_EQ(data.length(1, i), count);
    for (int64_t t = 0; t < 5; ++t) {
      const auto at = static_cast<size_t>(t);
      EXPECT_EQ(s.documents[at], t >= count);
      EXPECT_EQ(s.positions[at], t < count ? t : t - count);
      if (t >= count) {
        EXPECT_EQ(s.labels[at], kIgnoreIndex);
        continue;
      }
      if (s.labels[at] == kIgnoreIndex) {
        EXPECT_EQ(s.tokens[at], Texts::token(begin + t));
      } else {
        EXPECT_EQ(s.labels[at], Texts::token(begin + t));
        ++hidden, shown += s.tokens[at] != 31;
      }
      other_epoch += (s.labels[at] == kIgnoreIndex) != (later.labels[at] == kIgnoreIndex);
    }
  }
  EXPECT_NEAR(static_cast<double>(hidden) / 1400, 0.4, 0.04);
  EXPECT_NEAR(static_cast<double>(shown) / static_cast<double>(hidden), 0.2, 0.05);
  EXPECT_GT(other_epoch, 300);
}

TEST(Subsets, SpreadOverTheData) {
  const auto source = std::make_shared<Texts>(std::vector<int64_t>(10, 3));
  const PackedDataset data(source, {0, 10}, {.context = 2, .pad = true});
  const Subset some(data, 4);
  ASSERT_EQ(some.size(), 4);
  const int64_t expected[] = {0, 2, 5, 7};
  for (int64_t i = 0; i < 4; ++i) EXPECT_EQ(sample_of(some, 0, i), sample_of(data, 0, expected[i])) << i;
  const Subset all(data, 10);
  for (int64_t i = 0; i < 10; ++i) EXPECT_EQ(sample_of(all, 0, i), sample_of(data, 0, i)) << i;
}

// The first tokens of an epoch's samples, by source: source s has tokens 10 s, 10 s + 1, ...
class Numbers final : public Dataset {
 public:
  Numbers(int64_t first, int64_t size) : first_(first), size_(size) {
    spec_ = {{{"tokens", DType::kInt32, {1}}, {"labels", DType::kInt32, {1}}}, 100};
  }
  int64_t size() const override { return size_; }
  const DataSpec& spec() const override { return spec_; }
  Hash128 identity() const override { return {1, static_cast<uint64_t>(first_)}; }
  const Vocabulary* vocabulary() const override { return nullptr; }
  void read(int64_t epoch, int64_t index, SampleMemory sample) const override {
    *static_cast<int32_t*>(sample[0]) = static_cast<int32_t>(first_ + index);
    *static_cast<int32_t*>(sample[1]) = static_cast<int32_t>(epoch);
  }

 private:
  int64_t first_, size_;
  DataSpec spec_;
};

TEST(Mixtures, EverySourceCountsItsOwnEpochs) {
  const auto a = std::make_shared<Numbers>(10, 6), b = std::make_shared<Numbers>(20, 4);
  for (const bool shuffle : {false, true}) {
    const Mixture data({a, b}, {{1, 3}, shuffle, 5});
    ASSERT_EQ(data.size(), 10);
    // Of ten samples 2.5 and 7.5: rounded to 3 and 7, the same in every epoch.
    std::map<std::pair<int64_t, int32_t>, int> seen;  // by the source's own epoch and sample
    for (int64_t epoch = 0; epoch < 4; ++epoch) {
      int64_t of_b = 0;
      for (int64_t i = 0; i < data.size(); ++i) {
        const Sample s = sample_of(data, epoch, i);
        of_b += s.tokens[0] >= 20;
        ++seen[{s.labels[0], s.tokens[0]}];
      }
      EXPECT_EQ(of_b, 7);
    }
    // Of a 4 * 3 samples were drawn: two of its epochs, each sample once in each. Of b 4 * 7: seven.
    EXPECT_EQ(seen.size(), 2u * 6 + 7 * 4);
    for (const auto& [which, times] : seen) EXPECT_EQ(times, 1) << which.first << " " << which.second;
  }
  const Mixture joined({a, b}, {});
  std::set<int32_t> once;
  for (int64_t i = 0; i < joined.size(); ++i) once.insert(sample_of(joined, 2, i).tokens[0]);
  EXPECT_EQ(once.size(), 10u);
  EXPECT_FALSE(joined.identity() == Mixture({b, a}, {}).identity());
  EXPECT_FALSE(joined.identity() == Mixture({a, b}, {{1, 1}}).identity());
  expect_error(ExitCode::kConfig, {"the weight of source 1 gives it none of the 10 samples"}, [&] {
    Mixture({a, b}, {{1, 0.01}});
  });
}

// What docs/data.md says of the samples of a source, in the order in which a run reads them.
TEST(Mixtures, SamplesOfASourceComeEquallyOftenInWholeEpochs) {
  const auto small = std::make_shared<Numbers>(100, 7), large = std::make_shared<Numbers>(200, 30);
  for (const double weight : {1.0, 0.1, 0.02}) {  // the small one has 19, 3 and 1 of 37 samples
    const Mixture data({small, large}, {{weight, 1}, true, 5});
    const SampleOrder order(data, {.seed = 9, .step = 4});
    std::map<int32_t, int64_t> times;
    for (int32_t i = 0; i < 7; ++i) times[100 + i] = 0;
    for (int32_t i = 0; i < 30; ++i) times[200 + i] = 0;
    for (int64_t epoch = 0; epoch < 12; ++epoch) {
      for (const int64_t index : order(epoch, {0, data.size()})) ++times[sample_of(data, epoch, index).tokens[0]];
      for (const int32_t first : {100, 200}) {
        int64_t least = INT64_MAX, most = 0;
        for (const auto& [sample, count] : times)
          if ((sample < 200) == (first == 100)) least = std::min(least, count), most = std::max(most, count);
        EXPECT_LE(most - least, 1) << "weight " << weight << ", source of " << first << " after epoch " << epoch;
      }
    }
  }
}

TEST(Mixtures, WithinAnEpochASampleMayComeAgainBeforeAnotherComes) {
  const auto small = std::make_shared<Numbers>(100, 7), large = std::make_shared<Numbers>(200, 30);
  const Mixture data({small, large}, {{1, 1}, true, 5});
  const SampleOrder order(data, {.seed = 9, .step = 4});
  std::vector<int32_t> drawn;  // of the small one, in the order of the run
  for (const int64_t index : order(0, {0, data.size()}))
    if (const int32_t sample = sample_of(data, 0, index).tokens[0]; sample < 200) drawn.push_back(sample);
  EXPECT_EQ(drawn.size(), 19u);
  EXPECT_LT(std::set<int32_t>(drawn.begin(), drawn.begin() + 7).size(), 7u);
}

// Tensors [rows, context] of all samples of a dataset.
Batch batch_of(const Dataset& data) {
  Batch batch;
  const int64_t context = data.spec().input().shape[0];
  for (size_t which = 0; which < data.spec().tensors.size(); ++which) {
    std::vector<int32_t> all;
    for (int64_t i = 0; i < data.size(); ++i) {
      const Sample s = sample_of(data, 0, i);
      const auto& part = which == 0 ? s.tokens : which == 1 ? s.labels : which == 2 ? s.documents : s.positions;
      all.insert(all.end(), part.begin(), part.end());
    }
    batch.add(data.spec().tensors[which].name, Tensor::of(all, {data.size(), context}));
  }
  return batch;
}

struct Learnt {
  double loss = 0;
  std::map<std::string, std::vector<double>> gradients;
};

void add_pass(Model& model, const Batch& batch, Learnt& out) {
  for (const NamedParameter& p : model.parameters()) require_grad(p.parameter->value);
  const Tensor loss = cross_entropy(model.output_of(batch), batch[kLabels]);
  out.loss += loss.item();
  backward(loss);
  for (const NamedParameter& p : model.parameters()) {
    std::vector<double>& sum = out.gradients[p.name];
    const std::vector<double> one = grad_of(p.parameter->value).to_vector();
    sum.resize(one.size());
    for (size_t i = 0; i < one.size(); ++i) sum[i] += one[i];
    clear_grad(p.parameter->value);
  }
}

// The sum over records, each alone in a row of its own length, against packed rows and padded ones.
template <class M, class Options>
void same_packed_or_alone(const Options& options, Recompute recompute) {
  const std::vector<int64_t> lengths = {9, 4, 17, 2, 12, 25, 7, 3};
  const auto source = std::make_shared<Texts>(lengths, true);
  M model(options, {{24}, 31});
  model.name_tree();
  place_parameters(model, 7);
  apply_recompute(model, recompute);
  Learnt alone, packed, padded;
  for (int64_t i = 0; i < source->records(); ++i) {
    const PackedDataset one(source, {i, i + 1}, {.context = lengths[static_cast<size_t>(i)] - 1, .pad = true});
    add_pass(model, batch_of(one), alone);
  }
  const PackedDataset pack(source, {0, 8}, {.context = 24}), pad(source, {0, 8}, {.context = 24, .pad = true});
  EXPECT_LT(pack.size(), pad.size());
  add_pass(model, batch_of(pack), packed);
  add_pass(model, batch_of(pad), padded);
  for (const Learnt* other : {&packed, &padded}) {
    EXPECT_NEAR(other->loss, alone.loss, 1e-6 * alone.loss);
    for (const auto& [name, sum] : alone.gradients) {
      double largest = 0;
      for (double v : sum) largest = std::max(largest, std::abs(v));
      EXPECT_GT(largest, 0) << name;
      const std::vector<double>& theirs = other->gradients.at(name);
      for (size_t i = 0; i < sum.size(); ++i) ASSERT_NEAR(theirs[i], sum[i], 2e-5 * largest) << name << " " << i;
    }
  }
}

TEST(Packing, AGptLearnsTheSame) {
  GptOptions o;
  o.layers = 2, o.heads = 2, o.width = 16;
  for (Recompute mode : {Recompute::kNone, Recompute::kBlock, Recompute::kAttention})
    same_packed_or_alone<Gpt>(o, mode);
}

TEST(Packing, ALlamaLearnsTheSame) {
  LlamaOptions o;
  o.layers = 2, o.heads = 4, o.kv_heads = 2, o.width = 16;
  same_packed_or_alone<Llama>(o, Recompute::kNone);
  o.window = 5;
  same_packed_or_alone<Llama>(o, Recompute::kBlock);
}

TEST(Packing, WhatDoesNotFitIsRefused) {
  DataOptions o;
  o.name = "synthetic_tokens", o.context = 8, o.packing = Packing::kPack;
  expect_error(ExitCode::kConfig, {"data.packing is set, but the data has no records"}, [&] { open_datasets(o, 1); });
  const auto source = std::make_shared<Texts>(std::vector<int64_t>{1, 1});
  expect_error(ExitCode::kConfig, {"none of 2 records has two tokens"}, [&] {
    PackedDataset(source, {0, 2}, {.context = 8});
  });
}

}  // namespace
}  // namespace lockstep::packing_test
