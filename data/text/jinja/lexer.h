// The tokens of a template: its text, and what stands within {{ }} and {% %}. Plain values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::jinja {

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

// The last one is kEnd. `trims`: Reading::trims. Throws ExitCode::kBadData naming the line.
std::vector<Token> tokens_of(std::string_view source, bool trims);

[[noreturn]] void refuse_line(int line, const std::string& what);  // ExitCode::kBadData: "line 3: what"

}  // namespace lockstep::jinja
