// App: what a program offers to the command line: its models, and where its data comes from. One value, passed in; the
// lockstep binary is
//   int main(int argc, char** argv) { return lockstep::run(argc, argv, lockstep::builtin()); }
// Owned by main.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/base/field.h"
#include "core/models/model.h"
#include "data/open_dataset.h"

namespace lockstep {

// The options of one run's model, and how to build it from them.
class ModelOptions {
 public:
  virtual ~ModelOptions() = default;
  virtual std::vector<Field> options() = 0;  // point into this object
  virtual std::unique_ptr<Model> build(const TaskSpec& task) const = 0;
};

struct ModelEntry {
  std::string name;  // model.name
  std::function<std::unique_ptr<ModelOptions>()> make;
};

// `Options` has `std::vector<Field> fields(Options&)`; `M` is built as M(const Options&, const TaskSpec&).
template <class M, class Options>
ModelEntry model_entry(std::string name) {
  struct Made final : ModelOptions {
    Options value;
    std::vector<Field> options() override { return fields(value); }
    std::unique_ptr<Model> build(const TaskSpec& task) const override { return std::make_unique<M>(value, task); }
  };
  return {std::move(name), [] { return std::make_unique<Made>(); }};
}

struct App {
  std::vector<ModelEntry> models;
  // Opens data.path and the like; a program with a dataset of its own puts its function here.
  std::function<Datasets(const DataOptions&, uint64_t seed)> open_data = open_datasets;
};

App builtin();  // mlp, convnet, gpt

// The command line. Returns the process's exit code (docs/command-line.md).
int run(int argc, char** argv, const App& app);

extern const char* const kVersion;

}  // namespace lockstep
