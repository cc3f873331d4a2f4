#include "data/text/jinja/lexer.h"

#include <algorithm>
#include <charconv>

#include "core/base/error.h"
#include "data/text/jinja/value.h"
#include "data/text/vocabulary.h"

namespace lockstep::jinja {
namespace {

bool is_name_begin(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || static_cast<uint8_t>(c) >= 0x80;
}
bool is_plain_digit(char c) { return c >= '0' && c <= '9'; }

// All line ends as \n, and without one at the end.
std::string with_plain_line_ends(std::string_view source, bool trims) {
  std::string out;
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  if (trims && out.ends_with('\n')) out.pop_back();
  return out;
}

class Lexer {
 public:
  Lexer(std::string_view source, bool trims) : source_(with_plain_line_ends(source, trims)), trims_(trims) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) text();
    add(TokenKind::kEnd);
    return std::move(out_);
  }

 private:
  void add(TokenKind kind, std::string text = {}) { out_.push_back({kind, line_, std::move(text)}); }
  bool follows(std::string_view what) const { return std::string_view(source_).substr(at_).starts_with(what); }
  // Goes on, and counts lines.
  void skip_to(size_t end) {
    for (; at_ < end; ++at_) line_ += source_[at_] == '\n';
  }
  void skip_spaces() {
    while (at_ < source_.size() && is_python_space(character_at(source_, at_))) {
      size_t end = at_ + 1;
      while (end < source_.size() && (static_cast<uint8_t>(source_[end]) & 0xC0) == 0x80) ++end;
      skip_to(end);
    }
  }

  // Text in front of a tag with this sign, without what `-` and, of a block, lstrip_blocks take away.
  void add_text(std::string text, char sign, bool block) {
    if (sign == '-') {
      text = stripped(Text(text), nullptr, Sides::kRight).bytes;
    } else if (block && trims_ && sign != '+') {
      const size_t line = text.rfind('\n') == std::string::npos ? 0 : text.rfind('\n') + 1;
      if ((line > 0 || line_starts_) && stripped(Text(text.substr(line)), nullptr, Sides::kBoth).empty())
        text.resize(line);
    }
    if (!text.empty()) add(TokenKind::kText, std::move(text));
  }

  // The first byte at or behind `at` that is no white space of a tag.
  size_t behind_spaces(size_t at) const { return std::min(source_.find_first_not_of(" \t\n", at), source_.size()); }

  // Text up to the next tag, and the tag.
  void text() {
    size_t open = at_;
    while ((open = source_.find('{', open)) != std::string::npos && open + 1 < source_.size() &&
           std::string_view("{%#").find(source_[open + 1]) == std::string_view::npos)
      ++open;
    const bool tag = open != std::string::npos && open + 1 < source_.size();
    const size_t begin = at_, end = tag ? open : source_.size();
    const char sort = tag ? source_[open + 1] : '\0';
    const char sign = tag && open + 2 < source_.size() ? source_[open + 2] : '\0';
    add_text(source_.substr(begin, end - begin), sign, tag && sort != '{');
    skip_to(end);
    if (!tag) return;
    skip_to(at_ + 2);
    const bool signed_tag = sign == '-' || (sign == '+' && sort != '{');
    if (signed_tag) skip_to(at_ + 1);
    if (sort == '#') return comment();
    if (sort == '%' && is_raw()) return raw();
    add(sort == '{' ? TokenKind::kVariableBegin : TokenKind::kBlockBegin);
    expression(sort == '{');
  }

  // Behind the end of a tag: what `-` and trim_blocks take away.
  void close(char sign, bool block) {
    line_starts_ = false;
    if (sign == '-') {
      const size_t before = at_;
      skip_spaces();
      line_starts_ = at_ > before && source_[at_ - 1] == '\n';
    } else if (block && trims_ && sign != '+' && at_ < source_.size() && source_[at_] == '\n') {
      skip_to(at_ + 1);
      line_starts_ = true;
    }
  }

  void comment() {
    const int begin = line_;
    const size_t end = source_.find("#}", at_);
    if (end == std::string::npos) refuse_line(begin, "a comment, {#, has no end, #}");
    const char sign = end > at_ && (source_[end - 1] == '-' || source_[end - 1] == '+') ? source_[end - 1] : '\0';
    skip_to(end + 2);
    close(sign, true);
  }

  bool is_raw() {
    size_t i = behind_spaces(at_);
    if (source_.compare(i, 3, "raw") != 0) return false;
    i = behind_spaces(i + 3);
    const bool minus = i < source_.size() && source_[i] == '-';
    if (minus) ++i;
    if (source_.compare(i, 2, "%}") != 0) return false;
    skip_to(i + 2);
    close(minus ? '-' : '\0', false);  // trim_blocks leaves the line end here
    return true;
  }

  void raw() {
    const int begin = line_;
    for (size_t from = at_;;) {
      const size_t open = source_.find("{%", from);
      if (open == std::string::npos) refuse_line(begin, "{% raw %} has no {% endraw %}");
      size_t i = open + 2;
      const char sign = i < source_.size() ? source_[i] : '\0';
      if (sign == '-' || sign == '+') ++i;
      i = behind_spaces(i);
      from = open + 2;
      if (source_.compare(i, 6, "endraw") != 0) continue;
      i = behind_spaces(i + 6);
      const char end_sign = i < source_.size() ? source_[i] : '\0';
      if (end_sign == '-' || end_sign == '+') ++i;
      if (source_.compare(i, 2, "%}") != 0) continue;
      add_text(source_.substr(at_, open - at_), sign, true);
      skip_to(i + 2);
      return close(end_sign == '-' || end_sign == '+' ? end_sign : '\0', true);
    }
  }

  // The tokens of a tag, and its end.
  void expression(bool variable) {
    const int begin = line_;
    std::string brackets;
    for (;;) {
      skip_spaces();
      if (at_ >= source_.size()) refuse_line(begin, variable ? "{{ has no end, }}" : "{% has no end, %}");
      if (brackets.empty()) {
        const char sign = source_[at_];
        const bool is_signed = sign == '-' || (sign == '+' && !variable);
        const std::string_view end = variable ? "}}" : "%}";
        if (source_.compare(at_ + (is_signed ? 1 : 0), 2, end) == 0) {
          skip_to(at_ + (is_signed ? 3 : 2));
          add(variable ? TokenKind::kVariableEnd : TokenKind::kBlockEnd);
          return close(is_signed ? sign : '\0', !variable);
        }
      }
      const char c = source_[at_];
      if (is_name_begin(c)) {
        size_t end = at_ + 1;
        while (end < source_.size() && (is_name_begin(source_[end]) || is_plain_digit(source_[end]))) ++end;
        add(TokenKind::kName, source_.substr(at_, end - at_));
        skip_to(end);
      } else if (is_plain_digit(c)) {
        number();
      } else if (c == '"' || c == '\'') {
        string(c);
      } else {
        operation(brackets);
      }
    }
  }

  void number() {
    if (const int base = base_of_number(); base > 0) return number_of_base(base);
    std::string digits;
    size_t end = at_;
    bool real = false;
    const auto take = [&] {
      while (end < source_.size() &&
             (is_plain_digit(source_[end]) ||
              (source_[end] == '_' && end + 1 < source_.size() && is_plain_digit(source_[end + 1])))) {
        if (source_[end] != '_') digits += source_[end];
        ++end;
      }
    };
    take();
    // Behind a point a number is an index: x.0.1
    const bool index = !out_.empty() && out_.back().kind == TokenKind::kOperator && out_.back().text == ".";
    if (!index && end + 1 < source_.size() && source_[end] == '.' && is_plain_digit(source_[end + 1])) {
      digits += source_[end++];
      take();
      real = true;
    }
    if (!index && end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
      size_t i = end + 1;
      if (i < source_.size() && (source_[i] == '-' || source_[i] == '+')) ++i;
      if (i < source_.size() && is_plain_digit(source_[i])) {
        digits += source_.substr(end, i - end);
        end = i;
        take();
        real = true;
      }
    }
    if (!real && digits[0] == '0' && digits.find_first_not_of('0') != digits.npos)
      refuse_line(line_, str("the integer ", digits, " begins with a 0"));
    add(real ? TokenKind::kFloat : TokenKind::kInteger, digits);
    skip_to(end);
  }

  // 16, 8 or 2 of a number such as 0x1F, 0o17 or 0b11; else 0.
  int base_of_number() const {
    if (source_[at_] != '0' || at_ + 1 >= source_.size()) return 0;
    switch (source_[at_ + 1] | 0x20) {
      case 'x': return 16;
      case 'o': return 8;
      case 'b': return 2;
      default: return 0;
    }
  }

  void number_of_base(int base) {
    std::string digits;
    size_t end = at_ + 2;
    const auto is_digit_at = [&](size_t i) {
      uint8_t digit = 0;
      return i < source_.size() && std::from_chars(&source_[i], &source_[i] + 1, digit, base).ec == std::errc();
    };
    for (; is_digit_at(end) || (end < source_.size() && source_[end] == '_' && is_digit_at(end + 1)); ++end)
      if (source_[end] != '_') digits += source_[end];
    uint64_t value = 0;
    const auto error = std::from_chars(digits.data(), digits.data() + digits.size(), value, base).ec;
    if (digits.empty()) refuse_line(line_, str(source_.substr(at_, 2), " has no digits behind it"));
    add(TokenKind::kInteger, error == std::errc() ? std::to_string(value) : source_.substr(at_, end - at_));
    skip_to(end);
  }

  void string(char quote) {
    const int begin = line_;
    std::string out;
    size_t i = at_ + 1;
    const auto code = [&](size_t digits) {
      uint32_t value = 0;
      const char* from = source_.data() + i;
      if (i + digits > source_.size() || std::from_chars(from, from + digits, value, 16).ptr != from + digits)
        refuse_line(begin, "a text has an escape without its digits");
      i += digits;
      if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000))
        refuse_line(begin, "a text has an escape of no character");
      out += to_utf8(value);
    };
    for (;;) {
      if (i >= source_.size()) refuse_line(begin, str("a text has no end, ", quote));
      const char c = source_[i++];
      if (c == quote) break;
      if (c != '\\' || i >= source_.size()) {
        out += c;
        continue;
      }
      const char e = source_[i++];
      constexpr std::string_view kEscapes = "ntr\\'\"abfv", kMeanings = "\n\t\r\\'\"\a\b\f\v";
      if (const size_t which = kEscapes.find(e); which != kEscapes.npos) out += kMeanings[which];
      else if (e == 'x') code(2);
      else if (e == 'u') code(4);
      else if (e == 'U') code(8);
      else if (e == 'N') refuse_line(begin, "the escape \\N is not supported");
      else if (e >= '0' && e <= '7') {
        uint32_t value = static_cast<uint32_t>(e - '0');
        for (int n = 0; n < 2 && i < source_.size() && source_[i] >= '0' && source_[i] <= '7'; ++n)
          value = value * 8 + static_cast<uint32_t>(source_[i++] - '0');
        out += to_utf8(value);
      } else if (e != '\n') {
        out += '\\', out += e;
      }
    }
    add(TokenKind::kString, out);
    skip_to(i);
  }

  void operation(std::string& brackets) {
    static constexpr std::string_view kTwo[] = {"//", "**", "==", "!=", "<=", ">="};
    static constexpr std::string_view kOne = "+-*/%~[](){}<>=.:|,";
    std::string found;
    for (std::string_view two : kTwo)
      if (follows(two)) found = two;
    if (found.empty() && kOne.find(source_[at_]) != kOne.npos) found = source_.substr(at_, 1);
    if (found.empty())
      refuse_line(line_, str("the character ", character_text(character_at(source_, at_)), " means nothing here"));
    if (const size_t which = std::string_view("([{").find(found); which != std::string_view::npos) {
      brackets += ")]}"[which];
    } else if (std::string_view(")]}").find(found) != std::string_view::npos) {
      if (brackets.empty() || brackets.back() != found[0]) refuse_line(line_, str("'", found, "' closes nothing"));
      brackets.pop_back();
    }
    add(TokenKind::kOperator, found);
    skip_to(at_ + found.size());
  }

  const std::string source_;
  const bool trims_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starts_ = true;  // the text that comes next is at the beginning of a line
  std::vector<Token> out_;
};

}  // namespace

void refuse_line(int line, const std::string& what) { throw Error(ExitCode::kBadData, str("line ", line, ": ", what)); }

std::vector<Token> tokens_of(std::string_view source, bool trims) { return Lexer(source, trims).run(); }

}  // namespace lockstep::jinja
