#include "data/text/jinja/parser.h"

#include <algorithm>

#include "core/base/error.h"
#include "data/text/jinja/expression_parser.h"
#include "data/text/jinja/lexer.h"
#include "data/text/valid_text.h"

namespace lockstep::jinja {
namespace {

constexpr size_t kLargestSource = 1 << 20;  // bytes

class Parser final : ExpressionParser {
 public:
  explicit Parser(std::vector<Token> tokens) : ExpressionParser(std::move(tokens)) {}

  Parsed run() {
    Node root{Kind::kBody, 1};
    root.body = statements({});
    return {make(std::move(root)), std::move(names_), marks_};
  }

 private:
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

  bool in_loop_ = false, marks_ = false;
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
