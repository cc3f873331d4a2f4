#include "data/text/jinja/parser.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <unordered_set>

#include "core/base/error.h"
#include "data/text/valid_text.h"
#include "data/text/vocabulary.h"

namespace lockstep::jinja {
namespace {

constexpr size_t kLargestSource = 1 << 20;  // bytes
constexpr int kDeepest = 200;               // expressions and statements within each other
constexpr int kDeepestTree = 600;           // nodes

[[noreturn]] void refuse(int line, const std::string& what) {
  throw Error(ExitCode::kBadData, str("line ", line, ": ", what));
}

// --- tokens

enum class TokenKind : uint8_t {
  kText,
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd
};

struct Token {
  TokenKind kind;
  int line;
  std::string text = {};  // of operators and names as written; of strings what they mean
};

bool is_name_begin(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || static_cast<uint8_t>(c) >= 0x80;
}
bool is_digit(char c) { return c >= '0' && c <= '9'; }

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

  // Text up to the next tag, and the tag.
  void text() {
    size_t open = at_;
    while ((open = source_.find('{', open)) != std::string::npos && open + 1 < source_.size() &&
           std::string_view("{%#").find(source_[open + 1]) == std::string_view::npos)
      ++open;
    const bool tag = open != std::string::npos && open + 1 < source_.size();
    const size_t begin = at_, end = tag ? open : source_.size();
    std::string text = source_.substr(begin, end - begin);
    const char sort = tag ? source_[open + 1] : '\0';
    const char sign = tag && open + 2 < source_.size() ? source_[open + 2] : '\0';
    if (tag && sign == '-') {
      text = stripped(Text(text), nullptr, Sides::kRight).bytes;
    } else if (tag && trims_ && sort != '{' && sign != '+') {  // lstrip_blocks
      const size_t line = text.rfind('\n') == std::string::npos ? 0 : text.rfind('\n') + 1;
      if ((line > 0 || line_starts_) && stripped(Text(text.substr(line)), nullptr, Sides::kBoth).empty())
        text.resize(line);
    }
    if (!text.empty()) add(TokenKind::kText, text);
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
    if (end == std::string::npos) refuse(begin, "a comment, {#, has no end, #}");
    const char sign = end > at_ && (source_[end - 1] == '-' || source_[end - 1] == '+') ? source_[end - 1] : '\0';
    skip_to(end + 2);
    close(sign, true);
  }

  bool is_raw() {
    size_t i = at_;
    const auto spaces = [&] {
      while (i < source_.size() && (source_[i] == ' ' || source_[i] == '\t' || source_[i] == '\n')) ++i;
    };
    spaces();
    if (source_.compare(i, 3, "raw") != 0) return false;
    i += 3;
    spaces();
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
      if (open == std::string::npos) refuse(begin, "{% raw %} has no {% endraw %}");
      size_t i = open + 2;
      const char sign = i < source_.size() ? source_[i] : '\0';
      if (sign == '-' || sign == '+') ++i;
      while (i < source_.size() && (source_[i] == ' ' || source_[i] == '\t' || source_[i] == '\n')) ++i;
      from = open + 2;
      if (source_.compare(i, 6, "endraw") != 0) continue;
      i += 6;
      while (i < source_.size() && (source_[i] == ' ' || source_[i] == '\t' || source_[i] == '\n')) ++i;
      const char end_sign = i < source_.size() ? source_[i] : '\0';
      if (end_sign == '-' || end_sign == '+') ++i;
      if (source_.compare(i, 2, "%}") != 0) continue;
      std::string text = source_.substr(at_, open - at_);
      if (sign == '-') {
        text = stripped(Text(text), nullptr, Sides::kRight).bytes;
      } else if (trims_ && sign != '+') {
        const size_t line = text.rfind('\n') == std::string::npos ? 0 : text.rfind('\n') + 1;
        if ((line > 0 || line_starts_) && stripped(Text(text.substr(line)), nullptr, Sides::kBoth).empty())
          text.resize(line);
      }
      if (!text.empty()) add(TokenKind::kText, text);
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
      if (at_ >= source_.size()) refuse(begin, variable ? "{{ has no end, }}" : "{% has no end, %}");
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
        while (end < source_.size() && (is_name_begin(source_[end]) || is_digit(source_[end]))) ++end;
        add(TokenKind::kName, source_.substr(at_, end - at_));
        skip_to(end);
      } else if (is_digit(c)) {
        number();
      } else if (c == '"' || c == '\'') {
        string(c);
      } else {
        operation(brackets);
      }
    }
  }

  void number() {
    std::string digits;
    size_t end = at_;
    bool real = false;
    const auto take = [&] {
      while (end < source_.size() && (is_digit(source_[end]) || (source_[end] == '_' && end + 1 < source_.size() &&
                                                                 is_digit(source_[end + 1])))) {
        if (source_[end] != '_') digits += source_[end];
        ++end;
      }
    };
    take();
    // Behind a point a number is an index: x.0.1
    const bool index = !out_.empty() && out_.back().kind == TokenKind::kOperator && out_.back().text == ".";
    if (!index && end + 1 < source_.size() && source_[end] == '.' && is_digit(source_[end + 1])) {
      digits += source_[end++];
      take();
      real = true;
    }
    if (!index && end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
      size_t i = end + 1;
      if (i < source_.size() && (source_[i] == '-' || source_[i] == '+')) ++i;
      if (i < source_.size() && is_digit(source_[i])) {
        digits += source_.substr(end, i - end);
        end = i;
        take();
        real = true;
      }
    }
    add(real ? TokenKind::kFloat : TokenKind::kInteger, digits);
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
        refuse(begin, "a text has an escape without its digits");
      i += digits;
      if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000))
        refuse(begin, "a text has an escape of no character");
      out += to_utf8(value);
    };
    for (;;) {
      if (i >= source_.size()) refuse(begin, str("a text has no end, ", quote));
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
      else if (e == 'N') refuse(begin, "the escape \\N is not supported");
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
      refuse(line_, str("the character ", character_text(character_at(source_, at_)), " means nothing here"));
    if (const size_t which = std::string_view("([{").find(found); which != std::string_view::npos) {
      brackets += ")]}"[which];
    } else if (std::string_view(")]}").find(found) != std::string_view::npos) {
      if (brackets.empty() || brackets.back() != found[0]) refuse(line_, str("'", found, "' closes nothing"));
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

// --- the tree

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  Parsed run() {
    Node root{Kind::kBody, 1};
    root.body = statements({});
    return {make(std::move(root)), std::move(names_), marks_};
  }

 private:
  using TokenKind::kName;
  // Counts how deep the parser is.
  class Deeper {
   public:
    explicit Deeper(Parser& p) : p_(p) {
      if (++p_.depth_ > kDeepest) refuse(p_.now().line, str("is nested deeper than ", kDeepest, " levels"));
    }
    ~Deeper() { --p_.depth_; }

   private:
    Parser& p_;
  };

  // A tree may lean to one side, as that of a + b + c + ... does, which the parser does not see in its own depth.
  static NodePtr make(Node node) {
    for (const auto* children : {&node.parts, &node.body, &node.other})
      for (const NodePtr& child : *children)
        if (child) node.depth = std::max(node.depth, child->depth + 1);
    if (node.depth > kDeepestTree) refuse(node.line, "an expression is too long");
    return std::make_unique<const Node>(std::move(node));
  }
  static Node node(Kind kind, int line) { return Node{kind, line}; }
  const Token& now() const { return tokens_[at_]; }
  const Token& later() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token take() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  bool is(TokenKind kind, std::string_view text) const { return now().kind == kind && now().text == text; }
  bool is_operator(std::string_view text) const { return is(TokenKind::kOperator, text); }
  bool is_word(std::string_view text) const { return is(TokenKind::kName, text); }
  bool skip_operator(std::string_view text) { return is_operator(text) && (take(), true); }
  bool skip_word(std::string_view text) { return is_word(text) && (take(), true); }
  std::string shown() const {
    switch (now().kind) {
      case TokenKind::kEnd: return "the end of the template";
      case TokenKind::kBlockEnd: return "the end of the tag, %}";
      case TokenKind::kVariableEnd: return "the end of the tag, }}";
      case TokenKind::kString: return "a text";
      default: return str("'", now().text, "'");
    }
  }
  void need_operator(std::string_view text) {
    if (!skip_operator(text)) refuse(now().line, str("'", text, "' is expected, not ", shown()));
  }
  std::string need_name() {
    if (now().kind != TokenKind::kName) refuse(now().line, str("a name is expected, not ", shown()));
    return named(take().text);
  }
  void need_block_end() {
    if (now().kind != TokenKind::kBlockEnd)
      refuse(now().line, str("the end of the tag, %}, is expected, not ", shown()));
    take();
  }
  std::string named(std::string name) {
    if (known_.insert(name).second) names_.push_back(name);
    return name;
  }

  // Statements up to a tag with one of these names, which is not taken; to the end of the template for none.
  std::vector<NodePtr> statements(const std::vector<std::string_view>& ends) {
    const Deeper deeper(*this);
    std::vector<NodePtr> out;
    const int begin = now().line;
    for (;;) {
      const int line = now().line;
      if (now().kind == TokenKind::kEnd) {
        if (!ends.empty()) refuse(begin, str("{% ", ends.back(), " %} is missing"));
        return out;
      }
      if (now().kind == TokenKind::kText) {
        Node text = node(Kind::kText, line);
        text.value = Text(take().text);
        out.push_back(make(std::move(text)));
      } else if (now().kind == TokenKind::kVariableBegin) {
        take();
        Node print = node(Kind::kPrint, line);
        print.parts.push_back(tuple_or_expression());
        if (now().kind != TokenKind::kVariableEnd)
          refuse(now().line, str("the end of the tag, }}, is expected, not ", shown()));
        take();
        out.push_back(make(std::move(print)));
      } else {
        take();  // {%
        if (now().kind != TokenKind::kName) refuse(line, str("the name of a tag is expected, not ", shown()));
        if (std::find(ends.begin(), ends.end(), now().text) != ends.end()) return out;
        out.push_back(statement());
      }
    }
  }

  NodePtr statement() {
    const int line = now().line;
    const std::string tag = take().text;
    if (tag == "if") return conditional(line);
    if (tag == "for") return loop(line);
    if (tag == "set") return assignment(line);
    if (tag == "macro") return macro(line);
    if (tag == "filter") {
      Node out = node(Kind::kFilterBlock, line);
      out.parts.push_back(filter_chain(line));
      need_block_end();
      out.body = statements({"endfilter"});
      take(), need_block_end();
      return make(std::move(out));
    }
    if (tag == "generation") {
      need_block_end();
      marks_ = true;
      Node out = node(Kind::kGeneration, line);
      out.body = within(false, {"endgeneration"});
      take(), need_block_end();
      return make(std::move(out));
    }
    if (tag == "break" || tag == "continue") {
      if (!in_loop_) refuse(line, str("{% ", tag, " %} is in no loop"));
      need_block_end();
      return make(node(tag == "break" ? Kind::kBreak : Kind::kContinue, line));
    }
    refuse(line, str("the tag '", tag,
                     "' is not supported; there are for, if, set, macro, filter, break, continue, raw and generation"));
  }

  // The statements of a body, in or outside of a loop's.
  std::vector<NodePtr> within(bool loop, const std::vector<std::string_view>& ends) {
    const bool before = std::exchange(in_loop_, loop);
    auto out = statements(ends);
    in_loop_ = before;
    return out;
  }

  NodePtr conditional(int line) {
    const Deeper deeper(*this);
    Node out = node(Kind::kIf, line);
    out.parts.push_back(tuple_or_expression(false));
    need_block_end();
    out.body = statements({"elif", "else", "endif"});
    const Token end = take();
    if (end.text == "elif") {
      out.other.push_back(conditional(end.line));
      return make(std::move(out));
    }
    need_block_end();
    if (end.text == "else") {
      out.other = statements({"endif"});
      take(), need_block_end();
    }
    return make(std::move(out));
  }

  NodePtr loop(int line) {
    Node out = node(Kind::kFor, line);
    out.parts.push_back(target());
    if (!skip_word("in")) refuse(now().line, str("'in' is expected, not ", shown()));
    out.parts.push_back(tuple_or_expression(false));
    if (skip_word("if")) out.parts.push_back(expression());
    if (is_word("recursive")) refuse(now().line, "recursive loops are not supported");
    need_block_end();
    out.body = within(true, {"else", "endfor"});
    if (take().text == "else") {
      need_block_end();
      out.other = statements({"endfor"});
      take();
    }
    need_block_end();
    return make(std::move(out));
  }

  // What a loop or an assignment gives a value to: a name, an attribute of a namespace, or several names.
  NodePtr target(bool attributes = false) {
    const int line = now().line;
    const bool bracket = skip_operator("(");
    std::vector<NodePtr> names;
    bool many = false;
    for (;;) {
      Node one = node(Kind::kName, now().line);
      one.name = need_name();
      if (attributes && names.empty() && skip_operator(".")) {
        Node attribute = node(Kind::kAttribute, line);
        attribute.name = need_name();
        attribute.parts.push_back(make(std::move(one)));
        return make(std::move(attribute));
      }
      names.push_back(make(std::move(one)));
      if (!skip_operator(",")) break;
      many = true;
      if (now().kind != TokenKind::kName || is_word("in")) break;
    }
    if (bracket) need_operator(")");
    if (!many) return std::move(names[0]);
    Node out = node(Kind::kTuple, line);
    out.parts = std::move(names);
    return make(std::move(out));
  }

  NodePtr assignment(int line) {
    NodePtr to = target(true);
    if (skip_operator("=")) {
      Node out = node(Kind::kSet, line);
      out.parts.push_back(std::move(to));
      out.parts.push_back(tuple_or_expression());
      need_block_end();
      return make(std::move(out));
    }
    Node out = node(Kind::kSetBlock, line);
    out.parts.push_back(std::move(to));
    if (is_operator("|")) out.parts.push_back(filters(make(node(Kind::kCaptured, line))));
    need_block_end();
    out.body = statements({"endset"});
    take(), need_block_end();
    return make(std::move(out));
  }

  NodePtr macro(int line) {
    Node out = node(Kind::kMacro, line);
    out.name = need_name();
    need_operator("(");
    while (!is_operator(")")) {
      if (!out.names.empty()) need_operator(",");
      out.names.push_back(need_name());
      if (skip_operator("=")) out.parts.push_back(expression());
      else if (!out.parts.empty()) refuse(now().line, "a parameter without a default follows one with it");
    }
    take();
    out.required = out.names.size() - out.parts.size();
    need_block_end();
    out.body = within(false, {"endmacro"});
    take(), need_block_end();
    return make(std::move(out));
  }

  // Expressions with commas between them are a tuple.
  NodePtr tuple_or_expression(bool choices = true) {
    const int line = now().line;
    NodePtr first = choices ? expression() : disjunction();
    if (!is_operator(",")) return first;
    Node out = node(Kind::kTuple, line);
    out.parts.push_back(std::move(first));
    while (skip_operator(",")) {
      if (now().kind == TokenKind::kVariableEnd || now().kind == TokenKind::kBlockEnd || is_operator(")")) break;
      out.parts.push_back(choices ? expression() : disjunction());
    }
    return make(std::move(out));
  }

  NodePtr expression() {
    const Deeper deeper(*this);
    NodePtr out = disjunction();
    while (is_word("if")) {
      Node choice = node(Kind::kChoice, take().line);
      choice.parts.push_back(std::move(out));
      choice.parts.push_back(disjunction());
      if (skip_word("else")) choice.parts.push_back(expression());
      out = make(std::move(choice));
    }
    return out;
  }

  NodePtr both(Kind kind, int line, NodePtr left, NodePtr right, std::string name = {}) {
    Node out = node(kind, line);
    out.name = std::move(name);
    out.parts.push_back(std::move(left)), out.parts.push_back(std::move(right));
    return make(std::move(out));
  }

  NodePtr disjunction() {
    NodePtr out = conjunction();
    while (is_word("or")) {
      const int line = take().line;
      out = both(Kind::kOr, line, std::move(out), conjunction());
    }
    return out;
  }

  NodePtr conjunction() {
    NodePtr out = negation();
    while (is_word("and")) {
      const int line = take().line;
      out = both(Kind::kAnd, line, std::move(out), negation());
    }
    return out;
  }

  NodePtr negation() {
    const Deeper deeper(*this);
    if (!is_word("not")) return comparison();
    Node out = node(Kind::kNot, take().line);
    out.parts.push_back(negation());
    return make(std::move(out));
  }

  NodePtr comparison() {
    Node out = node(Kind::kCompare, now().line);
    out.parts.push_back(sum());
    for (;;) {
      static constexpr std::string_view kOperators[] = {"==", "!=", "<", "<=", ">", ">="};
      if (now().kind == TokenKind::kOperator &&
          std::find(std::begin(kOperators), std::end(kOperators), now().text) != std::end(kOperators)) {
        out.names.push_back(take().text);
      } else if (skip_word("in")) {
        out.names.push_back("in");
      } else if (is_word("not") && later().kind == TokenKind::kName && later().text == "in") {
        take(), take();
        out.names.push_back("not in");
      } else {
        break;
      }
      out.parts.push_back(sum());
    }
    return out.names.empty() ? std::move(out.parts[0]) : make(std::move(out));
  }

  NodePtr sum() {
    NodePtr out = concatenation();
    while (is_operator("+") || is_operator("-")) {
      const Token op = take();
      out = both(Kind::kBinary, op.line, std::move(out), concatenation(), op.text);
    }
    return out;
  }

  NodePtr concatenation() {
    Node out = node(Kind::kConcat, now().line);
    out.parts.push_back(product());
    while (skip_operator("~")) out.parts.push_back(product());
    return out.parts.size() == 1 ? std::move(out.parts[0]) : make(std::move(out));
  }

  NodePtr product() {
    NodePtr out = power();
    while (is_operator("*") || is_operator("/") || is_operator("//") || is_operator("%")) {
      const Token op = take();
      out = both(Kind::kBinary, op.line, std::move(out), power(), op.text);
    }
    return out;
  }

  NodePtr power() {
    NodePtr out = unary();
    while (is_operator("**")) {
      const int line = take().line;
      out = both(Kind::kBinary, line, std::move(out), unary(), "**");
    }
    return out;
  }

  NodePtr unary(bool with_filters = true) {
    const Deeper deeper(*this);
    NodePtr out;
    if (is_operator("-") || is_operator("+")) {
      const Token op = take();
      Node sign = node(op.text == "-" ? Kind::kNegative : Kind::kPositive, op.line);
      sign.parts.push_back(unary(false));
      out = make(std::move(sign));
    } else {
      out = primary();
    }
    out = postfix(std::move(out));
    return with_filters ? filters(std::move(out)) : std::move(out);
  }

  NodePtr constant(int line, Value value) {
    Node out = node(Kind::kConstant, line);
    out.value = std::move(value);
    return make(std::move(out));
  }

  NodePtr primary() {
    const int line = now().line;
    if (now().kind == TokenKind::kName) {
      const std::string name = take().text;
      if (name == "true" || name == "True") return constant(line, true);
      if (name == "false" || name == "False") return constant(line, false);
      if (name == "none" || name == "None") return constant(line, nullptr);
      Node out = node(Kind::kName, line);
      out.name = named(name);
      return make(std::move(out));
    }
    if (now().kind == TokenKind::kString) {
      std::string text;
      while (now().kind == TokenKind::kString) text += take().text;
      named(text);
      return constant(line, Text(text));
    }
    if (now().kind == TokenKind::kInteger) {
      const std::string digits = take().text;
      int64_t value = 0;
      const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
      if (error != std::errc()) refuse(line, str("the integer ", digits, " is too large"));
      return constant(line, value);
    }
    if (now().kind == TokenKind::kFloat) return constant(line, std::strtod(take().text.c_str(), nullptr));
    if (skip_operator("(")) {
      if (skip_operator(")")) return make(node(Kind::kTuple, line));
      NodePtr out = tuple_or_expression();
      need_operator(")");
      return out;
    }
    if (skip_operator("[")) {
      Node out = node(Kind::kList, line);
      while (!is_operator("]")) {
        if (!out.parts.empty()) need_operator(",");
        if (is_operator("]")) break;
        out.parts.push_back(expression());
      }
      take();
      return make(std::move(out));
    }
    if (skip_operator("{")) {
      Node out = node(Kind::kDict, line);
      while (!is_operator("}")) {
        if (!out.parts.empty()) need_operator(",");
        if (is_operator("}")) break;
        out.parts.push_back(expression());
        need_operator(":");
        out.parts.push_back(expression());
      }
      take();
      return make(std::move(out));
    }
    refuse(line, str("a value is expected, not ", shown()));
  }

  NodePtr postfix(NodePtr out) {
    for (;;) {
      if (is_operator(".") || is_operator("[")) out = subscript(std::move(out));
      else if (is_operator("(")) out = call(std::move(out));
      else return out;
    }
  }

  NodePtr subscript(NodePtr of) {
    const Token bracket = take();
    if (bracket.text == ".") {
      if (now().kind == TokenKind::kInteger) return both(Kind::kElement, bracket.line, std::move(of), primary());
      Node out = node(Kind::kAttribute, bracket.line);
      out.name = need_name();
      if (out.name.starts_with("__")) refuse(bracket.line, str("the attribute '", out.name, "' is not allowed"));
      out.parts.push_back(std::move(of));
      return make(std::move(out));
    }
    NodePtr bounds[3];
    int place = 0;
    const auto ends = [&] { return is_operator("]") || is_operator(":"); };
    if (!ends()) bounds[0] = expression();
    bool slice = false;
    while (is_operator(":")) {
      slice = true;
      take();
      if (++place > 2) refuse(bracket.line, "a slice has a beginning, an end and a step at most");
      if (!ends()) bounds[place] = expression();
    }
    need_operator("]");
    if (!slice && !bounds[0]) refuse(bracket.line, "an index is missing between [ and ]");
    if (!slice) {
      if (const Text* t = bounds[0]->kind == Kind::kConstant ? bounds[0]->value.text() : nullptr;
          t && t->bytes.starts_with("__"))
        refuse(bracket.line, str("the attribute '", t->bytes, "' is not allowed"));
      return both(Kind::kElement, bracket.line, std::move(of), std::move(bounds[0]));
    }
    Node out = node(Kind::kSlice, bracket.line);
    out.parts.push_back(std::move(of));
    for (NodePtr& b : bounds) out.parts.push_back(b ? std::move(b) : constant(bracket.line, nullptr));
    return make(std::move(out));
  }

  // Adds what stands between ( and ).
  void arguments(Node& to) {
    need_operator("(");
    bool any = false;
    while (!is_operator(")")) {
      if (any) need_operator(",");
      if (is_operator(")")) break;
      any = true;
      if (is_operator("**")) refuse(now().line, "arguments by ** are not supported");
      if (is_operator("*")) {
        Node spread = node(Kind::kSpread, take().line);
        spread.parts.push_back(expression());
        to.parts.push_back(make(std::move(spread)));
        continue;
      }
      if (now().kind == TokenKind::kName && later().kind == TokenKind::kOperator && later().text == "=") {
        to.names.push_back(take().text);
        take();
      } else if (!to.names.empty()) {
        refuse(now().line, "an argument without a name follows one with a name");
      }
      to.parts.push_back(expression());
    }
    take();
  }

  NodePtr call(NodePtr of) {
    Node out = node(Kind::kCall, now().line);
    out.parts.push_back(std::move(of));
    arguments(out);
    return make(std::move(out));
  }

  NodePtr filter(NodePtr of, int line) {
    Node out = node(Kind::kFilter, line);
    out.name = need_name();
    out.parts.push_back(std::move(of));
    if (is_operator("(")) arguments(out);
    return make(std::move(out));
  }

  // Of a block: the first without a bar in front.
  NodePtr filter_chain(int line) {
    NodePtr out = filter(make(node(Kind::kCaptured, line)), line);
    while (is_operator("|")) {
      const int at = take().line;
      out = filter(std::move(out), at);
    }
    return out;
  }

  NodePtr filters(NodePtr out) {
    for (;;) {
      if (is_operator("|")) {
        const int line = take().line;
        out = filter(std::move(out), line);
      } else if (is_word("is")) {
        out = test(std::move(out));
      } else if (is_operator("(")) {
        out = call(std::move(out));
      } else {
        return out;
      }
    }
  }

  NodePtr test(NodePtr of) {
    Node out = node(Kind::kTest, take().line);
    const bool negated = skip_word("not");
    out.name = need_name();
    out.parts.push_back(std::move(of));
    if (is_operator("(")) {
      arguments(out);
    } else {
      const TokenKind k = now().kind;
      const bool value = k == TokenKind::kString || k == TokenKind::kInteger || k == TokenKind::kFloat ||
                         is_operator("[") || is_operator("{");
      const bool name = k == TokenKind::kName && !is_word("else") && !is_word("or") && !is_word("and");
      if (is_word("is")) refuse(now().line, "a test of a test needs brackets");
      // What may follow a test without being its argument: "x is defined if y", "x is string not in z".
      if (value || (name && !is_word("if") && !is_word("in") && !is_word("not")))
        out.parts.push_back(postfix(primary()));
    }
    NodePtr made = make(std::move(out));
    if (!negated) return made;
    Node no = node(Kind::kNot, made->line);
    no.parts.push_back(std::move(made));
    return make(std::move(no));
  }

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0;
  bool in_loop_ = false, marks_ = false;
  std::vector<std::string> names_;
  std::unordered_set<std::string> known_;
};

}  // namespace

Parsed parse(std::string_view source, const Reading& how) {
  require(source.size() <= kLargestSource, ExitCode::kBadData, "a chat template has ", kLargestSource >> 20,
          " MiB at most");
  const int64_t invalid = first_invalid(source, TextEncoding::kUtf8);
  require(invalid < 0, ExitCode::kBadData, "byte ", invalid, " is no UTF-8");
  return Parser(Lexer(source, how.trims).run()).run();
}

}  // namespace lockstep::jinja
