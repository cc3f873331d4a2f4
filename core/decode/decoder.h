// Decoder: continues several texts at once with a language model, a token of each at every step; texts come and go at
// any time. Owned by whoever generates, which keeps the model alive as long; used by one thread, in whose current
// stream the passes run.
//
// What a text becomes is a function of the model and its request alone: it has the same tokens alone or beside others,
// whenever it is admitted, with the cache and without. So it is on CPUs, with any number of threads; the libraries of a
// GPU may sum a product of another shape in another order.
#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <vector>

#include "core/decode/log_probs.h"
#include "core/decode/sampling.h"
#include "core/models/token_transformer.h"
#include "core/nn/key_value_cache.h"

namespace lockstep {

struct DecoderOptions {
  int64_t places = 8;  // texts at once
  // Tokens whose keys and values the cache holds in each place, at most the model's context; 0: as many as that. No
  // more than TokenTransformer::cached_tokens(): a longer text goes on without the cache.
  int64_t place_tokens = 0;
  bool cache = true;  // keep keys and values of earlier tokens: the same tokens, sooner
  // With the cache: a step reads at most so many tokens of a text, so that a long prompt takes several steps and the
  // other texts wait less; 0: a prompt is read whole.
  int64_t prompt_chunk = 0;
};

struct DecodeRequest {
  std::vector<int32_t> prompt;
  int64_t tokens = 200;  // to add at most; with prompt_log_probs also 0
  Sampling sampling = {};
  std::vector<int32_t> ends = {};                // the text ends before one of these tokens
  std::vector<std::vector<int32_t>> stops = {};  // and behind new tokens that end in one of these sequences
  // Whether the text outgrows its place: it then goes on without the cache, from its last tokens, as many as the
  // model's context has. If not, it ends where its place is full.
  bool slides = false;
  // Log-probabilities of each new token and of so many of the likeliest tokens, from the model's logits as they are:
  // before temperature, penalty and the like. None: they are not computed.
  std::optional<int64_t> log_probs = {};
  bool prompt_log_probs = false;  // with log_probs: also of the prompt's tokens but the first
};

// Why a text ended.
enum class Finish {
  kNone,       // it goes on
  kEnd,        // one of the request's `ends` came
  kStop,       // one of its `stops`
  kLength,     // it has the tokens that were asked for, or, unless it slides, its place is full
  kCancelled,  // cancel()
};
const char* to_text(Finish finish);  // "none", "end", "stop", "length", "cancelled"

// What a step did with a text.
struct Decoded {
  int64_t id;
  std::optional<int32_t> token;  // the new one; none where the text was cancelled, or ended before one of `ends`
  Finish finish = Finish::kNone;
  // Where the request asks for them: of `token`, or, with Finish::kEnd, of the token that the text ended before.
  std::optional<LogProbs> log_probs = {};
  // Of the prompt's tokens from the second on, in the first of this text, where the request asks for them.
  std::vector<LogProbs> prompt = {};
};

class Decoder {
 public:
  // `model` maps int32 [B, T], T up to `task.input[0]`, its context, to logits [B, T, classes]. Tokens are those below
  // task.classes. The cache takes, once the first text that uses it is there, places x place_tokens x layers keys and
  // values in the model's type, and no more whatever comes; for models without one (TokenTransformer::takes_cache()),
  // nothing. Throws kUsage for options out of range and a model that does not predict the next token; kInternal for a
  // model in training.
  Decoder(Model& model, const TaskSpec& task, const DecoderOptions& options = {});
  Decoder(const Decoder&) = delete;

  // Takes in a text, whose tokens come with the following steps. Returns its id: 0, 1, 2, ... Throws kUsage, and takes
  // in nothing, where every place is taken, the prompt is empty, holds a token that the model has not, or, unless it
  // slides, is longer than a place; where it is longer than the model's context and has prompt_log_probs; and for
  // limits and sampling out of range.
  int64_t admit(DecodeRequest request);
  // One more token of every text whose prompt has been read: a new prompt is read whole, or prompt_chunk tokens of it;
  // of those with prompt_log_probs one is scored in a step, whole.
  // Those that were cancelled since the last step come first, then the others in the order of their admission. A text
  // that ends leaves its place. Where this throws, no text has changed, and the next call tries again.
  std::vector<Decoded> step();
  // Ends a text: its place is free at once, and the next step() says so. False where no such text is going on.
  bool cancel(int64_t id);

  int64_t places() const { return options_.places; }
  int64_t place_tokens() const { return options_.place_tokens; }
  int64_t free_places() const { return options_.places - static_cast<int64_t>(sequences_.size()); }

 private:
  static constexpr int64_t kNoRow = -1;
  struct Sequence {
    int64_t id;
    DecodeRequest request;
    std::vector<int32_t> text;               // prompt and new tokens
    int64_t row = kNoRow;                    // of the cache; without one each token takes a pass over the text
    int32_t next = 0;                        // chosen in this step
    bool chosen = false;                     // whether there is one: not while the prompt is being read in chunks
    std::optional<LogProbs> log_probs = {};  // of `next`
    bool scored = false;                     // the prompt, where the request asks for that
    std::vector<LogProbs> prompt = {};       // until they are returned

    int64_t size() const { return static_cast<int64_t>(text.size()); }
    int64_t added() const { return size() - static_cast<int64_t>(request.prompt.size()); }
  };

  void require_admissible(const DecodeRequest& request) const;
  void leave_row(Sequence& sequence);
  int64_t pending(int64_t row) const;
  int64_t end_of_pass(int64_t first) const;
  void pass_over_rows(int64_t first, int64_t end);
  void pass_over_text(Sequence& sequence);
  void score_prompt(Sequence& sequence);
  void choose(Sequence& sequence, const Tensor& logits, int64_t row) const;
  Decoded append_next(Sequence& sequence);

  Model& model_;
  const int64_t context_, classes_;
  DecoderOptions options_;
  TokenTransformer* transformer_;  // the model; null: without a cache
  int64_t next_id_ = 0;
  std::list<Sequence> sequences_;  // in the order of admission
  KeyValueCache cache_;            // without sequences where there is none
  std::vector<Sequence*> rows_;    // of the cache, those in use: the first ones
  std::vector<Decoded> cancelled_;
};

// From now on the model reads its parameters, and computes, in `type`, as training in precision.compute does; they are
// converted once. For a model in evaluation, before a Decoder's first step.
void compute_in(Model& model, DType type);

}  // namespace lockstep
