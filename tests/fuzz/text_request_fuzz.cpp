// Bodies of requests for texts: each is refused with a status of the client, or becomes texts that a decoder takes.
#include "launch/serve/text_request.h"

#include "tests/fuzz/fuzz.h"

using namespace lockstep;

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t capacity, unsigned seed) {
  static const std::vector<std::string_view> words =
      fuzz::with_json_words({"\"prompt\":",       "\"messages\":",   "\"role\":\"user\"",
                             "\"content\":",      "\"max_tokens\":", "\"n\":",
                             "\"echo\":true",     "\"logprobs\":",   "\"seed\":",
                             "\"stop\":",         "\"stream\":true", "\"temperature\":",
                             "\"top_p\":",        "\"tokens\":",     "\"stream_options\":",
                             "\"logit_bias\":",   "\"best_of\":",    "\"chat_template_kwargs\":",
                             "\"type\":\"text\"", "\"ignore_eos\":", "\"special_tokens\":true"});
  return fuzz::mutate_with_words(data, size, capacity, seed, words);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  struct Model {
    Origin origin;
    ServedText served;
    Model()
        : served{.origin = origin,
                 .name = "m",
                 .context = 40,
                 .most_choices = 8,
                 .ends = {},
                 .chat = {},
                 .chat_ends = {}} {
      origin.vocabulary = std::make_shared<Vocabulary>(Vocabulary::bytes());
      served.chat.form.chat = chat_template("plain", *origin.vocabulary);
    }
  };
  static const Model model;
  const std::string body(fuzz::text_of(data, size));
  const auto accepted = [](const auto& read) {
    try {
      read();
      return true;
    } catch (const ApiError& e) {
      fuzz::expect(e.error().status >= 400 && e.error().status < 500 && !e.error().message.empty(), "an odd error");
      return false;
    }
  };
  for (const auto read : {read_completion, read_chat})
    accepted([&] {
      const AskedTexts asked = read(body, model.served);
      fuzz::expect(!asked.jobs.empty() && asked.jobs.size() <= 8, "an odd number of texts");
      for (const TextJob& job : asked.jobs) {
        const auto all = static_cast<int64_t>(job.request.prompt.size()) + job.request.tokens;
        fuzz::expect(!job.request.prompt.empty() && all <= 41 && job.request.tokens >= 0, "a text that does not fit");
        require_valid(job.request.sampling);
      }
    });
  accepted([&] { read_tokenize(body, model.served); });
  accepted([&] { read_detokenize(body, model.served); });
  return 0;
}
