#include "data/text/jinja/value.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>

#include "core/base/error.h"
#include "data/text/jinja/numbers.h"
#include "data/text/tokenizer/normalizer.h"
#include "data/text/vocabulary.h"

namespace lockstep::jinja {

namespace {
thread_local Budget* current_budget = nullptr;
}  // namespace

Budget::Budget(int64_t steps) : left_(steps), before_(std::exchange(current_budget, this)) {}
Budget::~Budget() { current_budget = before_; }
void Budget::spend(int64_t steps) {
  if (!current_budget) return;
  if (steps > current_budget->left_) throw Failure{"the template takes too many steps"};
  current_budget->left_ -= steps;
}

std::shared_ptr<const void> Budget::hold(size_t bytes) {
  if (!current_budget) return nullptr;
  const auto n = static_cast<int64_t>(bytes);
  const std::shared_ptr<int64_t> held = current_budget->held_;
  if (*held + n > kMostHeld) throw Failure{str("the template holds more than ", kMostHeld >> 20, " MiB of texts")};
  *held += n;
  return {held.get(), [held, n](const void*) { *held -= n; }};
}

Value::Value(Text v) {
  constexpr size_t kSmall = 64;  // bytes; of smaller ones the steps bound the number
  const size_t bytes = v.bytes.size() + v.origins.size() * sizeof(char16_t);
  const std::shared_ptr<const void> held = bytes > kSmall ? Budget::hold(bytes) : nullptr;
  if (!held) any_ = std::make_shared<const Text>(std::move(v));
  else any_ = std::shared_ptr<const Text>(new Text(std::move(v)), [held](const Text* text) { delete text; });
}

Text& Text::operator+=(const Text& more) {
  Budget::spend(1 + static_cast<int64_t>(more.size() / 64));
  if (size() + more.size() > kLargestText) throw Failure{str("a text has more than ", kLargestText >> 20, " MiB")};
  if (!more.origins.empty() && origins.empty()) origins.assign(bytes.size(), 0);
  bytes += more.bytes;
  if (!more.origins.empty()) origins += more.origins;
  else if (!origins.empty()) origins.resize(bytes.size(), 0);
  return *this;
}

void Text::add(std::string_view more, const Text& from, size_t byte) {
  if (size() + more.size() > kLargestText) throw Failure{str("a text has more than ", kLargestText >> 20, " MiB")};
  Budget::spend_bytes(more.size());
  const char16_t origin = from.origin_of(byte);
  if (origin != 0 && origins.empty()) origins.assign(bytes.size(), 0);
  bytes += more;
  if (!origins.empty()) origins.resize(bytes.size(), origin);
}

int depth_of(const Value& v) {
  const int depth = v.list() ? v.list()->depth + 1 : v.dict() ? v.dict()->depth + 1 : 0;
  constexpr int kDeepestValue = 200;
  if (depth > kDeepestValue) throw Failure{str("lists and objects are nested deeper than ", kDeepestValue, " levels")};
  return depth;
}

Value::Value(List v) {
  for (const Value& item : v.items) v.depth = std::max(v.depth, depth_of(item));
  if (v.kind == List::Kind::kGenerator && !v.taken) v.taken = std::make_shared<size_t>(0);
  any_ = std::make_shared<const List>(std::move(v));
}

const Value* Dict::find(std::string_view key) const {
  Budget::spend(static_cast<int64_t>(members.size() / 16));
  for (const auto& [name, value] : members)
    if (name.text() && name.text()->bytes == key) return &value;
  return nullptr;
}

const Value* Dict::find(const Value& key) const {
  if (key.text()) return find(key.text()->bytes);
  for (const auto& [name, value] : members)
    if (equal(name, key)) return &value;
  return nullptr;
}

void Dict::put(const Value& key, Value value) {
  if (!key.text() && !key.number() && !key.is_none()) throw Failure{str("a ", type_name(key), " cannot be a key")};
  depth = std::max(depth, depth_of(value));
  Budget::spend(static_cast<int64_t>(members.size() / 16));
  for (auto& member : members)
    if (equal(member.first, key)) {
      member.second = std::move(value);
      return;
    }
  members.emplace_back(key, std::move(value));
}

std::optional<double> Value::number() const {
  if (const double* d = real()) return *d;
  const auto w = whole();
  return w ? std::optional<double>(static_cast<double>(*w)) : std::nullopt;
}

std::optional<int64_t> Value::whole() const {
  if (const bool* b = boolean()) return *b ? 1 : 0;
  if (const int64_t* i = integer()) return *i;
  return std::nullopt;
}

bool Value::same_object(const Value& b) const {
  if (any_.index() != b.any_.index()) return false;
  if (is_none()) return true;
  if (list()) return list() == b.list();
  if (dict()) return dict() == b.dict();
  if (undefined() || function()) return false;
  return equal(*this, b);  // small integers, truths and texts that are equal are one object
}

const Value* Arguments::at(size_t place, std::string_view name) const {
  if (place < positional.size()) return &positional[place];
  for (const auto& [key, value] : named)
    if (key == name) return &value;
  return nullptr;
}

std::string_view type_name(const Value& v) {
  if (v.undefined()) return "Undefined";
  if (v.is_none()) return "NoneType";
  if (v.boolean()) return "bool";
  if (v.integer()) return "int";
  if (v.real()) return "float";
  if (v.text()) return "str";
  if (v.dict()) return v.dict()->is_namespace ? "Namespace" : "dict";
  if (v.function()) return "function";
  constexpr std::array<std::string_view, 5> kNames{"list", "tuple", "generator", "view", "range"};
  return kNames[static_cast<size_t>(v.list()->kind)];
}

namespace {

void refuse_unsafe(const Value& v) {
  if (v.undefined() && v.undefined()->unsafe) throw Failure{v.undefined()->why};
}

}  // namespace

bool is_true(const Value& v) {
  refuse_unsafe(v);
  if (const bool* b = v.boolean()) return *b;
  if (const auto n = v.number()) return *n != 0;
  if (v.text()) return !v.text()->empty();
  if (v.list()) return v.list()->kind == List::Kind::kGenerator || !v.list()->items.empty();
  if (v.dict()) return v.dict()->is_namespace || !v.dict()->members.empty();
  return v.function() != nullptr;
}

bool equal(const Value& a, const Value& b) {
  Budget::spend(1);
  refuse_unsafe(a), refuse_unsafe(b);
  if (a.undefined() || b.undefined()) return a.undefined() && b.undefined();
  if (a.is_none() || b.is_none()) return a.is_none() && b.is_none();
  if (const auto x = a.number(), y = b.number(); x || y)
    return x && y && !std::isnan(*x) && !std::isnan(*y) && compare_numbers(a, b) == 0;
  if (a.text() || b.text()) {
    if (!a.text() || !b.text() || a.text()->size() != b.text()->size()) return false;
    Budget::spend_bytes(a.text()->size());
    return a.text()->bytes == b.text()->bytes;
  }
  if (a.list() || b.list()) {
    if (!a.list() || !b.list() || a.list()->kind != b.list()->kind) return false;
    if (a.list()->kind == List::Kind::kGenerator) return a.list() == b.list();
    const auto &x = a.list()->items, &y = b.list()->items;
    return x.size() == y.size() && std::equal(x.begin(), x.end(), y.begin(), equal);
  }
  if (!a.dict() || !b.dict()) return a.function() && a.function() == b.function();
  if (a.dict() == b.dict() || a.dict()->is_namespace || b.dict()->is_namespace) return a.dict() == b.dict();
  const auto& x = a.dict()->members;
  return x.size() == b.dict()->members.size() && std::all_of(x.begin(), x.end(), [&](const auto& member) {
           const Value* other = b.dict()->find(member.first);
           return other && equal(member.second, *other);
         });
}

int compare(const Value& a, const Value& b) {
  Budget::spend(1);
  if (a.number() && b.number()) return compare_numbers(a, b);
  if (a.text() && b.text()) {
    Budget::spend_bytes(std::min(a.text()->size(), b.text()->size()));
    return std::clamp(a.text()->bytes.compare(b.text()->bytes), -1, 1);
  }
  if (a.list() && b.list() && a.list()->kind == b.list()->kind && a.list()->kind <= List::Kind::kTuple) {
    const auto &x = a.list()->items, &y = b.list()->items;
    for (size_t i = 0; i < x.size() && i < y.size(); ++i)
      if (!equal(x[i], y[i])) return compare(x[i], y[i]);
    return x.size() < y.size() ? -1 : x.size() > y.size();
  }
  for (const Value* v : {&a, &b})
    if (v->undefined()) throw Failure{v->undefined()->why};
  throw Failure{str("a ", type_name(a), " and a ", type_name(b), " have no order")};
}

size_t find_text(const std::string& whole, const std::string& part, size_t from, bool last) {
  // The worst that a search may take, of texts that are nearly alike everywhere.
  constexpr double kMostCompared = 4e9;
  if (static_cast<double>(whole.size()) * static_cast<double>(part.size()) > kMostCompared)
    throw Failure{"the template searches too long a text for too long a one"};
  const size_t found = last ? whole.rfind(part) : whole.find(part, from);
  const size_t end = found == std::string::npos || last ? whole.size() : found;
  Budget::spend(static_cast<int64_t>((end - std::min(from, end)) / 64 * (1 + part.size() / 64)));
  return found;
}

bool contains(const Value& container, const Value& item) {
  refuse_unsafe(container);
  if (container.undefined()) return false;
  if (const Text* whole = container.text()) {
    if (!item.text()) throw Failure{str("'in' of a text needs a text, not a ", type_name(item))};
    return find_text(whole->bytes, item.text()->bytes, 0) != std::string::npos;
  }
  if (container.dict() && !container.dict()->is_namespace) return container.dict()->find(item) != nullptr;
  if (!container.list()) throw Failure{str("nothing is in a ", type_name(container))};
  const std::vector<Value> items = items_of(container);
  return std::any_of(items.begin(), items.end(), [&](const Value& v) { return equal(v, item); });
}

std::string number_text(double v) {
  if (std::isnan(v)) return "nan";
  if (std::isinf(v)) return v < 0 ? "-inf" : "inf";
  char digits[64];
  const auto end = std::to_chars(digits, digits + sizeof digits, v, std::chars_format::scientific).ptr;
  const std::string_view all(digits, static_cast<size_t>(end - digits));
  const size_t e = all.find('e');
  int exponent = 0;
  std::from_chars(all.data() + e + (all[e + 1] == '+' ? 2 : 1), all.data() + all.size(), exponent);
  if (exponent < -4 || exponent >= 16) return std::string(all);
  const auto fixed = std::to_chars(digits, digits + sizeof digits, v, std::chars_format::fixed).ptr;
  std::string out(digits, fixed);
  return out.find('.') == out.npos ? out + ".0" : out;
}

uint32_t character_at(std::string_view text, size_t at) {
  Utf8Reader reader;
  while (at < text.size() && reader.next(static_cast<uint8_t>(text[at])) == Utf8Reader::Result::kMore) ++at;
  return reader.code_point();
}

std::vector<size_t> character_starts(const std::string& text) {
  Budget::spend(static_cast<int64_t>(text.size() / 32));
  std::vector<size_t> out;
  for (size_t i = 0; i < text.size(); ++i)
    if ((static_cast<uint8_t>(text[i]) & 0xC0) != 0x80) out.push_back(i);
  out.push_back(text.size());
  return out;
}

bool is_python_space(uint32_t c) { return is_white_space(c) || (c >= 0x1C && c <= 0x1F); }

Text stripped(const Text& text, const std::string* characters, Sides sides) {
  std::vector<uint32_t> those;
  if (characters)
    for (size_t i : character_starts(*characters))
      if (i < characters->size()) those.push_back(character_at(*characters, i));
  Budget::spend(static_cast<int64_t>(those.size() / 4));
  std::sort(those.begin(), those.end());
  const auto goes = [&](size_t at) {
    const uint32_t c = character_at(text.bytes, at);
    return characters ? std::binary_search(those.begin(), those.end(), c) : is_python_space(c);
  };
  const std::vector<size_t> starts = character_starts(text.bytes);
  size_t begin = 0, end = starts.size() - 1;
  while (sides != Sides::kRight && begin < end && goes(starts[begin])) ++begin;
  while (sides != Sides::kLeft && end > begin && goes(starts[end - 1])) --end;
  Text out = text.part(starts[begin], starts[end]);
  out.markup = text.markup;
  return out;
}

namespace {

// A character as repr() shows it within quotes.
std::string repr_of(uint32_t c, char quote) {
  if (c == '\n') return "\\n";
  if (c == '\r') return "\\r";
  if (c == '\t') return "\\t";
  if (c == '\\' || c == static_cast<uint32_t>(quote)) return std::string("\\") + static_cast<char>(c);
  if (c >= 0x20 && c < 0x7F) return std::string(1, static_cast<char>(c));
  if (c > 0x7F && is_printed(c)) return to_utf8(c);
  constexpr const char* kDigits = "0123456789abcdef";
  const int digits = c < 0x100 ? 2 : c < 0x10000 ? 4 : 8;
  std::string out = digits == 2 ? "\\x" : digits == 4 ? "\\u" : "\\U";
  for (int d = digits - 1; d >= 0; --d) out += kDigits[c >> (4 * d) & 15];
  return out;
}

Text quoted(const Text& text) {
  const bool doubles = text.bytes.find('\'') != std::string::npos && text.bytes.find('"') == std::string::npos;
  const char quote = doubles ? '"' : '\'';
  Text out(std::string(1, quote));
  const std::vector<size_t> starts = character_starts(text.bytes);
  for (size_t i = 0; i + 1 < starts.size(); ++i)
    out.add(repr_of(character_at(text.bytes, starts[i]), quote), text, starts[i]);
  return out += std::string(1, quote);
}

}  // namespace

Text repr(const Value& v) {
  Budget::spend(1);
  if (v.text()) return quoted(*v.text());
  if (v.undefined()) return Text("Undefined");
  if (const Dict* d = v.dict()) {
    if (d->is_namespace) throw Failure{"a namespace cannot be printed"};
    Text out("{");
    for (const auto& [key, value] : d->members) {
      if (out.size() > 1) out += ", ";
      out += repr(key), out += ": ", out += repr(value);
    }
    return out += "}";
  }
  if (const List* l = v.list()) {
    if (l->kind > List::Kind::kTuple) throw Failure{str("a ", type_name(v), " cannot be printed; use | list")};
    const bool tuple = l->kind == List::Kind::kTuple;
    Text out(tuple ? "(" : "[");
    for (size_t i = 0; i < l->items.size(); ++i) {
      if (i > 0) out += ", ";
      out += repr(l->items[i]);
    }
    if (tuple && l->items.size() == 1) out += ",";
    return out += tuple ? ")" : "]";
  }
  return to_text(v);
}

Text to_text(const Value& v) {
  refuse_unsafe(v);
  if (v.text()) return *v.text();
  if (v.undefined()) return {};
  if (v.is_none()) return Text("None");
  if (const bool* b = v.boolean()) return Text(*b ? "True" : "False");
  if (const int64_t* i = v.integer()) return Text(std::to_string(*i));
  if (const double* d = v.real()) return Text(number_text(*d));
  if (v.function()) throw Failure{str("the function ", v.function()->name, " cannot be printed")};
  return repr(v);
}

namespace {
constexpr int64_t kStepsOfItem = 8;  // an item takes some hundred bytes
}  // namespace

std::vector<Value> items_of(const Value& v) {
  refuse_unsafe(v);
  if (v.undefined()) return {};
  if (v.list()) Budget::spend(static_cast<int64_t>(v.list()->items.size()));
  if (v.list() && v.list()->kind == List::Kind::kGenerator) {
    const auto& all = v.list()->items;
    const size_t from = std::exchange(*v.list()->taken, all.size());
    return {all.begin() + static_cast<std::ptrdiff_t>(from), all.end()};
  }
  if (v.list()) return v.list()->items;
  std::vector<Value> out;
  if (v.text() || (v.dict() && !v.dict()->is_namespace)) Budget::spend(kStepsOfItem * length_of(v));
  if (const Text* t = v.text()) {
    const std::vector<size_t> starts = character_starts(t->bytes);
    for (size_t i = 0; i + 1 < starts.size(); ++i) out.emplace_back(t->part(starts[i], starts[i + 1]));
  } else if (v.dict() && !v.dict()->is_namespace) {
    for (const auto& member : v.dict()->members) out.emplace_back(member.first);
  } else {
    throw Failure{str("a ", type_name(v), " cannot be gone through")};
  }
  return out;
}

int64_t length_of(const Value& v) {
  refuse_unsafe(v);
  if (v.undefined()) return 0;
  if (v.text()) return static_cast<int64_t>(character_starts(v.text()->bytes).size()) - 1;
  if (v.dict() && !v.dict()->is_namespace) return static_cast<int64_t>(v.dict()->members.size());
  if (v.list() && v.list()->kind != List::Kind::kGenerator) return static_cast<int64_t>(v.list()->items.size());
  throw Failure{str("a ", type_name(v), " has no length")};
}

Value attribute_of(const Value& v, const std::string& name) {
  if (v.undefined()) throw Failure{v.undefined()->why};
  if (Value method = method_of(v, name); !method.undefined() || method.undefined()->unsafe) return method;
  if (v.dict())
    if (const Value* found = v.dict()->find(name)) return *found;
  return Value::undefined(str("a ", type_name(v), " has no attribute '", name, "'"));
}

Value element_of(const Value& v, const Value& index) {
  if (v.undefined()) throw Failure{v.undefined()->why};
  if (v.dict()) {
    if (const Value* found = v.dict()->find(index)) return *found;
  } else if (const auto at = index.whole(); at && (v.text() || v.list())) {
    const std::vector<size_t> starts = v.text() ? character_starts(v.text()->bytes) : std::vector<size_t>{};
    const bool indexed = v.text() || v.list()->kind <= List::Kind::kTuple || v.list()->kind == List::Kind::kRange;
    const auto size = static_cast<int64_t>(v.text() ? starts.size() - 1 : v.list()->items.size());
    const int64_t i = *at < 0 ? *at + size : *at;
    if (indexed && i >= 0 && i < size)
      return v.text() ? Value(v.text()->part(starts[static_cast<size_t>(i)], starts[static_cast<size_t>(i) + 1]))
                      : v.list()->items[static_cast<size_t>(i)];
  }
  if (index.text()) {
    Value method = method_of(v, index.text()->bytes);
    if (!method.undefined() || method.undefined()->unsafe) return method;
  }
  return Value::undefined(str("a ", type_name(v), " has no element ", index.text() ? repr(index).bytes : "there"));
}

Value slice_of(const Value& v, const Value& begin, const Value& end, const Value& step) {
  if (v.undefined()) throw Failure{v.undefined()->why};
  const bool indexed = v.list() && (v.list()->kind <= List::Kind::kTuple || v.list()->kind == List::Kind::kRange);
  if (v.dict()) throw Failure{str("a ", type_name(v), " has no slices")};
  if (!v.text() && !indexed) return Value::undefined(str("a ", type_name(v), " has no slices"));
  const std::vector<size_t> starts = v.text() ? character_starts(v.text()->bytes) : std::vector<size_t>{};
  const auto size = static_cast<int64_t>(v.text() ? starts.size() - 1 : v.list()->items.size());
  const auto number = [](const Value& n, int64_t standard) {
    if (n.is_none()) return standard;
    const auto w = n.whole();
    if (!w) throw Failure{str("a slice is bounded by integers, not by a ", type_name(n))};
    return *w;
  };
  const int64_t by = number(step, 1);
  if (by == 0) throw Failure{"the step of a slice is 0"};
  const int64_t low = by < 0 ? -1 : 0, high = by < 0 ? size - 1 : size;
  const auto bounded = [&](const Value& n, int64_t standard) {
    if (n.is_none()) return standard;
    const int64_t w = number(n, 0);
    return std::clamp(w < 0 ? w + size : w, low, high);
  };
  const int64_t from = bounded(begin, by < 0 ? high : low), to = bounded(end, by < 0 ? low : high);
  Text text;
  List list{{}, v.list() ? v.list()->kind : List::Kind::kList};
  for (int64_t i = from; by < 0 ? i > to : i < to;) {
    const auto at = static_cast<size_t>(i);
    if (v.text()) text += v.text()->part(starts[at], starts[at + 1]);
    else list.items.push_back(v.list()->items[at]);
    if (by > 0 ? by > to - i : by < to - i) break;
    i += by;
  }
  return v.text() ? Value(std::move(text)) : Value(std::move(list));
}

}  // namespace lockstep::jinja
