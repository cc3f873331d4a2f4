// Continues texts with the model of a run or of a folder of transformers: how it is opened, how prompts are read, and
// the text as it grows.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/decode/decoder.h"
#include "core/models/model.h"
#include "core/state/checkpoint.h"
#include "data/text/valid_text.h"
#include "data/text/vocabulary.h"
#include "launch/app.h"
#include "launch/config/settings.h"
#include "launch/terminal/output.h"
#include "launch/text/prompts.h"

namespace lockstep {

// What texts are continued with: a checkpoint, or a folder of transformers.
struct Origin {
  std::string place;
  std::optional<Checkpoint> checkpoint;
  std::unique_ptr<Settings> settings;
  std::shared_ptr<const Vocabulary> vocabulary;
  TaskSpec task;
  std::vector<int32_t> ends;  // tokens that end a text
};

// The model of a run directory (its newest checkpoint), of a checkpoint, or of a folder of transformers. `overrides`:
// of a checkpoint's configuration, such as "init.from=PATH". Throws ExitCode::kUsage where it was not trained on text
// and for overrides of a folder, and what opening it throws.
Origin open_origin(const App& app, const std::string& from, const std::vector<std::string>& overrides = {});
// Its model on the current stream's device, which computes in `precision`; `averages`: with the averages of the
// parameters (optim.ema). Throws ExitCode::kUsage where it does not predict the next token of a text.
std::unique_ptr<Model> load_model_of(const Origin& origin, DType precision, bool averages);

// How prompts are read and where their continuations end.
struct Manner {
  PromptForm form;
  std::vector<std::string> stops;
  bool drop_space = false;  // that a tokenizer puts before an answer
};

struct MannerOptions {
  bool chat = false;            // prompts are messages
  std::string chat_template;    // a name or file, as chat_template() takes it; empty: the model's own
  std::string template_values;  // what the template may ask for, in JSON
  std::string stop;             // a text before which a continuation ends
  bool ignore_end = false;      // go on behind the tokens that end a text
  bool special_tokens = false;  // that a prompt spells out are those tokens
};

// Adds the template's end to the origin's, or leaves those out. Throws ExitCode::kUsage where the template puts text
// around messages that the vocabulary has no tokens for.
Manner manner_of(const MannerOptions& options, Origin& origin);

// Called with each new token of a prompt; returns whether its text goes on.
using OnToken = std::function<bool(size_t prompt, int32_t token)>;

// Continues the prompts, as many at once as the decoder has places; `on_end` is called where a prompt's text has ended.
void continue_prompts(Decoder& decoder, const std::vector<Prompt>& prompts, const DecodeRequest& request,
                      const OnToken& on_token, const std::function<void(size_t prompt)>& on_end);

// The text of one sequence as it grows: ends at the first of the texts `stops`, of which nothing is shown; what may be
// the beginning of one is held back. With `drop_space` a space at its beginning is left out.
class GrowingText {
 public:
  GrowingText(std::vector<std::string> stops, bool drop_space) : stops_(std::move(stops)), drop_space_(drop_space) {}
  // Returns what of the text so far is new and certain.
  std::string add(const std::string& more) {
    held_ += more;
    if (drop_space_ && !held_.empty()) {
      if (held_[0] == ' ') held_.erase(0, 1);
      drop_space_ = false;
    }
    size_t certain = held_.size();
    for (const std::string& stop : stops_)
      if (const size_t found = held_.find(stop); found != held_.npos)
        stopped_ = true, certain = std::min(certain, found);
    for (const std::string& stop : stops_) {
      if (stopped_) break;
      size_t begin = held_.size() - std::min(held_.size(), stop.size() - 1);
      while (!stop.starts_with(std::string_view(held_).substr(begin))) ++begin;
      certain = std::min(certain, begin);
    }
    return take(certain);
  }
  std::string rest() { return stopped_ ? "" : take(held_.size()); }
  bool stopped() const { return stopped_; }

 private:
  std::string take(size_t n) {
    const std::string out = held_.substr(0, n);
    held_.erase(0, n);
    return out;
  }
  std::vector<std::string> stops_;
  bool drop_space_;
  std::string held_;
  bool stopped_ = false;
};

// Text on standard output as it grows. Output to a file is the text itself. Output to a terminal is escaped, so only
// whole characters are written.
class StreamedText {
 public:
  void add(const std::string& text) {
    if (shown_ == Shown::kAsItIs) return print_out(text, shown_);
    for (char c : text) {
      character_ += c;
      if (reader_.next(static_cast<uint8_t>(c)) == Utf8Reader::Result::kMore) continue;
      print_out(character_);
      character_.clear();
      reader_ = {};
    }
  }

 private:
  const Shown shown_ = shown_on_output();
  std::string character_;
  Utf8Reader reader_;
};

}  // namespace lockstep
