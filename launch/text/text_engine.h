// TextEngine: continues texts for many callers at once with one model, in a thread of its own. A text has the tokens
// that `lockstep generate` gives it, whatever else is being continued (core/decode/decoder.h).
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "core/decode/decoder.h"
#include "launch/text/text_model.h"

namespace lockstep {

struct TextJob {
  DecodeRequest request;
  std::vector<std::string> stops = {};  // the text ends before the first of these
  bool drop_space = false;              // the space that a tokenizer puts before it is left out
};

// What was added to a text.
struct TextUpdate {
  std::string text;  // of whole characters; what may be the beginning of a stop is held back
  struct Token {
    int32_t id;
    std::optional<LogProbs> log_probs;
    bool ends = false;  // a token that the text ended before, where log-probabilities are asked for
  };
  std::vector<Token> tokens = {};     // among them those whose text is still held back, or is not shown
  std::vector<LogProbs> prompt = {};  // with the text's first update, where its request asks for them
  Finish finish = Finish::kNone;
  std::string error = {};  // why the text ended, where it was not finished: with Finish::kCancelled
};

struct TextEngineOptions {
  DecoderOptions decoder = {};
  DType precision = DType::kFloat32;
  bool averages = false;       // of the parameters (optim.ema)
  int64_t most_waiting = 256;  // texts that wait for a place
  double most_seconds = 600;   // for a text, from its submission on
};

// Since the engine began.
struct TextEngineCounts {
  int64_t waiting = 0, running = 0;
  int64_t texts = 0, cancelled = 0, refused = 0;  // ended; of these cancelled; not taken, as too many waited
  int64_t prompt_tokens = 0, new_tokens = 0;
  double first_token_seconds = 0, later_seconds = 0;  // from submission to the first token, and from there to the last
  int64_t first_tokens = 0, later_tokens = 0;         // how many these times are of
};

class TextEngine {
 public:
  // Loads the model in the engine's thread, on the device of the origin's settings; throws what that throws. `origin`
  // lives as long as the engine.
  TextEngine(const Origin& origin, const TextEngineOptions& options);
  // Ends all texts, which get a last update with an error.
  ~TextEngine();
  TextEngine(const TextEngine&) = delete;

  // Called in the engine's thread with what was added to text `index`; must not block, and must not throw.
  using OnUpdate = std::function<void(size_t index, TextUpdate part)>;
  // Takes all of the texts or none. Returns an id for cancel(); nothing where too many texts wait, or after drain().
  // Throws ExitCode::kUsage for a request that the decoder refuses, and for more texts than there can ever be room for.
  std::optional<int64_t> submit(std::vector<TextJob> jobs, OnUpdate on_update);
  // The texts of one submit() end; there are no more updates of them from then on, but for one that is on its way.
  void cancel(int64_t id);
  // No more texts are taken. Whether all have ended.
  bool drain();
  bool drains() const;  // whether drain() was called

  TextEngineCounts counts() const;
  int64_t place_tokens() const { return place_tokens_; }  // of a prompt and its continuation
  // The digest of the parameters, in the precision that the model computes in.
  const std::string& digest() const { return digest_; }
  int64_t parameters() const { return parameters_; }

 private:
  struct Text {
    int64_t group;
    size_t index;
    TextJob job;
    OnUpdate on_update;
    GrowingText growing;
    std::string incomplete = {};  // bytes of a character that is not whole
    double submitted = 0, first = 0;
    int64_t added = 0;
  };

  void run();
  void work(Decoder& decoder);
  void admit(Decoder& decoder);
  void end_expired(Decoder& decoder);
  void deliver(Decoder& decoder, const Decoded& decoded);
  std::string too_late() const;
  void finish(std::list<Text>::iterator text, TextUpdate part);
  void fail_all(Decoder& decoder, const std::string& why);
  std::string whole_characters(Text& text, std::string more, bool last) const;

  const Origin& origin_;
  const TextEngineOptions options_;
  std::string digest_;
  int64_t parameters_ = 0, place_tokens_ = 0;

  mutable std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  std::deque<Text> waiting_;
  std::set<int64_t> cancelled_;  // groups
  int64_t next_group_ = 1;
  bool ready_ = false, drains_ = false, ends_ = false;
  std::exception_ptr failure_;  // of loading the model
  TextEngineCounts counts_;

  std::list<Text> running_;                             // of the engine's thread
  std::map<int64_t, std::list<Text>::iterator> by_id_;  // by the decoder's id
  std::thread thread_;
};

// The seed of the choice `choice` of several for one prompt; the first has the seed itself.
uint64_t seed_of_choice(uint64_t seed, int64_t choice);

}  // namespace lockstep
