#include "data/text/jinja/parser.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <unordered_set>

#include "core/base/error.h"
#include "data/text/jinja/lexer.h"
#include "data/text/valid_text.h"

namespace lockstep::jinja {
namespace {

constexpr size_t kLargestSource = 1 << 20;  // bytes
constexpr int kDeepest = 200;               // expressions and statements within each other
constexpr int kDeepestTree = 600;           // nodes

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
      if (++p_.depth_ > kDeepest) refuse_line(p_.now().line, str("is nested deeper than ", kDeepest, " levels"));
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
    if (node.depth > kDeepestTree) refuse_line(node.line, "an expression is too long");
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
    if (!skip_operator(text)) refuse_line(now().line, str("'", text, "' is expected, not ", shown()));
  }
  std::string need_name() {
    if (now().kind != TokenKind::kName) refuse_line(now().line, str("a name is expected, not ", shown()));
    return named(take().text);
  }
  void need_block_end() {
    if (now().kind != TokenKind::kBlockEnd)
      refuse_line(now().line, str("the end of the tag, %}, is expected, not ", shown()));
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
        if (!ends.empty()) refuse_line(begin, str("{% ", ends.back(), " %} is missing"));
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
          refuse_line(now().line, str("the end of the tag, }}, is expected, not ", shown()));
        take();
        out.push_back(make(std::move(print)));
      } else {
        take();  // {%
        if (now().kind != TokenKind::kName) refuse_line(line, str("the name of a tag is expected, not ", shown()));
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
      if (!in_loop_) refuse_line(line, str("{% ", tag, " %} is in no loop"));
      need_block_end();
      return make(node(tag == "break" ? Kind::kBreak : Kind::kContinue, line));
    }
    refuse_line(line,
                str("the tag '", tag,
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
    if (!skip_word("in")) refuse_line(now().line, str("'in' is expected, not ", shown()));
    out.parts.push_back(tuple_or_expression(false));
    if (skip_word("if")) out.parts.push_back(expression());
    if (is_word("recursive")) refuse_line(now().line, "recursive loops are not supported");
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
      else if (!out.parts.empty()) refuse_line(now().line, "a parameter without a default follows one with it");
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
      if (error != std::errc())
        refuse_line(line, str("the integer ", digits, " has more than 64 bits, which is not supported"));
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
    refuse_line(line, str("a value is expected, not ", shown()));
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
      if (out.name.starts_with("__")) refuse_line(bracket.line, str("the attribute '", out.name, "' is not allowed"));
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
      if (++place > 2) refuse_line(bracket.line, "a slice has a beginning, an end and a step at most");
      if (!ends()) bounds[place] = expression();
    }
    need_operator("]");
    if (!slice && !bounds[0]) refuse_line(bracket.line, "an index is missing between [ and ]");
    if (!slice) {
      if (const Text* t = bounds[0]->kind == Kind::kConstant ? bounds[0]->value.text() : nullptr;
          t && t->bytes.starts_with("__"))
        refuse_line(bracket.line, str("the attribute '", t->bytes, "' is not allowed"));
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
      if (is_operator("**")) refuse_line(now().line, "arguments by ** are not supported");
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
        refuse_line(now().line, "an argument without a name follows one with a name");
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
      if (is_word("is")) refuse_line(now().line, "a test of a test needs brackets");
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
  return Parser(tokens_of(source, how.trims)).run();
}

}  // namespace lockstep::jinja
