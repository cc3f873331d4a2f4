// A field: one documented setting of an options struct, as the configuration sees it.
// Each component's options struct has `std::vector<Field> fields(TheOptions&)` beside it; fields point into that
// struct.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep {

// An enum by its words.
struct EnumRef {
  std::function<std::string()> get;
  std::function<void(const std::string&)> set;  // only called with one of the field's choices
};

struct Field;

// A list of structs, e.g. optim.rules.
struct ListRef {
  std::function<std::vector<Field>()> append;                 // adds a default element, returns its fields
  std::function<std::vector<std::vector<Field>>()> elements;  // fields of those there
  std::function<void()> clear;
  std::function<std::vector<Field>(std::shared_ptr<void>& owner)>
      sample;  // a default element outside the list, for docs
};

struct Field {
  using Target = std::variant<bool*, int64_t*, double*, std::string*, std::vector<int64_t>*, std::vector<double>*,
                              std::vector<std::string>*, EnumRef, ListRef>;
  std::string key;  // dotted within its component, e.g. "lr"
  Target target;
  std::string doc;
  std::string unit = {};                                  // "ms", "samples", ...; empty for none
  double min = -std::numeric_limits<double>::infinity();  // inclusive; numbers and lists of numbers
  double max = std::numeric_limits<double>::infinity();
  std::vector<std::string> choices = {};
  bool shapes_math = true;  // part of a run's digest and of what a resumed run must agree on
  // At its default it is no part of these: for a key that came later, so that the digests and checkpoints of before
  // stay.
  bool absent_at_default = false;
  // Of a list's element: set to true where the configuration gives the key. While false, the resolved configuration
  // leaves the key out, for owners that tell a key that is not given from its default.
  bool* given = nullptr;

  Field&& with_unit(std::string u) && { return unit = std::move(u), std::move(*this); }
  Field&& with_range(double lo, double hi) && { return min = lo, max = hi, std::move(*this); }
  Field&& at_least(double lo) && { return min = lo, std::move(*this); }
  Field&& with_choices(std::vector<std::string> c) && { return choices = std::move(c), std::move(*this); }
  Field&& without_effect_at_default() && { return absent_at_default = true, std::move(*this); }
  Field&& that_notes(bool& is_given) && { return given = &is_given, std::move(*this); }
  Field&& without_effect_on_math() && { return shapes_math = false, std::move(*this); }
};

template <class T>
Field field(std::string key, T& value, std::string doc) {
  return Field{std::move(key), Field::Target(&value), std::move(doc)};
}

template <class E>
Field enum_field(std::string key, E& value, std::vector<std::pair<std::string, E>> words, std::string doc) {
  std::vector<std::string> choices;
  for (auto& [word, _] : words) choices.push_back(word);
  EnumRef ref;
  ref.get = [&value, words] {
    for (auto& [word, e] : words)
      if (e == value) return word;
    return std::string("?");
  };
  ref.set = [&value, words](const std::string& text) {
    for (auto& [word, e] : words)
      if (word == text) value = e;
  };
  Field f{std::move(key), Field::Target(std::move(ref)), std::move(doc)};
  f.choices = std::move(choices);
  return f;
}

// `T` has `std::vector<Field> fields(T&)`. The fields of an element stay valid until the next append.
template <class T>
Field list_field(std::string key, std::vector<T>& list, std::string doc) {
  ListRef ref;
  ref.append = [&list] { return fields(list.emplace_back()); };
  ref.elements = [&list] {
    std::vector<std::vector<Field>> out;
    for (auto& element : list) out.push_back(fields(element));
    return out;
  };
  ref.clear = [&list] { list.clear(); };
  ref.sample = [](std::shared_ptr<void>& owner) {
    auto element = std::make_shared<T>();
    owner = element;
    return fields(*element);
  };
  return Field{std::move(key), Field::Target(std::move(ref)), std::move(doc)};
}

}  // namespace lockstep
