#include "core/decode/decoder.h"

#include <algorithm>
#include <utility>

#include "core/base/trace.h"
#include "core/tensor/raw_ops.h"

namespace lockstep {
namespace {

// A pass of its own costs what about so many tokens more in another pass do. Rows of one pass are padded to the
// longest.
constexpr int64_t kPassCost = 16;
// Tokens of a pass with several rows at most: bounds its activations.
constexpr int64_t kMostPassTokens = 4096;

// fp32, whatever the model computes in.
Tensor on_host(const Tensor& logits) { return raw::to_host(raw::cast(logits, DType::kFloat32)); }

Tensor on_device(const std::vector<int32_t>& tokens, const Shape& shape) {
  return raw::to_device(Tensor::of(tokens, shape), current_device());
}

bool ends_in(std::span<const int32_t> text, const std::vector<int32_t>& end) {
  return text.size() >= end.size() && std::equal(end.begin(), end.end(), text.end() - static_cast<int64_t>(end.size()));
}

const TaskSpec& require_text(const TaskSpec& task) {
  require(task.input.rank() == 1 && task.input[0] > 0 && task.classes > 0, ExitCode::kUsage,
          "Decoder: the task's samples are ", task.input, " with ", task.classes,
          " classes; it continues tokens [T] of a vocabulary");
  return task;
}

DecoderOptions resolved(DecoderOptions o, int64_t context, const TokenTransformer* cached) {
  require(o.places > 0, ExitCode::kUsage, "Decoder: places ", o.places, ": must be 1 or more");
  require(o.place_tokens >= 0, ExitCode::kUsage, "Decoder: place_tokens ", o.place_tokens, ": must be 0 or more");
  require(o.prompt_chunk >= 0, ExitCode::kUsage, "Decoder: prompt_chunk ", o.prompt_chunk, ": must be 0 or more");
  o.place_tokens = o.place_tokens == 0 ? context : std::min(o.place_tokens, context);
  if (cached) o.place_tokens = std::min(o.place_tokens, cached->cached_tokens());
  return o;
}

// Null where the model keeps no keys and values.
TokenTransformer* transformer_of(Model& model) {
  auto* transformer = dynamic_cast<TokenTransformer*>(&model);
  return transformer && transformer->takes_cache() ? transformer : nullptr;
}

}  // namespace

const char* to_text(Finish finish) {
  switch (finish) {
    case Finish::kNone: return "none";
    case Finish::kEnd: return "end";
    case Finish::kStop: return "stop";
    case Finish::kLength: return "length";
    case Finish::kCancelled: return "cancelled";
  }
  return "";
}

Decoder::Decoder(Model& model, const TaskSpec& task, const DecoderOptions& options)
    : model_(model),
      context_(require_text(task).input[0]),
      classes_(task.classes),
      options_(resolved(options, context_, options.cache ? transformer_of(model) : nullptr)),
      transformer_(options.cache ? transformer_of(model) : nullptr),
      cache_(transformer_ ? options_.places : 0, options_.place_tokens) {
  require(model.traits().causal, ExitCode::kUsage, "Decoder: the model does not predict the next token of a text");
  check(!model.training(), "Decoder: the model is in training; call its eval() before");
}

void Decoder::require_admissible(const DecodeRequest& r) const {
  require(free_places() > 0, ExitCode::kUsage, "Decoder: all ", places(),
          " places are taken; admit a text once free_places() says that one has ended");
  require(!r.prompt.empty(), ExitCode::kUsage, "Decoder: the prompt has no tokens");
  const auto size = static_cast<int64_t>(r.prompt.size());
  require(r.slides || size <= place_tokens(), ExitCode::kUsage, "Decoder: the prompt has ", size,
          " tokens, a place room for ", place_tokens(), " (place_tokens; the model's context is ", context_, ")");
  for (const int32_t token : r.prompt)
    require(token >= 0 && token < classes_, ExitCode::kUsage, "Decoder: the prompt has the token ", token,
            "; the model's are 0 to ", classes_ - 1);
  require(r.tokens > 0 || (r.tokens == 0 && r.prompt_log_probs), ExitCode::kUsage, "Decoder: tokens ", r.tokens,
          ": must be 1 or more, or 0 with prompt_log_probs");
  require(!r.log_probs || *r.log_probs >= 0, ExitCode::kUsage, "Decoder: log_probs ", r.log_probs.value_or(0),
          ": must be 0 or more");
  require(!r.prompt_log_probs || (r.log_probs && size <= context_), ExitCode::kUsage,
          "Decoder: prompt_log_probs needs log_probs and a prompt of at most ", context_,
          " tokens, the model's context; this one has ", size);
  for (const auto& stop : r.stops) require(!stop.empty(), ExitCode::kUsage, "Decoder: one of stops has no tokens");
  require_valid(r.sampling);
}

int64_t Decoder::admit(DecodeRequest request) {
  trace_mark();
  require_admissible(request);
  rows_.reserve(static_cast<size_t>(places()));
  sequences_.push_back({.id = next_id_, .request = std::move(request), .text = {}});
  Sequence& s = sequences_.back();
  s.text = s.request.prompt;
  if (transformer_ && s.request.tokens > 0 && s.size() <= place_tokens()) {
    s.row = static_cast<int64_t>(rows_.size());
    rows_.push_back(&s);
    cache_.truncate(s.row, 0);
  }
  return next_id_++;
}

std::vector<Decoded> Decoder::step() {
  trace_mark();
  const NoGrad no_grad;
  // All but the last token, where a step failed after some of its passes.
  for (const Sequence* s : rows_) cache_.truncate(s->row, std::min(cache_.length(s->row), s->size() - 1));
  for (int64_t first = 0, end = 0; first < static_cast<int64_t>(rows_.size()); first = end)
    pass_over_rows(first, end = end_of_pass(first));
  const auto waits = [](const Sequence& s) { return s.request.prompt_log_probs && !s.scored; };
  if (const auto s = std::find_if(sequences_.begin(), sequences_.end(), waits); s != sequences_.end()) score_prompt(*s);
  for (Sequence& s : sequences_)
    if (s.row == kNoRow && s.request.tokens > 0) pass_over_text(s);
  std::vector<Decoded> out = std::exchange(cancelled_, {});
  for (auto s = sequences_.begin(); s != sequences_.end();) {
    const bool chosen = std::exchange(s->chosen, false);
    if ((!chosen && s->request.tokens > 0) || waits(*s)) {  // a token that was chosen is chosen again
      ++s;
      continue;
    }
    out.push_back(append_next(*s));
    if (out.back().finish == Finish::kNone) {
      ++s;
    } else {
      leave_row(*s);
      s = sequences_.erase(s);
    }
  }
  return out;
}

bool Decoder::cancel(int64_t id) {
  const auto s =
      std::find_if(sequences_.begin(), sequences_.end(), [&](const Sequence& each) { return each.id == id; });
  if (s == sequences_.end()) return false;
  leave_row(*s);
  sequences_.erase(s);
  cancelled_.push_back({id, std::nullopt, Finish::kCancelled});
  return true;
}

// The last row in use takes the place of the one that is left, so that passes are of rows that follow each other.
void Decoder::leave_row(Sequence& s) {
  if (s.row == kNoRow) return;
  Sequence& last = *rows_.back();
  if (&last != &s) {
    cache_.move(last.row, s.row);
    rows_[static_cast<size_t>(s.row)] = &last;
    last.row = s.row;
  }
  rows_.pop_back();
  s.row = kNoRow;
}

// How many tokens of a row the next pass reads.
int64_t Decoder::pending(int64_t row) const {
  const int64_t unread = rows_[static_cast<size_t>(row)]->size() - cache_.length(row);
  return options_.prompt_chunk > 0 ? std::min(unread, options_.prompt_chunk) : unread;
}

// The rows of one pass are those from `first` to before the returned one: a row joins where that costs less than a pass
// of its own.
int64_t Decoder::end_of_pass(int64_t first) const {
  int64_t longest = 0, padded = 0, end = first;
  for (; end < static_cast<int64_t>(rows_.size()); ++end) {
    const int64_t count = pending(end);
    longest = std::max(longest, count);
    const int64_t joined = longest * (end - first + 1);
    if (end > first && (joined > padded + count + kPassCost || joined > kMostPassTokens)) break;
    padded = joined;
  }
  return end;
}

// Computes the tokens that the cache does not have yet. The one place that goes on from a cache.
void Decoder::pass_over_rows(int64_t first, int64_t end) {
  trace_mark();
  int64_t time = 0;
  std::vector<int64_t> counts;
  for (int64_t row = first; row < end; ++row) {
    counts.push_back(pending(row));
    time = std::max(time, counts.back());
  }
  std::vector<int32_t> tokens(static_cast<size_t>((end - first) * time));
  for (int64_t row = first; row < end; ++row) {
    const std::vector<int32_t>& text = rows_[static_cast<size_t>(row)]->text;
    std::copy_n(text.begin() + cache_.length(row), counts[static_cast<size_t>(row - first)],
                tokens.begin() + (row - first) * time);
  }
  Tensor logits;
  {
    const CachedPass pass(cache_, counts, first);
    logits = on_host((*transformer_)(on_device(tokens, {end - first, time}), pass.scope()));
  }
  for (int64_t row = first; row < end; ++row) {
    Sequence& s = *rows_[static_cast<size_t>(row)];
    if (cache_.length(row) == s.size()) choose(s, logits, row - first);
  }
}

// Computes all tokens that the model sees.
void Decoder::pass_over_text(Sequence& s) {
  const int64_t used = std::min(s.size(), context_);
  const Tensor logits = model_(on_device({s.text.end() - used, s.text.end()}, {1, used}));
  choose(s, on_host(logits.slice(1, used - 1, used)), 0);
}

// Computes the log-probabilities of the prompt's tokens, in one pass without the cache.
void Decoder::score_prompt(Sequence& s) {
  trace_mark();
  const std::vector<int32_t>& prompt = s.request.prompt;
  s.scored = prompt.size() < 2;
  if (s.scored) return;
  const auto inputs = static_cast<int64_t>(prompt.size()) - 1;
  const Tensor logits = on_host(model_(on_device({prompt.begin(), prompt.end() - 1}, {1, inputs})));
  const int64_t width = logits.dim(-1);
  std::vector<LogProbs> out;
  for (int64_t t = 0; t < inputs; ++t) {
    out.push_back(log_probs_of({logits.values<float>() + t * width, static_cast<size_t>(width)}, classes_,
                               prompt[static_cast<size_t>(t) + 1], *s.request.log_probs));
  }
  s.prompt = std::move(out);
  s.scored = true;
}

// logits: fp32 [rows, 1, N], N at least the vocabulary.
void Decoder::choose(Sequence& s, const Tensor& logits, int64_t row) const {
  trace_mark();
  const int64_t width = logits.dim(-1);
  check(width >= classes_, "Decoder: the model returned logits ", logits, " for a vocabulary of ", classes_);
  const std::span<const float> all(logits.values<float>() + row * width, static_cast<size_t>(width));
  s.next = choose_token(all.first(static_cast<size_t>(classes_)), s.text, s.request.sampling, s.added());
  if (s.request.log_probs) s.log_probs = log_probs_of(all, classes_, s.next, *s.request.log_probs);
  s.chosen = true;
}

Decoded Decoder::append_next(Sequence& s) {
  trace_mark();
  const DecodeRequest& r = s.request;
  std::vector<LogProbs> prompt = std::exchange(s.prompt, {});
  if (r.tokens == 0) return {s.id, std::nullopt, Finish::kLength, std::nullopt, std::move(prompt)};
  if (std::find(r.ends.begin(), r.ends.end(), s.next) != r.ends.end())
    return {s.id, std::nullopt, Finish::kEnd, std::exchange(s.log_probs, std::nullopt), std::move(prompt)};
  s.text.push_back(s.next);
  const std::span<const int32_t> added = std::span(s.text).last(static_cast<size_t>(s.added()));
  Finish finish = Finish::kNone;
  if (std::any_of(r.stops.begin(), r.stops.end(), [&](const auto& stop) { return ends_in(added, stop); }))
    finish = Finish::kStop;
  else if (s.added() == r.tokens || (!r.slides && s.size() > place_tokens())) finish = Finish::kLength;
  else if (s.size() > place_tokens()) leave_row(s);
  return {s.id, s.next, finish, std::exchange(s.log_probs, std::nullopt), std::move(prompt)};
}

void compute_in(Model& model, DType type) {
  const NoGrad no_grad;
  for (auto& p : model.parameters())
    if (p.parameter->value.dtype() != type) p.parameter->value = raw::cast(p.parameter->value.detach(), type);
}

}  // namespace lockstep
