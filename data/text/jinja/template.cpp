#include "data/text/jinja/template.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/base/error.h"
#include "core/base/escape.h"
#include "data/text/jinja/globals.h"
#include "data/text/jinja/numbers.h"
#include "data/text/jinja/parser.h"

namespace lockstep::jinja {
namespace {

constexpr int64_t kSteps = 5'000'000;    // texts cost one for each 64 bytes, a turn of a loop 16
constexpr int kDeepestRun = 800;         // expressions and statements that are under way
constexpr size_t kLongestMessage = 400;  // bytes of what a template says

// Names and what they stand for. Blocks of loops and macros have one of their own, of which the one around is seen.
struct Scope {
  Scope* around = nullptr;
  std::vector<std::pair<std::string, Value>> names = {};

  const Value* find(std::string_view name) const {
    for (const Scope* s = this; s; s = s->around) {
      Budget::spend(static_cast<int64_t>(s->names.size() / 16));
      for (const auto& [key, value] : s->names)
        if (key == name) return &value;
    }
    return nullptr;
  }
  void put(const std::string& name, Value value) {
    Budget::spend(static_cast<int64_t>(names.size() / 16));
    for (auto& member : names)
      if (member.first == name) {
        member.second = std::move(value);
        return;
      }
    names.emplace_back(name, std::move(value));
  }
};

enum class Flow : uint8_t { kOn, kBreak, kContinue };

[[noreturn]] void fail(const std::string& what) { throw Failure{what}; }

class Interpreter {
 public:
  Interpreter(const Node& root, const Values& values, int64_t now, bool strict) : strict_(strict) {
    globals_.names = {
        {"raise_exception", Function{"raise_exception", raise_exception}},
        {"strftime_now", Function{"strftime_now", [now](const Arguments& a) { return time_text(a, now); }}},
        {"namespace", Function{"namespace",
                               [this](const Arguments& a) {
                                 namespaces_.push_back(dict_of(a));
                                 namespaces_.back()->is_namespace = true;
                                 return Value(namespaces_.back());
                               }}},
        {"dict", Function{"dict", [](const Arguments& a) { return Value(dict_of(a)); }}},
        {"range", Function{"range", range_of}}};
    top_.around = &globals_;
    try {
      for (const auto& [name, value] : values) globals_.put(name, value);
      run(root.body, top_);
    } catch (const Failure& failure) {
      throw Error(ExitCode::kBadData,
                  str("line ", line_, ": ", escaped(failure.what.substr(0, kLongestMessage), Lines::kEscape)));
    }
  }
  Interpreter(const Interpreter&) = delete;

  Rendered take() { return std::move(rendered_); }

 private:
  // --- bounds

  // Macros may call each other, so that trees of bounded depth are under way several at a time.
  class Deeper {
   public:
    explicit Deeper(Interpreter& of) : of_(of) {
      if (++of_.deep_ > kDeepestRun) fail(str("the template is nested deeper than ", kDeepestRun, " levels"));
    }
    ~Deeper() { --of_.deep_; }
    Deeper(const Deeper&) = delete;

   private:
    Interpreter& of_;
  };

  static void step(int64_t n = 1) { Budget::spend(n); }
  void charge(const Text& text) { step(1 + static_cast<int64_t>(text.size() / 64)); }

  void write(const Text& text) {
    charge(text);
    Text& to = captured_ ? *captured_ : rendered_.text;
    const size_t begin = to.size();
    to += text;
    if (captured_ || message_ == 0 || text.empty()) return;
    auto& spans = rendered_.messages;
    if (!spans.empty() && spans.back().message == message_ && spans.back().end == begin) spans.back().end = to.size();
    else spans.push_back({begin, to.size(), message_});
  }

  Text printed(const Value& value) const {
    if (strict_ && value.undefined()) fail(value.undefined()->why);
    return to_text(value);
  }

  // --- statements

  Flow run(const std::vector<NodePtr>& body, Scope& scope) {
    for (const NodePtr& node : body)
      if (const Flow flow = run(*node, scope); flow != Flow::kOn) return flow;
    return Flow::kOn;
  }

  // What a body writes, as a value.
  Text capture(const std::vector<NodePtr>& body, Scope& scope) {
    Text out;
    Text* const before = std::exchange(captured_, &out);
    try {
      run(body, scope);
    } catch (...) {
      captured_ = before;
      throw;
    }
    captured_ = before;
    return out;
  }

  Flow run(const Node& n, Scope& scope) {
    line_ = n.line;
    step();
    const Deeper deeper(*this);
    switch (n.kind) {
      case Kind::kText: write(*n.value.text()); return Flow::kOn;
      case Kind::kPrint: {
        const Value value = eval(*n.parts[0], scope);
        write(printed(value));
        return Flow::kOn;
      }
      case Kind::kIf: return run(truth(*n.parts[0], scope) ? n.body : n.other, scope);
      case Kind::kFor: return loop(n, scope);
      case Kind::kSet: assign(*n.parts[0], eval(*n.parts[1], scope), scope); return Flow::kOn;
      case Kind::kSetBlock: {
        Value value = capture(n.body, scope);
        if (n.parts.size() > 1) {
          Scope inner{&scope};
          inner.put("", value);
          value = eval(*n.parts[1], inner);
        }
        assign(*n.parts[0], value, scope);
        return Flow::kOn;
      }
      case Kind::kFilterBlock: {
        Scope block{&scope}, inner{&scope};
        inner.put("", capture(n.body, block));
        write(to_text(eval(*n.parts[0], inner)));
        return Flow::kOn;
      }
      case Kind::kMacro: scope.put(n.name, macro(n, scope)); return Flow::kOn;
      case Kind::kGeneration: {
        Scope inner{&scope};
        const size_t begin = rendered_.text.size();
        run(n.body, inner);
        if (!captured_) rendered_.generations.push_back({begin, rendered_.text.size(), message_});
        return Flow::kOn;
      }
      case Kind::kBreak: return Flow::kBreak;
      case Kind::kContinue: return Flow::kContinue;
      default: check(false, "an expression stands where a statement does"); return Flow::kOn;
    }
  }

  void assign(const Node& target, const Value& value, Scope& scope) {
    if (target.kind == Kind::kName) return scope.put(target.name, value);
    if (target.kind == Kind::kAttribute) {
      const Value of = eval(*target.parts[0], scope);
      if (!of.dict() || !of.dict()->is_namespace) fail("only attributes of namespace() can be set");
      of.dict()->put(Text(target.name), value);
      return;
    }
    const std::vector<Value> items = items_of(value);
    if (items.size() != target.parts.size())
      fail(str("gives ", items.size(), " values to ", target.parts.size(), " names"));
    for (size_t i = 0; i < items.size(); ++i) scope.put(target.parts[i]->name, items[i]);
  }

  Flow loop(const Node& n, Scope& scope) {
    const Value list = eval(*n.parts[1], scope);
    std::vector<Value> items = items_of(list);
    step(static_cast<int64_t>(items.size()));
    if (n.parts.size() > 2) {
      std::vector<Value> kept;
      for (const Value& item : items) {
        Scope own{&scope};
        assign(*n.parts[0], item, own);
        if (truth(*n.parts[2], own)) kept.push_back(item);
      }
      items = std::move(kept);
    }
    const char16_t around = message_;
    auto depth = scope.find("loop");
    const auto outer = depth && depth->dict() ? depth->dict()->find(std::string_view("depth")) : nullptr;
    const bool counts = outer && outer->integer() && *outer->integer() < std::numeric_limits<int64_t>::max();
    const int64_t deep = counts ? *outer->integer() + 1 : 1;
    bool completed = false;  // an iteration came to its end; without one Jinja takes {% else %}
    const auto changed = std::make_shared<std::optional<Value>>();
    for (size_t i = 0; i < items.size(); ++i) {
      Scope own{&scope};
      step(16);
      if (const Dict* d = items[i].dict(); d && d->message != 0) message_ = d->message;
      own.put("loop", loop_state(items, i, deep, changed));
      assign(*n.parts[0], items[i], own);
      const Flow flow = run(n.body, own);
      message_ = around;
      line_ = n.line;
      if (flow == Flow::kBreak) break;
      completed = completed || flow == Flow::kOn;
    }
    return completed ? Flow::kOn : run(n.other, scope);
  }

  static Value loop_state(const std::vector<Value>& items, size_t i, int64_t depth,
                          const std::shared_ptr<std::optional<Value>>& changed) {
    auto out = std::make_shared<Dict>();
    const auto at = static_cast<int64_t>(i), size = static_cast<int64_t>(items.size());
    const auto none = [](const char* what) { return Value::undefined(str("there is no ", what, " item")); };
    const auto put = [&](const char* name, Value value) { out->members.emplace_back(Text(name), std::move(value)); };
    put("index", at + 1), put("index0", at);
    put("revindex", size - at), put("revindex0", size - at - 1);
    put("first", i == 0), put("last", at + 1 == size);
    put("length", size), put("depth", depth), put("depth0", depth - 1);
    put("previtem", i > 0 ? items[i - 1] : none("previous"));
    put("nextitem", at + 1 < size ? items[i + 1] : none("next"));
    put("cycle", Function{"cycle", [i](const Arguments& a) {
                            if (a.positional.empty()) throw Failure{"needs values"};
                            return a.positional[i % a.positional.size()];
                          }});
    put("changed", Function{"changed", [changed](const Arguments& a) {
                              const Value now = List{a.positional};
                              const bool is = !*changed || !equal(**changed, now);
                              *changed = now;
                              return Value(is);
                            }});
    return out;
  }

  Value macro(const Node& n, Scope& scope) {
    if (&scope != &top_) fail("a macro within a loop or a macro is not supported");
    return Function{n.name, [this, &n](const Arguments& a) -> Value {
                      Scope own{&top_};
                      if (a.positional.size() > n.names.size())
                        throw Failure{str("the macro ", n.name, " takes ", n.names.size(), " arguments at most")};
                      for (const auto& named : a.named)
                        if (std::find(n.names.begin(), n.names.end(), named.first) == n.names.end())
                          throw Failure{str("the macro ", n.name, " has no argument '", named.first, "'")};
                      for (size_t i = 0; i < n.names.size(); ++i) {
                        const Value* given = a.at(i, n.names[i]);
                        own.names.emplace_back(
                            n.names[i], given ? *given
                                        : i < n.required
                                            ? Value::undefined(str("parameter '", n.names[i], "' was not provided"))
                                            : eval(*n.parts[i - n.required], own));
                      }
                      return capture(n.body, own);
                    }};
  }

  // --- expressions

  bool truth(const Node& n, Scope& scope) { return is_true(eval(n, scope)); }

  Value eval(const Node& n, Scope& scope) {
    line_ = n.line;
    step();
    const Deeper deeper(*this);
    switch (n.kind) {
      case Kind::kConstant: return n.value;
      case Kind::kName: {
        const Value* found = scope.find(n.name);
        return found ? *found : Value::undefined(str("'", n.name, "' is undefined"));
      }
      case Kind::kCaptured: return *scope.find("");
      case Kind::kList:
      case Kind::kTuple: {
        List out{{}, n.kind == Kind::kList ? List::Kind::kList : List::Kind::kTuple};
        for (const NodePtr& part : n.parts) out.items.push_back(eval(*part, scope));
        return out;
      }
      case Kind::kDict: {
        auto out = std::make_shared<Dict>();
        for (size_t i = 0; i < n.parts.size(); i += 2) {
          const Value key = eval(*n.parts[i], scope);
          out->put(key, eval(*n.parts[i + 1], scope));
        }
        return out;
      }
      case Kind::kAttribute: {
        const Value of = eval(*n.parts[0], scope);
        return attribute_of(of, n.name);
      }
      case Kind::kElement: {
        const Value of = eval(*n.parts[0], scope), index = eval(*n.parts[1], scope);
        return element_of(of, index);
      }
      case Kind::kSlice: {
        const Value of = eval(*n.parts[0], scope), begin = eval(*n.parts[1], scope), end = eval(*n.parts[2], scope),
                    by = eval(*n.parts[3], scope);
        return charged(slice_of(of, begin, end, by));
      }
      case Kind::kCall: return call(n, scope);
      case Kind::kFilter:
      case Kind::kTest: {
        Arguments a = arguments(n, scope);
        a.self = eval(*n.parts[0], scope);
        charge_input(a);
        const bool filter = n.kind == Kind::kFilter;
        const Builtin builtin = filter ? filter_named(n.name) : test_named(n.name);
        if (!builtin) fail(str("the ", filter ? "filter" : "test", " '", n.name, "' is not supported"));
        return charged(named(n, [&] { return builtin(a); }));
      }
      case Kind::kNot: return !truth(*n.parts[0], scope);
      case Kind::kNegative:
      case Kind::kPositive: {
        const Value of = eval(*n.parts[0], scope);
        const bool negative = n.kind == Kind::kNegative;
        if (const auto w = of.whole()) return negative ? arithmetic("-", Value(int64_t{0}), of) : Value(*w);
        if (const double* d = of.real()) return negative ? -*d : *d;
        fail(str("a ", type_name(of), " has no negative"));
      }
      case Kind::kAnd:
      case Kind::kOr: {
        Value left = eval(*n.parts[0], scope);
        const bool is = is_true(left);
        return is == (n.kind == Kind::kOr) ? left : eval(*n.parts[1], scope);
      }
      case Kind::kCompare: {
        Value left = eval(*n.parts[0], scope);
        for (size_t i = 0; i < n.names.size(); ++i) {
          Value right = eval(*n.parts[i + 1], scope);
          charge_value(left), charge_value(right);
          if (!holds(n.names[i], left, right)) return false;
          left = std::move(right);
        }
        return true;
      }
      case Kind::kBinary: {
        const Value left = eval(*n.parts[0], scope), right = eval(*n.parts[1], scope);
        return charged(binary(n.name, left, right));
      }
      case Kind::kConcat: {
        Text out;
        for (const NodePtr& part : n.parts) out += printed(eval(*part, scope));
        return charged(Value(std::move(out)));
      }
      case Kind::kChoice:
        if (truth(*n.parts[1], scope)) return eval(*n.parts[0], scope);
        return n.parts.size() > 2 ? eval(*n.parts[2], scope) : Value::undefined("the inline if has no else");
      default: check(false, "a statement stands where an expression does"); return {};
    }
  }

  void charge_value(const Value& value) {
    if (value.text()) charge(*value.text());
    if (value.list()) step(static_cast<int64_t>(value.list()->items.size()));
    if (value.dict()) step(static_cast<int64_t>(value.dict()->members.size()));
  }
  Value charged(Value value) {
    charge_value(value);
    return value;
  }
  void charge_input(const Arguments& a) {
    charge_value(a.self);
    for (const Value& v : a.positional) charge_value(v);
  }

  static bool holds(const std::string& op, const Value& a, const Value& b) {
    if (op == "==") return equal(a, b);
    if (op == "!=") return !equal(a, b);
    if (op == "in") return contains(b, a);
    if (op == "not in") return !contains(b, a);
    for (const Value* v : {&a, &b})
      if (v->real() && std::isnan(*v->real()) && a.number() && b.number()) return false;
    const int order = compare(a, b);
    return op == "<" ? order < 0 : op == "<=" ? order <= 0 : op == ">" ? order > 0 : order >= 0;
  }

  // A value that is repeated n times.
  static Value repeated(const Value& of, int64_t n, int64_t most) {
    const auto size = static_cast<int64_t>(of.text() ? of.text()->size() : of.list()->items.size());
    n = std::max<int64_t>(n, 0);
    if (size > 0 && n > most / size) throw Failure{"a text or a list is repeated too often"};
    if (of.text()) {
      Text out;
      for (int64_t i = 0; i < n; ++i) out += *of.text();
      return out;
    }
    List out{{}, of.list()->kind};
    for (int64_t i = 0; i < n; ++i) out.items.insert(out.items.end(), of.list()->items.begin(), of.list()->items.end());
    return out;
  }

  static Value binary(const std::string& op, const Value& a, const Value& b) {
    for (const Value* v : {&a, &b})
      if (v->undefined()) throw Failure{v->undefined()->why};
    const auto x = a.whole(), y = b.whole();
    if (op == "+" && a.text() && b.text()) return sum_of(*a.text(), *b.text());
    if (op == "+" && a.list() && b.list() && a.list()->kind == b.list()->kind && a.list()->kind <= List::Kind::kTuple) {
      List out = *a.list();
      out.items.insert(out.items.end(), b.list()->items.begin(), b.list()->items.end());
      return out;
    }
    constexpr int64_t kMostBytes = 1 << 24, kMostItems = 1 << 20;
    const auto repeats = [](const Value& v) { return v.text() || (v.list() && v.list()->kind <= List::Kind::kTuple); };
    if (op == "*" && repeats(a) && y) return repeated(a, *y, a.text() ? kMostBytes : kMostItems);
    if (op == "*" && repeats(b) && x) return repeated(b, *x, b.text() ? kMostBytes : kMostItems);
    if (op == "%" && a.text()) {
      const bool several = b.list() && b.list()->kind == List::Kind::kTuple;
      return percent_formatted(*a.text(), several ? b.list()->items : std::vector<Value>{b});
    }
    const auto p = a.number(), q = b.number();
    if (!p || !q) throw Failure{str("'", op, "' of a ", type_name(a), " and a ", type_name(b), " means nothing")};
    return arithmetic(op, a, b);
  }

  Arguments arguments(const Node& n, Scope& scope) {
    Arguments out;
    const size_t first_named = n.parts.size() - n.names.size();
    for (size_t i = 1; i < n.parts.size(); ++i) {
      if (n.parts[i]->kind == Kind::kSpread) {
        for (Value& v : items_of(eval(*n.parts[i]->parts[0], scope))) out.positional.push_back(std::move(v));
        continue;
      }
      Value value = eval(*n.parts[i], scope);
      if (i < first_named) out.positional.push_back(std::move(value));
      else out.named.emplace_back(n.names[i - first_named], std::move(value));
    }
    return out;
  }

  // An error names the filter or the test.
  template <class Do>
  Value named(const Node& n, Do act) {
    try {
      return act();
    } catch (const Failure& failure) {
      throw Failure{str(n.kind == Kind::kFilter ? "the filter '" : "the test '", n.name, "': ", failure.what)};
    }
  }

  Value call(const Node& n, Scope& scope) {
    const Value of = eval(*n.parts[0], scope);
    const Arguments a = arguments(n, scope);
    charge_input(a);
    if (of.undefined()) fail(of.undefined()->why);
    if (!of.function()) fail(str("a ", type_name(of), " cannot be called"));
    return charged(of.function()->call(a));
  }

  Budget budget_{kSteps};
  const bool strict_;
  int line_ = 1, deep_ = 0;
  char16_t message_ = 0;      // the one that the loop around is at
  Text* captured_ = nullptr;  // where texts go that are a value
  Scope globals_, top_;
  Rendered rendered_;
  // A namespace may hold itself.
  struct Namespaces : std::vector<std::shared_ptr<Dict>> {
    ~Namespaces() {
      for (const auto& one : *this) one->members.clear();
    }
  } namespaces_;
};

}  // namespace

Template::Template(const std::string& source, const Reading& how) : strict_(how.strict) {
  Parsed parsed = parse(source, how);
  root_ = std::move(parsed.root);
  names_ = std::move(parsed.names);
  marks_generations_ = parsed.marks_generations;
}

Template::~Template() = default;
Template::Template(Template&&) noexcept = default;

Rendered Template::render(const Values& values, int64_t now) const {
  return Interpreter(*root_, values, now, strict_).take();
}

bool Template::mentions(std::string_view name) const {
  return std::find(names_.begin(), names_.end(), name) != names_.end();
}

}  // namespace lockstep::jinja
