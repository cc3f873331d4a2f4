// Template: a chat template in the language of Jinja, as far as chat templates use it, rendered as transformers renders
// it (its sandboxed environment with trim_blocks, lstrip_blocks and loop controls; transformers 5.24, Jinja 3.1). It
// reads nothing but its values. A plain value that threads may share; rendering holds nothing between two calls.
//
// Known: for (with else and if), if, set (also as a block), macro, filter, break, continue, raw, generation; all
// expressions; the filters and tests of filters.cpp, the methods of methods.cpp; namespace, dict, range,
// raise_exception, strftime_now.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/text/jinja/value.h"

namespace lockstep::jinja {

struct Node;

// How a template is read: by default as transformers reads chat templates.
struct Reading {
  bool trims = true;    // trim_blocks, lstrip_blocks, and without the line end that it ends with; false: all is text
  bool strict = false;  // what is undefined cannot be printed
};

// Bytes [begin, end) of a rendered text.
struct Span {
  size_t begin = 0, end = 0;
  char16_t message = 0;  // 1 + the index of the message that the loop around it was at; 0: of none
};

struct Rendered {
  Text text;
  std::vector<Span> messages;  // what loops over messages wrote, in order; parts of one message may follow each other
  std::vector<Span> generations;  // what stands within {% generation %}
};

using Values = std::vector<std::pair<std::string, Value>>;

class Template {
 public:
  // Throws ExitCode::kBadData naming the line of what is wrong or not supported.
  explicit Template(const std::string& source, const Reading& how = {});
  ~Template();
  Template(Template&&) noexcept;

  // now: seconds since 1970, of strftime_now, in local time. Throws ExitCode::kBadData naming the line where a value
  // cannot do what is asked of it, where the template calls raise_exception, and where it takes
  // too many steps, goes too deep, or makes a text of more than kLargestText.
  Rendered render(const Values& values, int64_t now) const;
  bool mentions(std::string_view name) const;  // whether it has a name, an attribute or a text literal like this
  bool marks_generations() const { return marks_generations_; }

 private:
  std::unique_ptr<const Node> root_;
  std::vector<std::string> names_;
  bool marks_generations_ = false, strict_ = false;
};

}  // namespace lockstep::jinja
