#include <cstdio>
#include <exception>

#include "core/base/escape.h"
#include "core/base/log.h"
#include "core/models/convnet.h"
#include "core/models/gpt.h"
#include "core/models/mlp.h"
#include "launch/commands.h"
#include "launch/did_you_mean.h"
#include "launch/world.h"

namespace lockstep {

const char* const kVersion = LOCKSTEP_VERSION;

App builtin() {
  App app;
  app.models = {model_entry<Gpt, GptOptions>("gpt"), model_entry<Convnet, ConvnetOptions>("convnet"),
                model_entry<Mlp, MlpOptions>("mlp")};
  return app;
}

void print(const std::string& given, Shown shown) {
  if (!is_first_process()) return;
  const std::string text = shown == Shown::kEscaped ? escaped(given) : given;
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

namespace {

const char* kHelp =
    "lockstep: distributed data-parallel training, the same bits at every number of ranks\n"
    "\n"
    "  lockstep train FILE.yaml [key.path=value ...] [--ranks N] [--resume]   train a model\n"
    "  lockstep eval RUN [key.path=value ...]                                 validation loss of a run or checkpoint\n"
    "  lockstep generate RUN [--prompt TEXT] [--tokens N]                     continue a text\n"
    "  lockstep data import text|idx INPUT... OUTPUT.h5                       make a dataset\n"
    "  lockstep data inspect FILE.h5                                          check a dataset and describe it\n"
    "  lockstep config show FILE.yaml | keys                                  the resolved configuration; every key "
    "there is\n"
    "  lockstep checkpoint inspect|digest|verify DIR                          what a checkpoint holds; one value for "
    "its state; is it whole\n"
    "  lockstep checkpoint diff A B | export DIR OUT.h5                       what differs; the parameters as one "
    "file\n"
    "  lockstep plan FILE.yaml [key.path=value ...] --ranks N                 memory and traffic of a run, without its "
    "machine\n"
    "  lockstep prove FILE.yaml [key.path=value ...] [--ranks 1,2,4]          the same bits at every layout of ranks?\n"
    "  lockstep bench FILE.yaml [key.path=value ...]                          time training steps\n"
    "  lockstep devices                                                       CPU and GPUs of this machine; why no GPU "
    "can be used\n"
    "\n"
    "The same commands run under mpirun -n N. `lockstep COMMAND --help` says more. Exit codes are listed in "
    "README.md.\n";

struct Entry {
  const char* name;
  int (*run)(const App&, const std::vector<std::string>&);
};
const Entry kCommands[] = {{"train", train_command},    {"eval", eval_command},     {"generate", generate_command},
                           {"data", data_command},      {"config", config_command}, {"checkpoint", checkpoint_command},
                           {"plan", plan_command},      {"prove", prove_command},   {"bench", bench_command},
                           {"devices", devices_command}};

}  // namespace

int run(int argc, char** argv, const App& app) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  try {
    if (arguments.empty() || arguments[0] == "--help" || arguments[0] == "-h" || arguments[0] == "help") {
      print(kHelp);
      return arguments.empty() ? static_cast<int>(ExitCode::kUsage) : 0;
    }
    if (arguments[0] == "--version") {
      print(cat("lockstep ", kVersion, "\n"));
      return 0;
    }
    const std::string name = arguments[0];
    arguments.erase(arguments.begin());
    std::vector<std::string> names;
    for (const Entry& e : kCommands) {
      if (name == e.name) return e.run(app, arguments);
      names.push_back(e.name);
    }
    throw Error(ExitCode::kUsage,
                cat("there is no command '", name, "'", did_you_mean(name, names), "; `lockstep --help` lists them"));
  } catch (const Error& e) {
    if (is_first_process()) log_error(e.what());
    return static_cast<int>(e.code());
  } catch (const std::exception& e) {
    log_error(e.what());
    return static_cast<int>(ExitCode::kInternal);
  }
}

}  // namespace lockstep
