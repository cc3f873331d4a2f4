// The syntax tree of a template, and what makes it of the text. Plain values.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/text/jinja/template.h"

namespace lockstep::jinja {

struct Node;
using NodePtr = std::unique_ptr<const Node>;

enum class Kind : uint8_t {
  // statements: `parts` are their expressions, `body` and `other` the statements within
  kBody,         // body
  kText,         // value
  kPrint,        // parts[0]
  kIf,           // parts[0]; body, else other
  kFor,          // parts: target, list, and perhaps a condition; body, where there was no item other
  kSet,          // parts: target, value
  kSetBlock,     // parts: target, then filters on kCaptured; body
  kFilterBlock,  // parts: filters on kCaptured; body
  kMacro,        // name, names of parameters, their defaults in parts behind `required` of them; body
  kGeneration,   // body
  kBreak,
  kContinue,
  // expressions
  kConstant,   // value
  kName,       // name
  kList,       // parts
  kTuple,      // parts
  kDict,       // parts: key, value, key, value, ...
  kAttribute,  // parts[0].name
  kElement,    // parts[0][parts[1]]
  kSlice,      // parts[0][parts[1]:parts[2]:parts[3]]
  kCall,       // parts[0](the others, of which the last are named by `names`)
  kSpread,     // of arguments: the items of parts[0]
  kFilter,     // name, parts[0] and arguments
  kTest,       // likewise
  kNot,
  kNegative,
  kPositive,
  kAnd,
  kOr,
  kCompare,  // parts, between which `names` are the operators
  kBinary,   // name is the operator: + - * / // % **
  kConcat,   // parts
  kChoice,   // parts[0] if parts[1] else parts[2]
  kCaptured  // the text of the block around it
};

struct Node {
  Kind kind;
  int line = 0;
  std::string name = {};
  Value value = {};
  std::vector<NodePtr> parts = {}, body = {}, other = {};
  std::vector<std::string> names = {};
  size_t required = 0;
  int depth = 0;  // of the tree below
};

struct Parsed {
  NodePtr root;
  std::vector<std::string> names;  // all names, attributes and text literals, in order, without those that came before
  bool marks_generations = false;
};
// Throws ExitCode::kBadData naming the line.
Parsed parse(std::string_view source, const Reading& how = {});

}  // namespace lockstep::jinja
