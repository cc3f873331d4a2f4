// TextWindows: the texts of a file, one a record, as a model of the next token is asked how probable each is. A text is
// cut into windows of `context` tokens that follow each other, so that each of its tokens but the first is predicted
// once, from those of its window before it. Shares the file.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/base/partition.h"
#include "data/samples/dataset.h"
#include "data/samples/dataset_file.h"
#include "data/samples/text/token_dataset.h"

namespace lockstep {

class TextWindows final : public Dataset {
 public:
  // Windows of `context` tokens in samples of `width`, which is at least longest(file, context).
  TextWindows(std::shared_ptr<const DatasetFile> file, int64_t context, int64_t width);
  // How many tokens the longest window takes. Throws ExitCode::kBadData for a file without records.
  static int64_t longest(const DatasetFile& file, int64_t context);
  int64_t size() const override { return static_cast<int64_t>(windows_.size()); }
  // "tokens" and "labels" [context], the tokens after them; behind a text's end kIgnoreIndex.
  const DataSpec& spec() const override { return spec_; }
  Hash128 identity() const override { return file_->header.identity; }
  void read(int64_t epoch, int64_t index, SampleMemory sample) const override;
  const Vocabulary* vocabulary() const override { return tokens_.vocabulary(); }

 private:
  std::shared_ptr<const DatasetFile> file_;
  FileTokens tokens_;
  DataSpec spec_;
  std::vector<IndexRange> windows_;  // of the inputs and, one further, their labels
};

// How many windows of `context` tokens a text of so many tokens has; one of a single token has one, without labels.
int64_t text_windows(int64_t tokens, int64_t context);

}  // namespace lockstep
