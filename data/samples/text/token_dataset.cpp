#include "data/samples/text/token_dataset.h"

#include <algorithm>
#include <cstring>

#include "core/base/error.h"
#include "core/base/hash.h"
#include "core/base/trace.h"
#include "data/samples/sampler.h"

namespace lockstep {
namespace {

constexpr uint64_t kOrigin = 0x6f726967696e, kMask = 0x6d61736b;

template <class T>
void widen(const uint8_t* bytes, int64_t count, int32_t* out) {
  const T* ids = reinterpret_cast<const T*>(bytes);
  for (int64_t i = 0; i < count; ++i) out[i] = static_cast<int32_t>(ids[i]);
}

}  // namespace

void FileTokens::read(IndexRange tokens, int32_t* out) const {
  const StoredRows& rows = *file_->rows;
  rows.visit(tokens, [&](IndexRange piece, const uint8_t* bytes) {
    int32_t* to = out + (piece.begin - tokens.begin);
    switch (rows.row_bytes()) {
      case 1: return widen<uint8_t>(bytes, piece.size(), to);
      case 2: return widen<uint16_t>(bytes, piece.size(), to);
      default: return widen<uint32_t>(bytes, piece.size(), to);
    }
  });
  if (!file_->token_of.empty())
    for (int64_t i = 0; i < tokens.size(); ++i) out[i] = file_->token_of[static_cast<size_t>(out[i])];
}

void FileTokens::read_targets(IndexRange tokens, uint8_t* out) const {
  file_->targets->visit(tokens, [&](IndexRange piece, const uint8_t* bytes) {
    std::copy(bytes, bytes + piece.size(), out + (piece.begin - tokens.begin));
  });
}

void FileTokens::visit_records(const std::function<void(IndexRange tokens)>& use) const {
  if (!paired()) return lockstep::visit_records(*file_, use);
  visit_pairs([&](IndexRange chosen, IndexRange) { use(chosen); });
}

void FileTokens::visit_pairs(const std::function<void(IndexRange chosen, IndexRange rejected)>& use) const {
  int64_t record = 0;
  IndexRange chosen;
  lockstep::visit_records(*file_, [&](IndexRange tokens) {
    if (record++ % 2 == 0) chosen = tokens;
    else use(chosen, tokens);
  });
}

void ignore_labels(const TokenSource& source, IndexRange tokens, const std::vector<int64_t>& ignored, int32_t* labels) {
  if (!ignored.empty())
    for (int64_t i = 0; i < tokens.size(); ++i)
      if (std::binary_search(ignored.begin(), ignored.end(), int64_t{labels[i]})) labels[i] = kIgnoreIndex;
  if (!source.has_targets()) return;
  std::vector<uint8_t> marks(static_cast<size_t>(tokens.size()));
  source.read_targets(tokens, marks.data());
  for (size_t i = 0; i < marks.size(); ++i)
    if (!marks[i]) labels[i] = kIgnoreIndex;
}

TokenDataset::TokenDataset(std::shared_ptr<const TokenSource> source, IndexRange part, WindowOptions options)
    : source_(std::move(source)), part_(part), options_(std::move(options)) {
  int64_t context = options_.context, tokens = part_.size();
  check(context > 0 && part_.begin >= 0 && part_.end <= source_->size(), "windows of ", context, " tokens in [",
        part_.begin, ", ", part_.end, ")");
  int64_t needed = options_.moving_origin ? context + 1 : 2;
  require(tokens >= needed, ExitCode::kConfig, "data.context is ", context, ", but the ",
          options_.moving_origin ? "training" : "validation", " part of the text has only ", tokens,
          " tokens; use a shorter context or more text");
  // With a moving origin: one window fewer than fit from origin 0, so that the same number fits from every origin.
  size_ = options_.moving_origin ? std::max<int64_t>(1, tokens / context - 1) : ceil_div(tokens - 1, context);
  std::sort(options_.ignore_tokens.begin(), options_.ignore_tokens.end());
  spec_ = {{{"tokens", DType::kInt32, {context}}, {std::string(kLabels), DType::kInt32, {context}}},
           options_.mask > 0 ? masked_ids(*source_) : source_->vocabulary_size(),
           "tokens",
           context,
           options_.mask == 0};
}

int64_t TokenDataset::origin(int64_t epoch) const {
  if (!options_.moving_origin) return 0;
  int64_t places = std::min(options_.context, part_.size() - size_ * options_.context);
  return random_below(places, kOrigin, options_.seed, epoch);
}

int64_t masked_ids(const TokenSource& source) {
  const bool own = source.vocabulary() && source.vocabulary()->mask() >= 0;
  return source.vocabulary_size() + (own ? 0 : 1);
}

void Masking::hide(const TokenSource& source, int64_t epoch, int64_t sample, int64_t count, int32_t* ids,
                   int32_t* targets) const {
  const int64_t vocabulary = source.vocabulary_size();
  const Vocabulary* words = source.vocabulary() && source.vocabulary()->mask() >= 0 ? source.vocabulary() : nullptr;
  const int32_t mask = words ? words->mask() : static_cast<int32_t>(vocabulary);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t key[] = {epoch, sample, i};
    const uint64_t random = hash64(key, sizeof key, seed ^ kMask);
    const bool hidden =
        static_cast<double>(random >> 40) < share * (1 << 24) && !(words && words->is_never_hidden(ids[i]));
    targets[i] = hidden ? ids[i] : kIgnoreIndex;
    if (!hidden) continue;
    const uint64_t kind = random % 10, other = random / 10 % static_cast<uint64_t>(vocabulary);
    if (kind < 8) ids[i] = mask;
    else if (kind == 8) ids[i] = static_cast<int32_t>(other);
  }
}

void TokenDataset::read(int64_t epoch, int64_t index, SampleMemory sample) const {
  trace_mark();
  check(index >= 0 && index < size_, "sample ", index, " of ", size_);
  int64_t context = options_.context, begin = part_.begin + origin(epoch) + index * context;
  int64_t count = std::min(context, part_.end - 1 - begin);  // positions that have a target
  int32_t *ids = static_cast<int32_t*>(sample[0]), *target = static_cast<int32_t*>(sample[1]);
  source_->read({begin, begin + count}, ids);
  if (options_.mask > 0) {
    Masking{options_.mask, options_.seed}.hide(*source_, epoch, index, count, ids, target);
  } else {
    std::copy(ids + 1, ids + count, target);
    source_->read({begin + count, begin + count + 1}, target + count - 1);
  }
  const int64_t first = begin + (options_.mask == 0);  // the token of the first label
  ignore_labels(*source_, {first, first + count}, options_.ignore_tokens, target);
  std::fill(ids + count, ids + context, 0);
  std::fill(target + count, target + context, kIgnoreIndex);
}

}  // namespace lockstep
