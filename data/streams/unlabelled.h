// UnlabelledSource: samples to predict, from dataset files whose targets, if any, are ignored. A batch has the inputs
// and, since a task reads them, targets of the kind that the model was trained on, all of them 0. For a model of the
// next token the samples are whole texts, and the labels are their tokens (data/samples/text/text_windows.h); for one
// of hidden tokens (data.mask) they are texts of which none is hidden, cut to the context. A plain value.
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
