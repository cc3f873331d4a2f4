#include "core/metrics/token_texts.h"

#include "core/base/error.h"

namespace lockstep {

const TokenTexts::Counts& TokenTexts::at(int32_t id) {
  if (counts_.empty()) {
    const auto is_white = [](char c) { return c == ' ' || (c >= '\t' && c <= '\r'); };
    counts_.reserve(static_cast<size_t>(count_));
    for (int32_t token = 0; token < count_; ++token) {
      const std::string text = text_of_(token);
      Counts c;
      c.bytes = static_cast<int32_t>(text.size());
      for (size_t i = 1; i < text.size(); ++i) c.words_within += !is_white(text[i]) && is_white(text[i - 1]);
      c.begins_in_word = !text.empty() && !is_white(text.front());
      c.ends_in_word = !text.empty() && !is_white(text.back());
      counts_.push_back(c);
    }
  }
  check(id >= 0 && id < static_cast<int64_t>(counts_.size()), "token ", id, " of a vocabulary of ", counts_.size());
  return counts_[static_cast<size_t>(id)];
}

}  // namespace lockstep
