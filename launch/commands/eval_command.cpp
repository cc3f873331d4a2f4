#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "core/base/log.h"
#include "core/base/philox.h"
#include "core/io/json.h"
#include "core/kernels/kernels.h"
#include "core/ops/ops.h"
#include "core/tensor/raw_ops.h"
#include "data/vocabulary.h"
#include "launch/artifacts/open_whole.h"
#include "launch/commands/command_line.h"
#include "launch/commands/commands.h"
#include "launch/training/memory_advice.h"
#include "launch/training/trainer.h"
#include "launch/world/world.h"

namespace lockstep {
namespace {

// The configuration that a checkpoint was made with, and overrides on top.
std::unique_ptr<Settings> settings_of(const App& app, const Checkpoint& c, const std::vector<std::string>& overrides) {
  // A group may not divide the ranks of today; a GPU may not be here, and no step is run.
  ConfigTree tree = ConfigTree::parse(c.info.config, c.dir + ": its configuration");
  for (const char* text : {"sharding.group=0", "device=auto", "graph=false"}) tree.set(text, "this command");
  for (const std::string& text : overrides) tree.apply_override(text);
  return load_settings(app, std::move(tree), 1);  // any number of ranks can share the samples that are measured
}

DataPart part_of(const std::string& word) {
  if (word == "validation") return DataPart::kValidation;
  if (word == "train") return DataPart::kTrain;
  require(word == "all", ExitCode::kUsage, "--on ", word, ": must be validation, train or all");
  return DataPart::kAll;
}

// What the model was built for: its parameters are those of that context, and a shorter one uses a part of them.
TaskSpec task_of(const Checkpoint& c, const DataSpec& data, const Settings& settings) {
  if (data.kind != DataKind::kTokens || c.info.input.rank() != 1) return task_of(data);
  require(data.input_shape[0] <= c.info.input[0], ExitCode::kConfig, settings.config.place("data.context"), ": ",
          data.input_shape[0], " tokens are more than the ", c.info.input[0], " that ", c.dir, " was trained with");
  return {c.info.input, data.classes};
}

}  // namespace

int eval_command(const App& app, const std::vector<std::string>& given) {
  const Command command{
      "eval",
      "eval RUN [key.path=value ...] [--on PART] [--ranks N]",
      "Measures the loss of RUN, a run directory (its newest checkpoint) or a checkpoint, and prints "
      "it as one JSON object.\n"
      "The configuration is the run's; key.path=value overrides a key, such as data.path, or "
      "data.context with a shorter one.",
      {{"on", "part of the data: validation, train (in order, from its first sample), or all", "PART", "validation"},
       {"ranks", "ranks in this process", "N", "0"},
       {"json", "what it prints anyway: one JSON object"}},
      1};
  const Arguments arguments = parse_arguments(command, given);
  if (arguments.help) return 0;
  const int asked = arguments.ranks();
  const std::string& run = arguments.positional[0];
  // What it is to be measured with must be known before there are ranks, who then verify it together.
  auto settings =
      settings_of(app, open_newest(run, false), {arguments.positional.begin() + 1, arguments.positional.end()});
  const std::string& on = arguments.text("on");
  settings->data.measured = part_of(on);
  WorldOptions world;
  world.ranks = asked;
  world.threads = settings->compute.threads;
  world.device = settings->device;
  world.deadline_s = settings->deadline;
  SharedData data(app, *settings);
  return run_world(world, [&](Communicator& comm) {
    const Checkpoint checkpoint = open_whole(comm, run);
    const EvalReport e = with_memory_advice(*settings, comm.size(), [&] {
      const Datasets& part = data.open(comm);
      std::optional<TaskSpec> task;
      fail_together(comm, [&] { task = task_of(checkpoint, part.validation->spec(), *settings); });
      Trainer trainer(*settings, part, comm, task);
      fail_together(comm, [&] { trainer.load_parameters(checkpoint); });
      return trainer.evaluate();
    });
    JsonObject line{{"checkpoint", checkpoint.dir},
                    {"step", checkpoint.info.step},
                    {"on", on},
                    {"loss", e.loss},
                    {"targets", e.targets}};
    if (e.accuracy >= 0) line.emplace_back("accuracy", e.accuracy);
    if (comm.rank() == 0) print(json_line(line) + "\n");
  });
}

int generate_command(const App& app, const std::vector<std::string>& given) {
  const Command command{
      "generate",
      "generate RUN [--prompt TEXT] [--tokens N] [--temperature X] [--top-k K] [--seed S]",
      "Continues TEXT with the model of RUN, a run directory (its newest checkpoint) or a checkpoint.",
      {{"prompt", "the text to continue; its characters must be in the run's vocabulary", "TEXT", "\n"},
       {"tokens", "how many tokens to add", "N", "200"},
       {"temperature", "above 1: more surprising; 0: always the likeliest", "X", "0.8"},
       {"top-k", "choose among the K likeliest only; 0: among all", "K", "0"},
       {"seed", "of the choice", "S", "1"}},
      1,
      1};
  const Arguments arguments = parse_arguments(command, given);
  if (arguments.help) return 0;
  const int64_t count = arguments.integer("tokens", 0, 1000000), top = arguments.integer("top-k", 0);
  const auto seed = static_cast<uint64_t>(arguments.integer("seed", std::numeric_limits<int64_t>::min()));
  const double temperature = arguments.number("temperature");
  require(temperature >= 0, ExitCode::kUsage, "--temperature ", arguments.text("temperature"), ": must be 0 or more");
  const Checkpoint checkpoint = open_newest(arguments.positional[0]);
  auto vocabulary = parse_vocabulary(checkpoint.info.vocabulary);
  require(vocabulary != nullptr, ExitCode::kUsage, checkpoint.dir,
          ": was not trained on text; there is nothing to generate");
  if (!is_first_process()) return 0;
  auto settings = settings_of(app, checkpoint, {});
  Stream stream(place_alone(settings->device), Stream::Mode::kInline, available_cores());
  WithStream with(stream);
  NoGrad no_grad;
  auto model = settings->model->build({checkpoint.info.input, checkpoint.info.classes});
  place_parameters(*model, 1);
  model->eval();
  std::vector<StateEntry> entries;
  for (auto& p : model->parameters())
    entries.push_back({"parameters/" + p.name, p.parameter->value.shape(), 0, p.parameter->value.detach().flatten()});
  load_entries(checkpoint, entries);

  const std::string prompt = arguments.text("prompt");
  std::vector<int32_t> tokens = vocabulary->encode(prompt);
  require(!tokens.empty(), ExitCode::kUsage, "lockstep generate: --prompt is empty");
  const int64_t context = checkpoint.info.input[0], classes = checkpoint.info.classes;
  // A file gets the text itself. A terminal gets it escaped, so only whole characters.
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
  std::vector<std::pair<float, int32_t>> ranked(static_cast<size_t>(classes));
  for (int64_t n = 0; n < count; ++n) {
    const size_t used = std::min(tokens.size(), static_cast<size_t>(context));
    Tensor input = Tensor::of(std::vector<int32_t>(tokens.end() - static_cast<int64_t>(used), tokens.end()),
                              {1, static_cast<int64_t>(used)});
    const Tensor logits = (*model)(input).flatten();
    const Tensor host = raw::to_host(logits.slice(0, logits.numel() - classes, logits.numel()));
    const float* last = host.values<float>();
    for (int64_t i = 0; i < classes; ++i) ranked[static_cast<size_t>(i)] = {last[i], static_cast<int32_t>(i)};
    std::sort(ranked.begin(), ranked.end(),
              [](auto& a, auto& b) { return a.first != b.first ? a.first > b.first : a.second < b.second; });
    int32_t next = ranked[0].second;
    if (temperature > 0) {
      const size_t among = top > 0 ? std::min<size_t>(static_cast<size_t>(top), ranked.size()) : ranked.size();
      double total = 0;
      for (size_t i = 0; i < among; ++i) total += std::exp((ranked[i].first - ranked[0].first) / temperature);
      double left = static_cast<double>(uniform_of(philox(seed, static_cast<uint64_t>(n), 0x67656e).v[0])) * total;
      for (size_t i = 0; i < among; ++i) {
        next = ranked[i].second;
        left -= std::exp((ranked[i].first - ranked[0].first) / temperature);
        if (left < 0) break;
      }
    }
    tokens.push_back(next);
    show(vocabulary->decode({next}));
  }
  print("\n");
  return 0;
}

}  // namespace lockstep
