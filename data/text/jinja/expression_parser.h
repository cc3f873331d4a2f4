// ExpressionParser: the expressions of a template, of its tokens; what the parser of statements is made on. A base
// class for that alone.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "data/text/jinja/lexer.h"
#include "data/text/jinja/parser.h"

namespace lockstep::jinja {

class ExpressionParser {
 protected:
  static constexpr int kDeepest = 200;      // expressions and statements within each other
  static constexpr int kDeepestTree = 600;  // nodes

  explicit ExpressionParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  // Counts how deep the parser is.
  class Deeper {
   public:
    explicit Deeper(ExpressionParser& p) : p_(p) {
      if (++p_.depth_ > kDeepest) refuse_line(p_.now().line, str("is nested deeper than ", kDeepest, " levels"));
    }
    ~Deeper() { --p_.depth_; }

   private:
    ExpressionParser& p_;
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

  // Expressions with commas between them are a tuple.
  NodePtr tuple_or_expression(bool choices = true);
  NodePtr expression();
  NodePtr both(Kind kind, int line, NodePtr left, NodePtr right, std::string name = {});
  NodePtr disjunction();
  NodePtr conjunction();
  NodePtr negation();
  NodePtr comparison();
  NodePtr sum();
  NodePtr concatenation();
  NodePtr product();
  NodePtr power();
  NodePtr unary(bool with_filters = true);
  NodePtr constant(int line, Value value);
  NodePtr primary();
  NodePtr postfix(NodePtr out);
  NodePtr subscript(NodePtr of);
  // Adds what stands between ( and ).
  void arguments(Node& to);
  NodePtr call(NodePtr of);
  NodePtr filter(NodePtr of, int line);
  // Of a block: the first without a bar in front.
  NodePtr filter_chain(int line);
  NodePtr filters(NodePtr out);
  NodePtr test(NodePtr of);

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0;
  std::vector<std::string> names_;  // that are mentioned, once each
  std::unordered_set<std::string> known_;
};

}  // namespace lockstep::jinja
