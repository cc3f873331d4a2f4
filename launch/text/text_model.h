// What `lockstep generate` and `lockstep chat` share: the model of a run or a folder that continues texts, how they are
// continued, and the text as it grows.
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
#include "launch/arguments/command_line.h"
#include "launch/commands/commands.h"
#include "launch/config/settings.h"
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

// Of the first positional argument, of --best and --at, and of init.from=PATH (take_init_from), which may follow it.
// Throws ExitCode::kUsage where nothing there was trained on text, and what opening it throws.
Origin origin_of(const App& app, Arguments& arguments);
// Its model on the current stream's device, with what --ema and --precision say. Throws ExitCode::kUsage where it does
// not predict the next token of a text.
std::unique_ptr<Model> model_of(const Origin& origin, const Arguments& arguments);

// How prompts are read and where their continuations end.
struct Manner {
  PromptForm form;
  std::vector<std::string> stops;
  bool drop_space = false;  // that a tokenizer puts before an answer
};

// By --template, --stop, --ignore-end and --special-tokens; `chat`: prompts are messages. Adds the template's end to
// the origin's, or leaves those out.
Manner manner_of(const Arguments& arguments, bool chat, Origin& origin);

// What every prompt is continued with: --tokens, --temperature and the like.
DecodeRequest request_of(const Arguments& arguments);
// `own`, and those options, --precision, --ema, and the choice of a checkpoint.
std::vector<Option> with_generation_options(std::vector<Option> own);

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
