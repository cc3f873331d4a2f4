// PredictionInputs: the files that `lockstep predict` is given, as datasets, and what they say of each sample beside
// what the model reads, such as the number of a row. Used by the first rank.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/io/json.h"
#include "data/import/import.h"
#include "data/import/kept_input.h"
#include "data/import/table_reader.h"
#include "data/samples/schema.h"

namespace lockstep {

struct InputOptions {
  TableOptions table = {};                              // how a table is read
  std::optional<std::vector<std::string>> keep = {};    // columns that are copied; none: all that are no features
  std::function<void(int64_t, int64_t)> progress = {};  // of each import
};

class PredictionInputs {
 public:
  // `like`: what the run was trained on. Imports what is no dataset into files in `folder`. Throws
  // ExitCode::kMissingInput, kBadData naming file and line, kUsage for what such a run cannot read.
  PredictionInputs(const std::vector<std::string>& inputs, const LikeData& like, const std::string& folder,
                   InputOptions options);
  ~PredictionInputs();

  const std::vector<std::string>& datasets() const { return datasets_; }  // of the inputs, in their order
  const std::vector<std::string>& kept() const { return kept_; }          // names of what is known of each sample
  JsonObject next();                                                      // what is known of the next sample

 private:
  struct Input;

  void import(const std::string& path, const std::string& folder);
  void import_table_file(Input& input, const std::string& to);
  void choose_kept(Input& input);

  std::shared_ptr<LikeData> like_;
  InputOptions options_;
  std::optional<KeptInput> piped_;  // standard input
  std::vector<std::string> datasets_, kept_;
  std::vector<std::unique_ptr<Input>> inputs_;
  size_t at_ = 0;  // the input of the next sample
};

}  // namespace lockstep
