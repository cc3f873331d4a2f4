// PredictionInputs: the files that `lockstep predict` is given, as datasets, and what they say of each sample beside
// what the model reads, such as the number of a row or an image's file. Used by the first rank.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/base/shape.h"
#include "core/io/json.h"
#include "data/import/import.h"
#include "data/import/kept_input.h"
#include "data/import/tables/table_reader.h"
#include "data/samples/schema.h"
#include "launch/predict/prediction_writer.h"

namespace lockstep {

struct InputOptions {
  TableOptions table = {};                            // how a table is read
  std::string text = "text";                          // the column of texts
  bool is_table = false;                              // texts are cells of a table, also where no name says so
  std::string separator = {};                         // a token that follows each text; empty: none
  int64_t context = 0;                                // tokens of a model of the next token; else 0
  std::optional<std::vector<std::string>> keep = {};  // columns that are copied; none: all that are no features
  int64_t skip_bad = 0;  // so many images that cannot be decoded are warned of and left out, of each input
  // Images that are not resized must have this size, [height, width, channels]; empty: they may have any.
  Shape image = {};
  std::function<void(int64_t, int64_t)> progress = {};  // of each import; and after it
  std::function<void()> imported = {};
};

class PredictionInputs {
 public:
  // `like`: what the run was trained on. Imports what is no dataset into files in `folder`. Throws
  // ExitCode::kMissingInput, kBadData naming file and line, kUsage for what such a run cannot read.
  PredictionInputs(const std::vector<std::string>& inputs, const LikeData& like, const std::string& folder,
                   InputOptions options);
  ~PredictionInputs();

  const std::vector<std::string>& datasets() const { return datasets_; }  // of the inputs, in their order
  int64_t samples() const { return samples_; }                            // of all of them
  const std::vector<std::string>& kept() const { return kept_; }          // names of what is known of each sample
  KnownOfSample next();                                                   // of the next sample
  int64_t parts() const { return parts_; }  // how many of the datasets' samples that one is: of a text, its windows

 private:
  struct Input;

  Input& add_input(const std::string& name);
  void import(const std::string& path, const std::string& folder);
  void import_file(Input& input, const std::string& to);
  void import_text_file(Input& input, const std::string& to);
  // `within`: the folder that the files' own names leave out; empty: all folders.
  void import_pictures(std::vector<std::string> files, const std::string& within, const std::string& folder);
  void take(Input& input, const std::string& dataset);
  ImportOptions import_options() const;
  void choose_kept(Input& input, std::set<std::string> read);
  size_t kept_place(const std::string& name);  // in kept_

  std::shared_ptr<LikeData> like_;
  InputOptions options_;
  std::optional<KeptInput> piped_;  // standard input
  std::vector<std::string> datasets_, kept_;
  std::unordered_map<std::string, size_t> kept_places_;  // in kept_
  std::vector<std::unique_ptr<Input>> inputs_;
  size_t at_ = 0;  // the input of the next sample
  int64_t parts_ = 1, samples_ = 0, given_ = 0;
};

}  // namespace lockstep
