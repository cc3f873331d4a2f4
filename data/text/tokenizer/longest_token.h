// LongestToken: finds the longest of many tokens that a text begins with, in a time that grows with the logarithm of
// their number, however long they are: they are sorted, and each knows the longest other one that it begins with.
// Immutable; refers to the tokens' texts.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace lockstep {

class LongestToken {
 public:
  struct Token {
    std::string_view text;
    int32_t id;
  };
  LongestToken() = default;
  explicit LongestToken(std::vector<Token> tokens) : tokens_(std::move(tokens)), shorter_(tokens_.size(), kNone) {
    std::sort(tokens_.begin(), tokens_.end(),
              [](const Token& a, const Token& b) { return std::tie(a.text, a.id) < std::tie(b.text, b.id); });
    std::vector<size_t> within;  // tokens that the one before begins with, that one included: each begins the next
    for (size_t i = 0; i < tokens_.size(); ++i) {
      while (!within.empty() && !tokens_[i].text.starts_with(tokens_[within.back()].text)) within.pop_back();
      if (!within.empty()) shorter_[i] = within.back();
      within.push_back(i);
    }
  }
  // Of two equal tokens the one with the higher id; null where there are none.
  const Token* repeated() const {
    const auto at = std::adjacent_find(tokens_.begin(), tokens_.end(),
                                       [](const Token& a, const Token& b) { return a.text == b.text; });
    return at == tokens_.end() ? nullptr : &*std::next(at);
  }
  // Null where the text begins with none.
  const Token* of(std::string_view text) const {
    const auto after = std::upper_bound(tokens_.begin(), tokens_.end(), text,
                                        [](std::string_view t, const Token& token) { return t < token.text; });
    if (after == tokens_.begin()) return nullptr;
    // Every token that the text begins with is the one in front of `after`, or one that this begins with.
    size_t at = static_cast<size_t>(after - tokens_.begin()) - 1;
    const std::string_view near = tokens_[at].text;
    const size_t most = std::min(near.size(), text.size());
    const auto same = static_cast<size_t>(
        std::mismatch(near.begin(), near.begin() + static_cast<ptrdiff_t>(most), text.begin()).first - near.begin());
    while (at != kNone && tokens_[at].text.size() > same) at = shorter_[at];
    return at == kNone ? nullptr : &tokens_[at];
  }

 private:
  static constexpr size_t kNone = static_cast<size_t>(-1);
  std::vector<Token> tokens_;    // sorted
  std::vector<size_t> shorter_;  // of each, the longest other token that it begins with
};

}  // namespace lockstep
