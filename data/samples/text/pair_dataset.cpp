#include "data/samples/text/pair_dataset.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/base/trace.h"

namespace lockstep {
namespace {

using Marks = std::span<const uint8_t>;

// The next run of targets from `at` on; empty where there is none.
IndexRange run_of_targets(Marks targets, int64_t at) {
  const auto begin = std::find(targets.begin() + at, targets.end(), 1), end = std::find(begin, targets.end(), 0);
  return {begin - targets.begin(), end - targets.begin()};
}

}  // namespace

AnswerStarts starts_of_answers(const PairedRecord& chosen, const PairedRecord& rejected) {
  const auto first_run = [](const PairedRecord& record, const char* name) {
    const IndexRange run = run_of_targets(record.targets, 0);
    require(!run.empty(), ExitCode::kBadData, "the ", name, " answer has no token that is a target");
    return run;
  };
  IndexRange a = first_run(chosen, "chosen"), b = first_run(rejected, "rejected");
  const auto same_up_to = [&](int64_t end) {
    return std::equal(chosen.tokens.begin(), chosen.tokens.begin() + end, rejected.tokens.begin());
  };
  while (a.begin == b.begin && a.end == b.end && same_up_to(a.end)) {  // a turn that both have
    const IndexRange next_a = run_of_targets(chosen.targets, a.end), next_b = run_of_targets(rejected.targets, b.end);
    if (next_a.empty() || next_b.empty()) break;
    a = next_a, b = next_b;
  }
  require(same_up_to(std::min(a.begin, b.begin)), ExitCode::kBadData,
          "the prompts of its chosen and its rejected answer differ");
  return {a.begin, b.begin};
}

PairDataset::PairDataset(std::shared_ptr<const TokenSource> source, IndexRange pairs, PairOptions options)
    : source_(std::move(source)), options_(std::move(options)) {
  const int64_t context = options_.context;
  check(context > 0 && context <= INT32_MAX && pairs.begin >= 0 && pairs.end <= source_->records(), "pairs of ",
        context, " tokens from [", pairs.begin, ", ", pairs.end, ")");
  std::sort(options_.ignore_tokens.begin(), options_.ignore_tokens.end());
  for (std::string_view name : {std::string_view("tokens"), std::string_view("documents"),
                                std::string_view("positions"), kNextTokens, kAnswers})
    spec_.tensors.push_back({std::string(name), DType::kInt32, {2 * context}});
  spec_.classes = source_->vocabulary_size();
  spec_.unit = "tokens";
  spec_.units = 2 * context;
  spec_.longest = context;
  spec_.next_tokens = true;
  spec_.length_buckets = options_.buckets;
  spec_.records = pairs.size();
  int64_t number = 0;
  source_->visit_pairs([&](IndexRange chosen, IndexRange rejected) {
    const int64_t pair = number++;
    if (pair >= pairs.begin && pair < pairs.end) add(pair, chosen, rejected);
  });
  require(
      !pairs_.empty(), ExitCode::kConfig, "data.context is ", context, ", but in none of ", pairs.size(),
      " pairs do both answers have a token within it that counts: raise data.context, as prompts fill it, or shorten "
      "data.ignore_tokens");
}

void PairDataset::add(int64_t number, IndexRange chosen, IndexRange rejected) {
  const Read a = read_record(chosen), b = read_record(rejected);
  AnswerStarts starts;
  try {
    starts = starts_of_answers(a.record(), b.record());
  } catch (const Error& e) {
    throw e.with_message(str(source_->name(), ": pair ", number, ": ", e.what(), "; import the data again"));
  }
  Pair pair{chosen, rejected, starts};
  bool whole = true;
  for (IndexRange* record : {&pair.chosen, &pair.rejected}) {
    spec_.longest_record = std::max(spec_.longest_record, record->size());
    if (record->size() - 1 <= options_.context) continue;
    whole = false;
    record->end = record->begin + options_.context + 1;
  }
  if (!whole) ++spec_.long_records;
  const auto has_answer = [&](const Read& read, IndexRange record, int64_t start) {
    for (int64_t i = start; i < record.size(); ++i)
      if (counts(read, i)) return true;
    return false;
  };
  if (has_answer(a, pair.chosen, starts.chosen) && has_answer(b, pair.rejected, starts.rejected))
    pairs_.push_back(pair);
}

PairDataset::Read PairDataset::read_record(IndexRange tokens) const {
  Read out{std::vector<int32_t>(static_cast<size_t>(tokens.size())),
           std::vector<uint8_t>(static_cast<size_t>(tokens.size()), 1)};
  source_->read(tokens, out.tokens.data());
  if (source_->has_targets()) source_->read_targets(tokens, out.targets.data());
  return out;
}

// Nothing predicts a record's first token.
bool PairDataset::counts(const Read& record, int64_t token) const {
  const auto i = static_cast<size_t>(token);
  return token > 0 && record.targets[i] &&
         !std::binary_search(options_.ignore_tokens.begin(), options_.ignore_tokens.end(), int64_t{record.tokens[i]});
}

int64_t PairDataset::length(int64_t, int64_t index) const {
  const Pair& pair = pairs_[static_cast<size_t>(index)];
  return std::max<int64_t>(1, pair.chosen.size() + pair.rejected.size() - 2);
}

void PairDataset::read(int64_t, int64_t index, SampleMemory sample) const {
  trace_mark();
  check(index >= 0 && index < size(), "pair ", index, " of ", size());
  const Pair& pair = pairs_[static_cast<size_t>(index)];
  const Read chosen = read_record(pair.chosen), rejected = read_record(pair.rejected);
  const auto tensor = [&](size_t i) { return static_cast<int32_t*>(sample[i]); };
  int32_t *ids = tensor(0), *documents = tensor(1), *positions = tensor(2), *next = tensor(3), *answers = tensor(4);
  int64_t at = 0;
  const auto mark = [&](int64_t end, int32_t document) {
    for (int32_t i = 0; at < end; ++at, ++i) documents[at] = document, positions[at] = document < 2 ? i : 0;
  };
  const auto put = [&](const Read& record, int64_t start, int32_t document) {
    const int64_t count = std::ssize(record.tokens) - 1;
    std::copy_n(record.tokens.begin(), count, ids + at);
    std::copy_n(record.tokens.begin() + 1, count, next + at);
    for (int64_t i = 0; i < count; ++i) answers[at + i] = i + 1 >= start && counts(record, i + 1) ? 1 : 0;
    mark(at + count, document);
  };
  put(chosen, pair.starts.chosen, 0);
  put(rejected, pair.starts.rejected, 1);
  std::fill(ids + at, ids + spec_.units, 0);
  std::fill(next + at, next + spec_.units, kIgnoreIndex);
  std::fill(answers + at, answers + spec_.units, 0);
  mark(spec_.units, 2);
}

}  // namespace lockstep
