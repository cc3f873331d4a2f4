// TokenDataset: samples of text, windows of `context` tokens; the target of each token is the token that follows, or,
// with masks, what a hidden token was. The training and the validation dataset share one TokenSource.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "core/base/partition.h"
#include "data/samples/dataset.h"
#include "data/samples/dataset_file.h"

namespace lockstep {

// A long sequence of token ids.
class TokenSource {
 public:
  virtual ~TokenSource() = default;
  virtual int64_t size() const = 0;
  virtual int64_t vocabulary_size() const = 0;
  virtual const Vocabulary* vocabulary() const = 0;
  virtual Hash128 identity() const = 0;
  virtual std::string name() const { return "the data"; }        // in messages
  virtual void read(IndexRange tokens, int32_t* out) const = 0;  // callable from any thread
  virtual bool has_targets() const { return false; }             // is the loss on some of the tokens only?
  // 1 for each token that is a target, else 0; where has_targets(). Callable from any thread.
  virtual void read_targets(IndexRange tokens, uint8_t* out) const {}
  virtual int64_t records() const { return 0; }  // 0: it is one text
  virtual bool paired() const { return false; }  // are there texts between its records that are none of them?
  virtual void visit_records(const std::function<void(IndexRange tokens)>& use) const {}  // in order
  // Where paired(): both records of each pair, in order.
  virtual void visit_pairs(const std::function<void(IndexRange chosen, IndexRange rejected)>& use) const {}
};

class FileTokens final : public TokenSource {
 public:
  explicit FileTokens(std::shared_ptr<const DatasetFile> file) : file_(std::move(file)) {}
  int64_t size() const override { return file_->header.tokens; }
  int64_t vocabulary_size() const override { return file_->header.vocabulary_size; }
  const Vocabulary* vocabulary() const override { return file_->header.vocabulary.get(); }
  Hash128 identity() const override { return file_->header.identity; }
  std::string name() const override { return file_->path; }
  void read(IndexRange tokens, int32_t* out) const override;
  bool has_targets() const override { return file_->targets != nullptr; }
  void read_targets(IndexRange tokens, uint8_t* out) const override;
  // Of pairs, those that were chosen.
  int64_t records() const override { return file_->header.records.count / (paired() ? 2 : 1); }
  bool paired() const override { return file_->header.records.paired; }
  void visit_records(const std::function<void(IndexRange tokens)>& use) const override;
  void visit_pairs(const std::function<void(IndexRange chosen, IndexRange rejected)>& use) const override;

 private:
  std::shared_ptr<const DatasetFile> file_;
};

// Makes kIgnoreIndex of the labels of `tokens` that are among `ignored`, which is sorted, or are no targets.
void ignore_labels(const TokenSource& source, IndexRange tokens, const std::vector<int64_t>& ignored, int32_t* labels);

// Masked language modelling (Devlin et al., "BERT", 2019). Each of the sample's first `count` tokens is a target with
// probability `share`, a function of (seed, epoch, sample, position), and the only kind of target: `targets` is what it
// was. Of ten targets eight are shown as the mask, one as any token, and one as it is. The mask is the vocabulary's own
// ([MASK] of WordPiece, whose special tokens are never targets), or else an additional token after its tokens.
struct Masking {
  double share = 0;
  uint64_t seed = 0;
  void hide(const TokenSource& source, int64_t epoch, int64_t sample, int64_t count, int32_t* ids,
            int32_t* targets) const;
};
// Ids of samples whose tokens are hidden: those of the vocabulary, and the mask where it has none.
int64_t masked_ids(const TokenSource& source);

struct WindowOptions {
  int64_t context = 0;
  std::vector<int64_t> ignore_tokens = {};  // targets with these ids become kIgnoreIndex
  // true (training): the offset of the first window is different in each epoch, a function of (seed, epoch), and a last
  // partial window is dropped, so that every epoch has the same number of samples. false: windows start at the part's
  // first token, and a last partial window is padded with token 0 and ignored targets, so that every token but the
  // first is a target.
  bool moving_origin = false;
  uint64_t seed = 0;
  double mask = 0;  // above 0: Masking
};

class TokenDataset final : public Dataset {
 public:
  // Uses `part` of the source's tokens. Throws ExitCode::kConfig if it is too short for one sample.
  TokenDataset(std::shared_ptr<const TokenSource> source, IndexRange part, WindowOptions options);
  int64_t size() const override { return size_; }
  const DataSpec& spec() const override { return spec_; }
  Hash128 identity() const override { return source_->identity(); }
  void read(int64_t epoch, int64_t index, SampleMemory sample) const override;
  const Vocabulary* vocabulary() const override { return source_->vocabulary(); }
  int64_t origin(int64_t epoch) const;  // of window 0, in tokens from the start of the part

 private:
  std::shared_ptr<const TokenSource> source_;
  IndexRange part_;
  WindowOptions options_;
  DataSpec spec_;
  int64_t size_ = 0;
};

}  // namespace lockstep
