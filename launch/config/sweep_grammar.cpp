#include "launch/config/sweep_grammar.h"

#include <fnmatch.h>
#include <sstream>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <sstream>

#include "core/base/error.h"
#include "launch/config/settings.h"
#include "launch/config/sweep_draws.h"

namespace lockstep {
namespace {

std::string_view without_spaces(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

// An argument while it is read: errors name it.
class Reader {
 public:
  Reader(std::string_view argument, const ChoicesOf& choices) : argument_(argument), choices_(choices) {
    if (argument.starts_with('~')) {
      key_ = argument;
      return;
    }
    const size_t equals = argument.find('=');
    if (equals == argument.npos || equals == 0) fail("write key.path=value, or key.path=value,value");
    key_ = argument.substr(0, equals);
    value_ = without_spaces(argument.substr(equals + 1));
  }

  SweepKey read() {
    if (key_.starts_with('~')) return {key_, {""}, false};
    const std::string name = function_name(value_);
    if (name.empty()) {
      const SweepKey plain{key_, {std::string(argument_.substr(key_.size() + 1))}, false};
      if (value_.find(',') == value_.npos) return plain;
      SweepKey out{key_, parts_of(value_)};
      if (out.values.size() == 1) return plain;
      for (const std::string& value : out.values)
        if (!function_name(value).empty()) fail(str(value, " stands alone: it cannot be a part of a list"));
      return out;
    }
    const std::string_view inside = value_.substr(name.size() + 1, value_.size() - name.size() - 2);
    if (name == "choice") return {key_, parts_of(inside)};
    if (name == "range") return {key_, range(parts_of(inside))};
    if (name == "glob") return {key_, glob(std::string(unquoted(without_spaces(inside))))};
    if (name == "interval") return {key_, {}, true, interval(parts_of(inside), false)};
    if (name == "tag") return {key_, {}, true, tagged(parts_of(inside))};
    fail(str(name, "(...) is not supported: use a list, choice(...), range(...), glob(...) or interval(...)"));
  }

 private:
  [[noreturn]] void fail(std::string_view why) const {
    throw Error(ExitCode::kUsage, str("sweep: ", argument_, ": ", why));
  }

  // "range" of "range(1,3)"; empty where the text is no call of a function of Hydra's grammar.
  static std::string function_name(std::string_view text) {
    static const std::set<std::string_view> known{"choice", "range",    "glob",       "interval", "shuffle",
                                                  "sort",   "tag",      "int",        "float",    "str",
                                                  "bool",   "json_str", "extend_list"};
    const size_t open = text.find('(');
    if (open == text.npos || text.back() != ')' || !known.count(text.substr(0, open))) return {};
    return std::string(text.substr(0, open));
  }

  static std::string_view unquoted(std::string_view text) {
    const bool quoted = text.size() >= 2 && (text[0] == '\'' || text[0] == '"') && text.back() == text[0];
    return quoted ? text.substr(1, text.size() - 2) : text;
  }

  // The parts between the commas that are in no brackets and no quotes.
  std::vector<std::string> parts_of(std::string_view text) const {
    std::vector<std::string> parts;
    std::string open;  // the brackets that would close those that are open
    char quote = 0;
    size_t begin = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      const char c = text[i];
      if (quote) {
        const bool doubled = quote == '\'' && c == quote && i + 1 < text.size() && text[i + 1] == c;
        if ((c == '\\' && quote == '"') || doubled) ++i;
        else if (c == quote) quote = 0;
      } else if (c == '\'' || c == '"') {
        if (opens_quote(text, i)) quote = c;
      } else if (c == '[' || c == '{' || c == '(') {
        open += c == '[' ? ']' : c == '{' ? '}' : ')';
      } else if (c == ']' || c == '}' || c == ')') {
        if (open.empty() || open.back() != c) fail(str("a '", std::string(1, c), "' closes no bracket"));
        open.pop_back();
      } else if (c == ',' && open.empty()) {
        parts.emplace_back(without_spaces(text.substr(begin, i - begin)));
        begin = i + 1;
      }
    }
    if (quote) fail(str("a quote (", std::string(1, quote), ") is not closed"));
    if (!open.empty()) fail(str("a bracket is not closed: '", open.substr(open.size() - 1), "' is missing"));
    parts.emplace_back(without_spaces(text.substr(begin)));
    if (parts.size() > 1 || value_ != text)
      for (const std::string& part : parts)
        if (part.empty()) fail("a value between commas is empty: write '' for an empty text");
    return parts;
  }
  // As in YAML, a quote within a word, such as don't, is an ordinary character.
  static bool opens_quote(std::string_view text, size_t at) {
    const size_t before = at == 0 ? text.npos : text.find_last_not_of(" \t", at - 1);
    return before == text.npos || std::string_view(",[{(:").find(text[before]) != text.npos;
  }

  double number(const std::string& text, bool& whole) const {
    char* end = nullptr;
    const double v = std::strtod(text.c_str(), &end);
    if (text.empty() || *end || !std::isfinite(v)) fail(str("'", text, "' is not a number"));
    whole = whole && text.find_first_not_of("+-0123456789") == text.npos;
    return v;
  }

  std::vector<std::string> range(const std::vector<std::string>& words) const {
    if (words.size() > 3) fail("write range(start,stop), range(start,stop,step) or range(stop)");
    bool whole = true;
    std::vector<double> n;
    for (const std::string& word : words) n.push_back(number(word, whole));
    const double start = n.size() > 1 ? n[0] : 0, stop = n.size() > 1 ? n[1] : n[0], step = n.size() > 2 ? n[2] : 1;
    if (step == 0) fail("the step is 0");
    // A stop that a multiple of the step misses by rounding alone is not passed.
    const double count = std::ceil((stop - start) / step - 1e-9);
    if (count < 1) fail(str("has no values: the stop is not part of a range, and the step is ", words_of(step)));
    if (count > SweepGrid::kMaxPoints) fail(str("has more than ", SweepGrid::kMaxPoints, " values"));
    std::vector<std::string> out;
    for (int64_t i = 0; i < static_cast<int64_t>(count); ++i) {
      const double v = start + static_cast<double>(i) * step;
      out.push_back(whole ? str(static_cast<int64_t>(v)) : words_of(v));
    }
    return out;
  }
  SweepInterval interval(const std::vector<std::string>& words, bool log) const {
    if (words.size() != 2) fail("write interval(low,high), or tag(log, interval(low,high))");
    bool whole = false;
    const SweepInterval out{number(words[0], whole), number(words[1], whole), log};
    if (out.low >= out.high) fail("the interval is empty: its first number must be below the second");
    if (log && out.low <= 0) fail("an interval with the tag log must lie above 0");
    return out;
  }
  SweepInterval tagged(const std::vector<std::string>& words) const {
    const std::string inner = words.size() == 2 ? words[1] : "";
    if (words[0] != "log" || function_name(inner) != "interval")
      fail("of tags there is tag(log, interval(low,high)) alone");
    return interval(parts_of(std::string_view(inner).substr(9, inner.size() - 10)), true);
  }
  // 12 digits, which do not show that 0.1 + 0.2 is not 0.3.
  static std::string words_of(double v) {
    char text[32];
    std::snprintf(text, sizeof text, "%.12g", v);
    return text;
  }

  std::vector<std::string> glob(const std::string& pattern) const {
    const std::vector<std::string> all = choices_(key_);
    if (all.empty()) fail(str(key_, " is not a key with a list of choices, so that glob has nothing to match"));
    std::vector<std::string> out;
    std::string listed;
    for (const std::string& choice : all) {
      listed += str(listed.empty() ? "" : ", ", choice);
      if (::fnmatch(pattern.c_str(), choice.c_str(), 0) == 0) out.push_back(choice);
    }
    if (out.empty()) fail(str("matches no choice of ", key_, ": ", listed));
    return out;
  }

  const std::string_view argument_;
  const ChoicesOf& choices_;
  std::string key_;
  std::string_view value_;
};

}  // namespace

SweepKey parse_sweep_argument(std::string_view argument, const ChoicesOf& choices) {
  return Reader(argument, choices).read();
}

SweepGrid SweepGrid::parse(const std::vector<std::string>& arguments, const ChoicesOf& choices,
                           const std::optional<SweepDraws>& draws) {
  SweepGrid grid;
  for (const std::string& argument : arguments) {
    SweepKey key = parse_sweep_argument(argument, choices);
    const auto same = std::find_if(grid.keys.begin(), grid.keys.end(), [&](auto& k) { return k.key == key.key; });
    require(same == grid.keys.end() || !(same->swept || key.swept), ExitCode::kUsage, "sweep: ", key.key,
            " is given twice");
    grid.keys.push_back(std::move(key));
    if (draws) continue;
    require(!grid.keys.back().interval, ExitCode::kUsage, "sweep: ", argument,
            ": an interval has values to draw, not to list: give --random N, or use range(start,stop,step)");
    require(grid.points() <= kMaxPoints, ExitCode::kUsage, "sweep: more than ", kMaxPoints, " points, with ",
            grid.keys.back().key, " at the latest");
  }
  if (draws) grid.draw(*draws);
  return grid;
}

namespace {

// How many different points the values make; SweepGrid::kMaxPoints where there are as many or more, or an interval.
int64_t different_points(const std::vector<SweepKey>& keys) {
  int64_t n = 1;
  for (const SweepKey& k : keys) {
    if (!k.swept) continue;
    if (k.interval) return SweepGrid::kMaxPoints;
    n *= std::ssize(std::set<std::string>(k.values.begin(), k.values.end()));
    if (n >= SweepGrid::kMaxPoints) return SweepGrid::kMaxPoints;
  }
  return n;
}

}  // namespace

// A point that is equal to an earlier one is drawn anew, where the values make enough different ones.
void SweepGrid::draw(const SweepDraws& draws) {
  drawn = true;
  require(!swept_keys().empty(), ExitCode::kUsage, "sweep: --random has nothing to draw: give a key several values");
  constexpr int64_t kMostDraws = 100;  // for each point, on average: even all points of a space take fewer
  bool differ = different_points(keys) >= draws.points;
  std::vector<std::vector<std::string>> values(keys.size());
  std::set<std::vector<std::string>> seen;
  for (int64_t n = 0, found = 0; found < draws.points; ++n) {
    differ = differ && n < kMostDraws * (draws.points + 10);
    std::vector<std::string> point;
    for (const SweepKey& k : keys)
      if (k.swept) point.push_back(value_at(k, sweep_draw(draws.seed, n, k.key)));
    if (differ && !seen.insert(point).second) continue;
    ++found;
    auto next = point.begin();
    for (size_t i = 0; i < keys.size(); ++i)
      if (keys[i].swept) values[i].push_back(std::move(*next++));
  }
  for (size_t i = 0; i < keys.size(); ++i)
    if (keys[i].swept) keys[i] = {keys[i].key, std::move(values[i])};
}

int64_t SweepGrid::points() const {
  int64_t n = 1;
  for (const SweepKey& k : keys) {
    const auto count = static_cast<int64_t>(k.values.size());
    if (drawn && k.swept) return count;
    n *= count;
  }
  return n;
}

std::vector<std::string> SweepGrid::swept_keys() const {
  std::vector<std::string> out;
  for (const SweepKey& k : keys)
    if (k.swept) out.push_back(k.key);
  return out;
}

std::vector<std::string> SweepGrid::values(int64_t point) const {
  std::vector<std::string> out;
  for (const SweepKey& k : keys)
    if (drawn && k.swept) out.push_back(k.values[static_cast<size_t>(point)]);
  for (auto k = keys.rbegin(); !drawn && k != keys.rend(); ++k) {
    const auto count = static_cast<int64_t>(k->values.size());
    if (k->swept) out.push_back(k->values[static_cast<size_t>(point % count)]);
    point /= count;
  }
  if (!drawn) std::reverse(out.begin(), out.end());
  return out;
}

std::vector<std::string> SweepGrid::overrides(int64_t point) const {
  std::vector<std::string> out;
  const std::vector<std::string> chosen = values(point);
  auto next = chosen.begin();
  for (const SweepKey& k : keys)
    out.push_back(k.key.starts_with('~') ? k.key : str(k.key, "=", k.swept ? *next++ : k.values[0]));
  return out;
}

std::string SweepGrid::text(int64_t point) const {
  std::string out;
  const std::vector<std::string> names = swept_keys(), chosen = values(point);
  for (size_t i = 0; i < names.size(); ++i) out += str(i ? " " : "", names[i], "=", chosen[i]);
  return out.empty() ? "no swept keys" : out;
}

ChoicesOf choices_of_keys(const App& app) {
  return [keys = all_keys(app)](const std::string& name) {
    std::vector<std::string> out;
    for (const ConfigKey& k : keys) {
      if (k.key != name || k.type != "choice" || !out.empty()) continue;
      std::istringstream words(k.range);
      for (std::string word; words >> word;)
        if (word != "|") out.push_back(word);
    }
    return out;
  };
}

}  // namespace lockstep
