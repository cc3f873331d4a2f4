#include "data/samples/text/text_windows.h"

#include <algorithm>

#include "core/base/error.h"

namespace lockstep {

int64_t text_windows(int64_t tokens, int64_t context) { return std::max<int64_t>(1, ceil_div(tokens - 1, context)); }

int64_t TextWindows::longest(const DatasetFile& file, int64_t context) {
  require(file.header.records.count > 0, ExitCode::kBadData, file.path,
          ": is one text without records, so that the texts in it cannot be told apart; import them as records "
          "(lockstep data "
          "import json)");
  int64_t out = 1;
  visit_records(file, [&](IndexRange text) { out = std::max(out, std::min(context, text.size() - 1)); });
  return out;
}

TextWindows::TextWindows(std::shared_ptr<const DatasetFile> file, int64_t context, int64_t width)
    : file_(std::move(file)), tokens_(file_) {
  visit_records(*file_, [&](IndexRange text) {
    for (int64_t i = 0, count = text_windows(text.size(), context); i < count; ++i) {
      const int64_t begin = text.begin + i * context;
      windows_.push_back({begin, std::min(text.end, begin + context + 1)});
    }
  });
  spec_.tensors = {{"tokens", DType::kInt32, {width}}, {std::string(kLabels), DType::kInt32, {width}}};
  spec_.classes = file_->header.vocabulary_size;
  spec_.unit = "tokens";
  spec_.units = width;
  spec_.next_tokens = true;
}

void TextWindows::read(int64_t, int64_t index, SampleMemory sample) const {
  const IndexRange window = windows_[static_cast<size_t>(index)];
  auto *ids = static_cast<int32_t*>(sample[0]), *labels = static_cast<int32_t*>(sample[1]);
  std::vector<int32_t> all(static_cast<size_t>(window.size()));
  tokens_.read(window, all.data());
  const int64_t inputs = std::max<int64_t>(1, window.size() - 1);
  std::fill(std::copy_n(all.begin(), inputs, ids), ids + spec_.units, 0);
  std::fill(std::copy(all.begin() + 1, all.end(), labels), labels + spec_.units, kIgnoreIndex);
}

}  // namespace lockstep
