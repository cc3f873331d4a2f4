#include <unistd.h>

#include <limits>

#include "core/base/host.h"
#include "core/device/stream.h"
#include "data/vocabulary.h"
#include "launch/commands/command_line.h"
#include "launch/commands/commands.h"
#include "launch/training/generate.h"
#include "launch/world/devices.h"
#include "launch/world/world.h"

namespace lockstep {

std::vector<Command> generate_forms() {
  return {
      {"generate",
       "generate RUN [--prompt TEXT] [--tokens N] [--temperature X] [--top-k K] [--seed S] [--ema]",
       "Continues TEXT with the model of RUN, a run directory (its newest checkpoint) or a checkpoint.",
       {{"prompt", "the text to continue; its characters must be in the run's vocabulary", "TEXT", "\n"},
        {"tokens", "how many tokens to add", "N", "200"},
        {"temperature", "divides the logits: lower is more predictable; 0: always the most likely token", "X", "0.8"},
        {"top-k", "sample from the K most likely tokens only; 0: from all", "K", "0"},
        {"seed", "seed of the sampling", "S", "1"},
        {"ema", "with the averages of the parameters (optim.ema)"}},
       1,
       1}};
}

int generate_command(const App& app, const std::vector<std::string>& given) {
  const Arguments arguments = parse_arguments(generate_forms(), given);
  if (arguments.help) return 0;
  GenerateOptions options;
  options.tokens = arguments.integer("tokens", 0, 1000000);
  options.top_k = arguments.integer("top-k", 0);
  options.seed = static_cast<uint64_t>(arguments.integer("seed", std::numeric_limits<int64_t>::min()));
  options.temperature = arguments.number("temperature");
  require(options.temperature >= 0, ExitCode::kUsage, "--temperature ", arguments.text("temperature"),
          ": must be 0 or more");
  const Checkpoint checkpoint = open_newest(arguments.positional[0]);
  const auto vocabulary = parse_vocabulary(checkpoint.info.vocabulary);
  require(vocabulary != nullptr, ExitCode::kUsage, checkpoint.dir,
          ": was not trained on text; there is nothing to generate");
  if (!is_first_process()) return 0;
  const auto settings = settings_of_checkpoint(app, checkpoint);
  Stream stream(place_alone(settings->device), Stream::Mode::kInline, available_cores());
  WithStream with(stream);
  const auto model = load_model(*settings, checkpoint, arguments.has("ema"));
  require(!model->sees_ahead(), ExitCode::kUsage, checkpoint.dir, ": its model, ", settings->model_name,
          ", does not predict the next token of a text; there is nothing to generate");
  const std::string prompt = arguments.text("prompt");
  std::vector<int32_t> tokens = vocabulary->encode(prompt);
  require(!tokens.empty(), ExitCode::kUsage, "lockstep generate: --prompt is empty");
  // Output to a file is the text itself. Output to a terminal is escaped, so only whole characters are written.
  std::string character;
  Utf8Reader reader;
  const auto show = [&, terminal = ::isatty(STDOUT_FILENO) == 1](const std::string& text) {
    if (!terminal) return print(text, Shown::kAsItIs);
    for (char c : text) {
      character += c;
      if (reader.next(static_cast<uint8_t>(c)) == Utf8Reader::Result::kMore) continue;
      print(character);
      character.clear();
      reader = {};
    }
  };
  show(prompt);
  generate(*model, std::move(tokens), checkpoint.info.input[0], options,
           [&](int32_t token) { show(vocabulary->decode({token})); });
  print("\n");
  return 0;
}

}  // namespace lockstep
