#include "data/text/jinja/expression_parser.h"

#include <charconv>
#include <cstdlib>

namespace lockstep::jinja {

NodePtr ExpressionParser::tuple_or_expression(bool choices) {
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

NodePtr ExpressionParser::expression() {
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

NodePtr ExpressionParser::both(Kind kind, int line, NodePtr left, NodePtr right, std::string name) {
  Node out = node(kind, line);
  out.name = std::move(name);
  out.parts.push_back(std::move(left)), out.parts.push_back(std::move(right));
  return make(std::move(out));
}

NodePtr ExpressionParser::disjunction() {
  NodePtr out = conjunction();
  while (is_word("or")) {
    const int line = take().line;
    out = both(Kind::kOr, line, std::move(out), conjunction());
  }
  return out;
}

NodePtr ExpressionParser::conjunction() {
  NodePtr out = negation();
  while (is_word("and")) {
    const int line = take().line;
    out = both(Kind::kAnd, line, std::move(out), negation());
  }
  return out;
}

NodePtr ExpressionParser::negation() {
  const Deeper deeper(*this);
  if (!is_word("not")) return comparison();
  Node out = node(Kind::kNot, take().line);
  out.parts.push_back(negation());
  return make(std::move(out));
}

NodePtr ExpressionParser::comparison() {
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

NodePtr ExpressionParser::sum() {
  NodePtr out = concatenation();
  while (is_operator("+") || is_operator("-")) {
    const Token op = take();
    out = both(Kind::kBinary, op.line, std::move(out), concatenation(), op.text);
  }
  return out;
}

NodePtr ExpressionParser::concatenation() {
  Node out = node(Kind::kConcat, now().line);
  out.parts.push_back(product());
  while (skip_operator("~")) out.parts.push_back(product());
  return out.parts.size() == 1 ? std::move(out.parts[0]) : make(std::move(out));
}

NodePtr ExpressionParser::product() {
  NodePtr out = power();
  while (is_operator("*") || is_operator("/") || is_operator("//") || is_operator("%")) {
    const Token op = take();
    out = both(Kind::kBinary, op.line, std::move(out), power(), op.text);
  }
  return out;
}

NodePtr ExpressionParser::power() {
  NodePtr out = unary();
  while (is_operator("**")) {
    const int line = take().line;
    out = both(Kind::kBinary, line, std::move(out), unary(), "**");
  }
  return out;
}

NodePtr ExpressionParser::unary(bool with_filters) {
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

NodePtr ExpressionParser::constant(int line, Value value) {
  Node out = node(Kind::kConstant, line);
  out.value = std::move(value);
  return make(std::move(out));
}

NodePtr ExpressionParser::primary() {
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

NodePtr ExpressionParser::postfix(NodePtr out) {
  for (;;) {
    if (is_operator(".") || is_operator("[")) out = subscript(std::move(out));
    else if (is_operator("(")) out = call(std::move(out));
    else return out;
  }
}

NodePtr ExpressionParser::subscript(NodePtr of) {
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

void ExpressionParser::arguments(Node& to) {
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

NodePtr ExpressionParser::call(NodePtr of) {
  Node out = node(Kind::kCall, now().line);
  out.parts.push_back(std::move(of));
  arguments(out);
  return make(std::move(out));
}

NodePtr ExpressionParser::filter(NodePtr of, int line) {
  Node out = node(Kind::kFilter, line);
  out.name = need_name();
  out.parts.push_back(std::move(of));
  if (is_operator("(")) arguments(out);
  return make(std::move(out));
}

NodePtr ExpressionParser::filter_chain(int line) {
  NodePtr out = filter(make(node(Kind::kCaptured, line)), line);
  while (is_operator("|")) {
    const int at = take().line;
    out = filter(std::move(out), at);
  }
  return out;
}

NodePtr ExpressionParser::filters(NodePtr out) {
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

NodePtr ExpressionParser::test(NodePtr of) {
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
    if (value || (name && !is_word("if") && !is_word("in") && !is_word("not"))) out.parts.push_back(postfix(primary()));
  }
  NodePtr made = make(std::move(out));
  if (!negated) return made;
  Node no = node(Kind::kNot, made->line);
  no.parts.push_back(std::move(made));
  return make(std::move(no));
}

}  // namespace lockstep::jinja
