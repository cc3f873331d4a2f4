#include "launch/arguments/text_options.h"

#include <limits>

#include "core/base/log.h"
#include "launch/arguments/chosen_checkpoint.h"
#include "launch/arguments/vocabulary_options.h"

namespace lockstep {

DType precision_of(const Arguments& arguments, const Origin& origin) {
  const std::string& name = arguments.text("precision");
  const DType trained = origin.settings->parallel.compute;
  if (name == "run") return trained;
  for (const DType type : {DType::kFloat32, DType::kBFloat16, DType::kFloat16})
    if (name == to_text(type)) {
      if (origin.checkpoint && type != trained)
        log_info(str("computing in ", to_text(type), "; ", origin.place, " was trained in ", to_text(trained),
                     " (precision.compute), which --precision run takes"));
      return type;
    }
  throw Error(ExitCode::kUsage, str("--precision ", name, ": must be fp32, bf16, fp16 or run"));
}

std::vector<Option> with_model_options(std::vector<Option> own) {
  own.push_back(
      {"precision", "what the model computes in: fp32, bf16, fp16, or run: what the run trained in", "P", "fp32"});
  own.push_back({"ema", "with the averages of the parameters (optim.ema)"});
  return with_choice_of_checkpoint(std::move(own));
}

std::vector<Option> with_generation_options(std::vector<Option> own) {
  const std::vector<Option> shared{
      template_values_option(),
      {"tokens", "how many tokens to add", "N", "200"},
      {"temperature", "divides the logits: lower is more predictable; 0: always the most likely token", "X", "0.8"},
      {"top-k", "sample from the K most likely tokens only; 0: from all", "K", "0"},
      {"top-p", "sample from the fewest most likely tokens that have the probability P together", "P", "1"},
      {"min-p", "sample from tokens that have at least P times the probability of the most likely", "P", "0"},
      {"repetition-penalty", "lowers the logits of tokens that the text has already; 1: not", "X", "1"},
      {"stop", "end before this text", "TEXT", ""},
      {"ignore-end", "go on behind the model's tokens for the end of a text, and the template's"},
      {"seed", "seed of the sampling", "S", "1"}};
  own.insert(own.end(), shared.begin(), shared.end());
  return with_model_options(std::move(own));
}

Origin origin_of(const App& app, Arguments& arguments) {
  const std::vector<std::string> moved = take_init_from(arguments);
  require(arguments.positional.size() == 1, ExitCode::kUsage, "unexpected argument '", arguments.positional.back(),
          "'; --help lists the options");
  const std::string from = chosen_checkpoint(arguments);
  Origin out = open_origin(app, from, moved);
  require(out.checkpoint || !arguments.has("ema"), ExitCode::kUsage, "--ema: ", from,
          " holds no averages of parameters");
  return out;
}

std::unique_ptr<Model> model_of(const Origin& origin, const Arguments& arguments) {
  return load_model_of(origin, precision_of(arguments, origin), arguments.has("ema"));
}

Manner manner_of(const Arguments& arguments, bool chat, Origin& origin) {
  MannerOptions options{.chat = chat,
                        .chat_template = arguments.text("template"),
                        .template_values = arguments.text("template-values"),
                        .stop = arguments.text("stop"),
                        .ignore_end = arguments.has("ignore-end"),
                        .special_tokens = arguments.has("special-tokens")};
  require(chat || options.chat_template.empty(), ExitCode::kUsage, "--template ", options.chat_template,
          ": is for --chat and --messages");
  require(chat || options.template_values.empty(), ExitCode::kUsage, "--template-values: is for --chat and --messages");
  return manner_of(options, origin);
}

DecodeRequest request_of(const Arguments& arguments) {
  DecodeRequest r;
  r.tokens = arguments.integer("tokens", 0, 1000000);
  r.sampling.top_k = arguments.integer("top-k", 0);
  r.sampling.seed = static_cast<uint64_t>(arguments.integer("seed", std::numeric_limits<int64_t>::min()));
  r.sampling.temperature = arguments.number("temperature", 0);
  r.sampling.top_p = arguments.number("top-p", 0, 1);
  r.sampling.min_p = arguments.number("min-p", 0, 1);
  r.sampling.repetition_penalty = arguments.number("repetition-penalty", 1e-3, 1e3);
  r.slides = true;
  return r;
}

}  // namespace lockstep
