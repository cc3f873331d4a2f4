#include "data/text/jinja/globals.h"

#include <ctime>
#include <string>

#include "core/base/error.h"

namespace lockstep::jinja {
namespace {

constexpr int64_t kLongestRange = 100'000;

}  // namespace

Value raise_exception(const Arguments& a) {
  const Value* what = a.at(0, "message");
  throw Failure{str("the template refuses this conversation: ", what ? to_text(*what).bytes : "")};
}

Value time_text(const Arguments& a, int64_t now) {
  const Value* format = a.at(0, "format");
  if (!format || !format->text()) throw Failure{"needs a format"};
  const auto seconds = static_cast<std::time_t>(now);
  std::tm parts{};
  ::localtime_r(&seconds, &parts);
  char out[256];
  const size_t size = std::strftime(out, sizeof out, format->text()->bytes.c_str(), &parts);
  return Text(std::string(out, size));
}

Value range_of(const Arguments& a) {
  int64_t bounds[3] = {0, 0, 1};
  const size_t n = a.positional.size();
  if (n < 1 || n > 3) throw Failure{"range needs one to three integers"};
  for (size_t i = 0; i < n; ++i) {
    const auto w = a.positional[i].whole();
    if (!w) throw Failure{str("range needs integers, not a ", type_name(a.positional[i]))};
    bounds[n == 1 ? 1 : i] = *w;
  }
  const auto [begin, end, step] = bounds;
  if (step == 0) throw Failure{"the step of range is 0"};
  List out{{}, List::Kind::kRange};
  for (int64_t i = begin; step > 0 ? i < end : i > end;) {
    if (static_cast<int64_t>(out.items.size()) == kLongestRange)
      throw Failure{str("range has more than ", kLongestRange, " numbers")};
    out.items.emplace_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return out;
}

std::shared_ptr<Dict> dict_of(const Arguments& a) {
  auto out = std::make_shared<Dict>();
  if (!a.positional.empty()) {
    if (!a.positional[0].dict()) throw Failure{"needs names with values, or an object"};
    out->members = a.positional[0].dict()->members;
  }
  for (const auto& [name, value] : a.named) out->put(Text(name), value);
  return out;
}

}  // namespace lockstep::jinja
