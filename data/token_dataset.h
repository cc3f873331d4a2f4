// Text as samples: windows of `context` tokens, each target the token that follows.
// A TokenDataset shares its source; train and validation are two of them on one source.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/base/partition.h"
#include "data/dataset.h"
#include "data/dataset_file.h"

namespace lockstep {

// A long list of token ids.
class TokenSource {
 public:
  virtual ~TokenSource() = default;
  virtual int64_t size() const = 0;
  virtual int64_t vocabulary_size() const = 0;
  virtual const Vocabulary* vocabulary() const = 0;
  virtual Hash128 identity() const = 0;
  virtual void read(Range tokens, int32_t* out) const = 0;  // from any thread
};

class FileTokens final : public TokenSource {
 public:
  explicit FileTokens(std::shared_ptr<const DatasetFile> file) : file_(std::move(file)) {}
  int64_t size() const override { return file_->header.tokens; }
  int64_t vocabulary_size() const override { return file_->header.vocabulary_size; }
  const Vocabulary* vocabulary() const override { return file_->header.vocabulary.get(); }
  Hash128 identity() const override { return file_->header.identity; }
  void read(Range tokens, int32_t* out) const override;

 private:
  std::shared_ptr<const DatasetFile> file_;
};

struct WindowOptions {
  int64_t context = 0;
  std::vector<int64_t> ignore_tokens = {};  // their targets become kIgnoreIndex
  // Training: the windows' common origin moves each epoch, a function of (seed, epoch); a last partial window is
  // dropped, so that every epoch has the same number of samples. Otherwise windows start at the part's first token,
  // and the last partial one is filled up with token 0 and ignored targets: every token but the first is a target.
  bool moving_origin = false;
  uint64_t seed = 0;
};

class TokenDataset final : public Dataset {
 public:
  // `part` of the source's tokens. Throws ExitCode::kConfig where it is too short for one sample.
  TokenDataset(std::shared_ptr<const TokenSource> source, Range part, WindowOptions options);
  int64_t size() const override { return size_; }
  const DataSpec& spec() const override { return spec_; }
  Hash128 identity() const override { return source_->identity(); }
  void read(int64_t epoch, int64_t index, SampleMemory sample) const override;
  const Vocabulary* vocabulary() const override { return source_->vocabulary(); }
  int64_t origin(int64_t epoch) const;  // of window 0, in tokens from the part's begin

 private:
  std::shared_ptr<const TokenSource> source_;
  Range part_;
  WindowOptions options_;
  DataSpec spec_;
  int64_t size_ = 0;
};

}  // namespace lockstep
