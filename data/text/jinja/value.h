// Values of a chat template: what Python's objects are to Jinja, with their texts, truths and comparisons. Plain
// values; lists and objects are shared and never changed once a template sees them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/io/json.h"

namespace lockstep::jinja {

// Thrown by what values cannot do; the interpreter adds the line.
struct Failure {
  std::string what;
};

// What a rendering may still do, of this thread; without one there is no bound. Whatever a template can make large or
// repeat spends some of it, by the bytes that are copied or compared; and the texts that values hold at once are
// counted.
class Budget {
 public:
  explicit Budget(int64_t steps);
  ~Budget();
  Budget(const Budget&) = delete;
  static void spend(int64_t steps);  // throws Failure where there is none left
  static void spend_bytes(size_t bytes) { spend(static_cast<int64_t>(bytes / 64)); }
  // `bytes` are held as long as what it returns is; null without a budget. Throws Failure where they are too many.
  static std::shared_ptr<const void> hold(size_t bytes);

 private:
  int64_t left_;
  std::shared_ptr<int64_t> held_ = std::make_shared<int64_t>(0);  // bytes
  Budget* const before_;
};
constexpr int64_t kMostHeld = 128 << 20;   // bytes of a rendering's texts, with their origins
constexpr size_t kLargestText = 16 << 20;  // bytes; a larger one is a Failure

// UTF-8, and of each byte the message that it comes from.
struct Text {
  std::string bytes = {};
  std::u16string origins = {};  // 1 + the index of a message, kOtherInput, or 0: the template. Empty: all 0
  bool markup = false;          // of the filters `safe` and `escape`: what + joins to it is escaped

  static constexpr char16_t kOtherInput = 0xFFFF;

  Text() = default;
  Text(std::string text, char16_t origin = 0) : bytes(std::move(text)) {
    if (origin != 0) origins.assign(bytes.size(), origin);
  }
  Text(const char* text) : bytes(text) {}
  size_t size() const { return bytes.size(); }
  bool empty() const { return bytes.empty(); }
  Text part(size_t begin, size_t end) const {
    Text out(bytes.substr(begin, end - begin));
    if (!origins.empty()) out.origins = origins.substr(begin, end - begin);
    return out;
  }
  char16_t origin_of(size_t byte) const { return origins.empty() ? char16_t{0} : origins[byte]; }
  Text& operator+=(const Text& more);  // spends, and throws Failure where it is too large
  // `more` with the origin of one byte of `from`.
  void add(std::string_view more, const Text& from, size_t byte);
};

class Value;
struct Undefined {
  std::string why;      // 'x' is undefined
  bool unsafe = false;  // every use of it is an error
};
struct List {
  // A generator, as the filters `map` and `select` give, can be gone through once; it and a view of an object cannot be
  // indexed.
  enum class Kind : uint8_t { kList, kTuple, kGenerator, kView, kRange };
  std::vector<Value> items;
  Kind kind = Kind::kList;
  int depth = 0;                            // of lists and objects within it
  std::shared_ptr<size_t> taken = nullptr;  // of a generator: items that were gone through
};
struct Dict;
struct Arguments;
struct Function {
  std::string name;
  std::function<Value(const Arguments&)> call;
};

using None = std::nullptr_t;

class Value {
 public:
  using Any = std::variant<std::shared_ptr<const Undefined>, None, bool, int64_t, double, std::shared_ptr<const Text>,
                           std::shared_ptr<const List>, std::shared_ptr<Dict>, std::shared_ptr<const Function>>;
  Value() : any_(nullptr) {}
  Value(None) : any_(nullptr) {}
  Value(bool v) : any_(v) {}
  Value(int64_t v) : any_(v) {}
  Value(double v) : any_(v) {}
  Value(Text v);  // throws Failure where too much is held
  Value(const char* v) : Value(Text(v)) {}
  Value(List v);  // throws Failure where it is nested too deep
  Value(std::shared_ptr<Dict> v) : any_(std::move(v)) {}
  Value(Function v) : any_(std::make_shared<const Function>(std::move(v))) {}
  static Value undefined(std::string why, bool unsafe = false) {
    Value out;
    out.any_ = std::make_shared<const Undefined>(Undefined{std::move(why), unsafe});
    return out;
  }

  const Undefined* undefined() const { return held<const Undefined>(); }
  bool is_none() const { return std::holds_alternative<None>(any_); }
  const bool* boolean() const { return std::get_if<bool>(&any_); }
  const int64_t* integer() const { return std::get_if<int64_t>(&any_); }
  const double* real() const { return std::get_if<double>(&any_); }
  const Text* text() const { return held<const Text>(); }
  const List* list() const { return held<const List>(); }
  Dict* dict() const { return held<Dict>(); }
  const Function* function() const { return held<const Function>(); }
  std::optional<double> number() const;    // of a truth, too
  std::optional<int64_t> whole() const;    // an integer or a truth
  bool same_object(const Value& b) const;  // Python's `is`

 private:
  template <class T>
  T* held() const {
    const auto* p = std::get_if<std::shared_ptr<T>>(&any_);
    return p ? p->get() : nullptr;
  }
  Any any_;
};

struct Dict {
  std::vector<std::pair<Value, Value>> members;  // in the order written; keys are texts, numbers, truths or none
  char16_t message = 0;                          // 1 + its index where it is a message of the conversation
  bool is_namespace = false;                     // of namespace(): the only one that `set` changes
  int depth = 0;                                 // as of List

  const Value* find(std::string_view key) const;
  const Value* find(const Value& key) const;
  // Throws Failure where it would be nested too deep, and for a key of another kind.
  void put(const Value& key, Value value);
};

// What a filter, a test, a method or a function is called with.
struct Arguments {
  Value self;  // of filters, tests and methods
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;

  // The argument at a place, or under its name; null where there is none.
  const Value* at(size_t place, std::string_view name) const;
};

// How deep lists and objects are within a value, itself counted. Throws Failure beyond 200 levels.
int depth_of(const Value& value);
std::string_view type_name(const Value& value);  // str, int, list, ... as Python calls them
bool is_true(const Value& value);
bool equal(const Value& a, const Value& b);
// -1, 0 or 1. Throws Failure for values that have no order.
int compare(const Value& a, const Value& b);
bool contains(const Value& container, const Value& item);
// As std::string's find or rfind. Spends, and throws Failure where it may take too long.
size_t find_text(const std::string& whole, const std::string& part, size_t from, bool last = false);
Text to_text(const Value& value);                                 // Python's str()
Text repr(const Value& value);                                    // Python's repr()
std::string number_text(double value);                            // 2.0, 1e-05
std::vector<Value> items_of(const Value& value);                  // what a loop goes through. Throws Failure
int64_t length_of(const Value& value);                            // Throws Failure
Value attribute_of(const Value& value, const std::string& name);  // value.name
Value element_of(const Value& value, const Value& index);         // value[index]
Value slice_of(const Value& value, const Value& begin, const Value& end, const Value& step);

struct JsonStyle {
  std::optional<std::string> indent = {};  // of one level; none: all on one line
  std::string comma = ", ", colon = ": ";
  bool ascii = false, sorted = false;
};
Text to_json(const Value& value, const JsonStyle& style);  // as Python's json.dumps
// `origin`: of its texts and keys. Throws ExitCode::kBadData for an object that has a key twice.
Value of_json(const JsonValue& json, char16_t origin);

// The code points of valid UTF-8: where each begins, and the end.
std::vector<size_t> character_starts(const std::string& text);
bool is_python_space(uint32_t code_point);  // what Python's str.strip() removes: White_Space, and U+001C to U+001F
uint32_t character_at(std::string_view text, size_t at);
enum class Sides : uint8_t { kBoth, kLeft, kRight };
Text stripped(const Text& text, const std::string* characters, Sides sides);  // null: white space

Text sum_of(const Text& a, const Text& b);  // by +: one after the other; beside markup the other one is escaped
// Python's text % (values).
Text percent_formatted(const Text& text, const std::vector<Value>& values);

// Filters and tests by their names; null where there is none. Methods come by attribute_of(), too.
using Builtin = Value (*)(const Arguments&);
Builtin filter_named(std::string_view name);
Builtin test_named(std::string_view name);
Value method_of(const Value& value, const std::string& name);  // undefined: its type has none of that name

}  // namespace lockstep::jinja
