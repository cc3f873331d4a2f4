// Choices: the kinds that a selector of the configuration, such as model.name, may name, each with options of its own.
// A program adds its own kinds to the lists of its App. Plain values and functions.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/field.h"

namespace lockstep {

// What every kind has in common.
class Configurable {
 public:
  virtual ~Configurable() = default;
  // The kind's own options, with their defaults until the configuration fills them; they point into this object.
  virtual std::vector<Field> options() { return {}; }
  // An option whose value does not fit the others', each in its range: its key and why; empty where all is well.
  virtual std::pair<std::string, std::string> problem() const { return {}; }
};

template <class Kind>  // a Configurable
struct Choice {
  std::string name;
  std::function<std::unique_ptr<Kind>()> make;
};

template <class Kind, class Made>
Choice<Kind> choice(std::string name) {
  return {std::move(name), [] { return std::make_unique<Made>(); }};
}

template <class Kind>
std::vector<std::string> names_of(const std::vector<Choice<Kind>>& choices) {
  std::vector<std::string> out;
  for (auto& c : choices) out.push_back(c.name);
  return out;
}

// With default options. Throws ExitCode::kInternal for a name that is not there: the configuration refuses those.
template <class Kind>
std::unique_ptr<Kind> make_choice(const std::vector<Choice<Kind>>& choices, const std::string& name) {
  for (auto& c : choices)
    if (c.name == name) return c.make();
  throw Error(ExitCode::kInternal, str("there is no choice '", name, "'"));
}

}  // namespace lockstep
