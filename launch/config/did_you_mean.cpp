#include "launch/config/did_you_mean.h"

#include <algorithm>
#include <cstdlib>

#include "core/base/error.h"
#include "launch/config/other_names.h"

namespace lockstep {

int edit_distance(std::string_view a, std::string_view b, int limit) {
  const int n = static_cast<int>(a.size()), m = static_cast<int>(b.size());
  if (std::abs(n - m) > limit) return limit + 1;
  std::vector<int> before(m + 1), last(m + 1), now(m + 1);
  for (int j = 0; j <= m; ++j) last[j] = j;
  for (int i = 1; i <= n; ++i) {
    now[0] = i;
    int best = i;
    for (int j = 1; j <= m; ++j) {
      int cost = a[i - 1] == b[j - 1] ? 0 : 1;
      now[j] = std::min({last[j] + 1, now[j - 1] + 1, last[j - 1] + cost});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) now[j] = std::min(now[j], before[j - 2] + 1);
      best = std::min(best, now[j]);
    }
    if (best > limit) return limit + 1;
    std::swap(before, last);
    std::swap(last, now);
  }
  return std::min(last[m], limit + 1);
}

namespace {

std::string_view last_part(std::string_view key) { return key.substr(key.rfind('.') + 1); }

// What another program means by the name, where one of the candidates is meant, or where no key is; else null.
const OtherName* meant_elsewhere(std::string_view word, const std::vector<std::string>& candidates) {
  for (const OtherName& other : other_names())
    if (last_part(word) == other.name &&
        (other.ours.empty() || std::find(candidates.begin(), candidates.end(), other.ours) != candidates.end()))
      return &other;
  return nullptr;
}

}  // namespace

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
  if (word.size() > 200) return "";
  if (const OtherName* other = meant_elsewhere(word, candidates)) return std::string(other->ours);
  int limit = 1 + static_cast<int>(word.size()) / 5;
  std::string best;
  for (const auto& c : candidates) {
    if (c.size() <= static_cast<size_t>(limit)) continue;  // any short word is within the limit
    int d = edit_distance(word, c, limit);
    if (d <= limit && (best.empty() || d < edit_distance(word, best, limit))) best = c;
  }
  // A name that begins with the word counts as nearer than two typing errors: "keep" -> "keep_last".
  std::string longer;
  for (const auto& c : candidates)
    if (c.starts_with(std::string(word) + "_") && (longer.empty() || c.size() < longer.size())) longer = c;
  if (!longer.empty() && (best.empty() || edit_distance(word, best, 1) > 1)) return longer;
  if (!best.empty()) return best;
  for (const auto& c : candidates)
    if (last_part(c) == last_part(word)) return c;
  return "";
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates) {
  const std::string best = nearest(word, candidates);
  const OtherName* other = meant_elsewhere(word, candidates);
  const std::string note(other ? other->note : "");
  if (best.empty()) return note.empty() ? "" : "; " + note;
  return str("; did you mean ", best, note.empty() ? "" : str(" (", note, ")"), "?");
}

}  // namespace lockstep
