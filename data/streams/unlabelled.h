// UnlabelledSource: dataset files of which the samples are predicted, so that their targets do not matter: a model
// finds the inputs, and targets of the kind that it was trained on, which are all 0. A model of the next token finds
// the texts and their tokens, of which it says how probable they are (data/samples/text_windows.h). A plain value.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/streams/open_dataset.h"

namespace lockstep {

class UnlabelledSource final : public DataSource {
 public:
  // `like`: what the model was trained on, to which each file is fitted.
  UnlabelledSource(std::vector<std::string> paths, std::shared_ptr<const LikeData> like)
      : paths_(std::move(paths)), like_(std::move(like)) {}
  std::vector<Field> options(DataOptions&) override { return {}; }
  // Both parts are all samples, the files' one behind the other. Of the options those about files and parts are not
  // read.
  Datasets open(const DataOptions& common, uint64_t seed) const override;

 private:
  std::vector<std::string> paths_;
  std::shared_ptr<const LikeData> like_;
};

}  // namespace lockstep
