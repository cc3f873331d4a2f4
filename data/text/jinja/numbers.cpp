#include "data/text/jinja/numbers.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <limits>
#include <optional>
#include <system_error>

#include "core/base/error.h"
#include "data/text/jinja/characters.h"

namespace lockstep::jinja {
namespace {

__extension__ using Wide = __int128;
__extension__ using UnsignedWide = unsigned __int128;

constexpr int64_t kLeast = std::numeric_limits<int64_t>::min(), kMost = std::numeric_limits<int64_t>::max();
constexpr double kPastMost = 9223372036854775808.0;  // 2^63

// A text whose digits and white space are those of ASCII, without that around it. Python's int() and float() take
// decimal digits of all scripts; what they never take becomes '?'.
std::string plain_number(const std::string& text) {
  std::string out;
  const std::vector<size_t> starts = character_starts(text);
  for (size_t i = 0; i + 1 < starts.size(); ++i) {
    const uint32_t c = character_at(text, starts[i]);
    const int digit = decimal_of(c);
    out += digit >= 0           ? static_cast<char>('0' + digit)
           : c < 0x7F           ? static_cast<char>(c)
           : is_python_space(c) ? ' '
                                : '?';
  }
  constexpr std::string_view kSpaces = " \t\n\v\f\r";
  const size_t begin = out.find_first_not_of(kSpaces);
  return begin == out.npos ? "" : out.substr(begin, out.find_last_not_of(kSpaces) + 1 - begin);
}

int value_of_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'z') return c - 'a' + 10;
  if (c >= 'A' && c <= 'Z') return c - 'A' + 10;
  return 99;
}

// Python's int(text, base); nothing where that is a ValueError.
std::optional<int64_t> integer_of(const std::string& text, int64_t base) {
  if (base != 0 && (base < 2 || base > 36)) return std::nullopt;
  std::string rest = plain_number(text);
  const bool negative = rest.starts_with('-');
  if (negative || rest.starts_with('+')) rest.erase(0, 1);
  const auto prefixed = [&](char sign) { return rest.size() > 1 && rest[0] == '0' && (rest[1] | 0x20) == sign; };
  bool only_zero = false;
  if (base == 0) {
    base = prefixed('x') ? 16 : prefixed('o') ? 8 : prefixed('b') ? 2 : 10;
    only_zero = base == 10 && rest.starts_with('0');
  }
  if (prefixed(base == 16 ? 'x' : base == 8 ? 'o' : base == 2 ? 'b' : '\0')) {
    rest.erase(0, 2);
    if (rest.starts_with('_')) rest.erase(0, 1);
  }
  constexpr int64_t kMostDigits = 4300;  // sys.get_int_max_str_digits(), where the base is no power of 2
  UnsignedWide value = 0;
  int64_t digits = 0;
  bool large = false, was_digit = false;
  for (const char c : rest) {
    if (c == '_' && was_digit) {
      was_digit = false;
      continue;
    }
    const int digit = value_of_digit(c);
    if (digit >= base) return std::nullopt;
    was_digit = true;
    ++digits;
    value = value * static_cast<UnsignedWide>(base) + static_cast<UnsignedWide>(digit);
    large = large || value > static_cast<UnsignedWide>(kMost) + 1;
    if (large) value = 0;
  }
  if (!was_digit || (only_zero && (large || value > 0))) return std::nullopt;
  if (digits > kMostDigits && (base & (base - 1)) != 0) return std::nullopt;
  if (large || (!negative && value > static_cast<UnsignedWide>(kMost))) refuse_large_integer();
  return static_cast<int64_t>(negative ? -static_cast<Wide>(value) : static_cast<Wide>(value));
}

// The number of a decimal text that is well formed: an infinity or 0 where it is out of range, in any locale.
double double_of(std::string_view digits) {
  double out = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), out);
  if (error != std::errc::result_out_of_range) return out;
  // Which of the two: the place of its first digit that is not 0.
  const size_t e = std::min(digits.find_first_of("eE"), digits.size());
  const std::string_view mantissa = digits.substr(0, e);
  const auto first = static_cast<int64_t>(mantissa.find_first_of("123456789"));
  const auto point = static_cast<int64_t>(std::min(mantissa.find('.'), mantissa.size()));
  const bool negative = e + 1 < digits.size() && digits[e + 1] == '-';
  return negative || (e == digits.size() && first > point) ? 0 : std::numeric_limits<double>::infinity();
}

// Python's float(text); nothing where that is a ValueError.
std::optional<double> real_of(const std::string& text) {
  const std::string all = plain_number(text);
  const bool negative = all.starts_with('-');
  const std::string_view rest = std::string_view(all).substr(negative || all.starts_with('+') ? 1 : 0);
  std::string lower;
  for (const char c : rest) lower += c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
  const auto is_signed = [&](double v) { return negative ? -v : v; };
  if (lower == "inf" || lower == "infinity") return is_signed(std::numeric_limits<double>::infinity());
  if (lower == "nan") return std::numeric_limits<double>::quiet_NaN();
  std::string plain;
  size_t at = 0;
  // Digits with single _ between them; how many.
  const auto take = [&] {
    int64_t count = 0;
    for (; at < lower.size(); ++at) {
      const bool digit = lower[at] >= '0' && lower[at] <= '9';
      const bool between = lower[at] == '_' && count > 0 && at + 1 < lower.size() && lower[at - 1] != '_' &&
                           lower[at + 1] >= '0' && lower[at + 1] <= '9';
      if (!digit && !between) break;
      if (digit) plain += lower[at], ++count;
    }
    return count;
  };
  int64_t digits = take();
  if (at < lower.size() && lower[at] == '.') {
    plain += lower[at++];
    digits += take();
  }
  if (digits == 0) return std::nullopt;
  if (at < lower.size() && lower[at] == 'e') {
    plain += lower[at++];
    if (at < lower.size() && (lower[at] == '-' || lower[at] == '+')) {
      if (lower[at] == '-') plain += '-';
      ++at;
    }
    if (take() == 0) return std::nullopt;
  }
  if (at < lower.size()) return std::nullopt;
  return is_signed(double_of(plain));
}

// Towards 0.
int64_t integer_of(double v) {
  if (!(v < kPastMost && v >= -kPastMost)) refuse_large_integer();
  return static_cast<int64_t>(v);
}

// To this many decimal places, of the exact value, ties to even.
double rounded_to(double v, int64_t places) {
  constexpr int64_t kMostPlaces = 323, kLeastPlaces = -308;  // beyond these Python does not look at digits
  if (!std::isfinite(v) || places > kMostPlaces) return v;
  if (places < kLeastPlaces) return 0 * v;
  char shown[1500];
  std::snprintf(shown, sizeof shown, "%.1074f", std::abs(v));  // all of its digits
  std::string digits = shown;
  const size_t point = digits.find_first_of(".,");
  digits.erase(point, 1);
  const int64_t kept = static_cast<int64_t>(point) + places;
  if (kept < 0) return std::copysign(0.0, v);
  std::string head = "0" + digits.substr(0, std::min(static_cast<size_t>(kept), digits.size()));
  const std::string tail = static_cast<size_t>(kept) < digits.size() ? digits.substr(static_cast<size_t>(kept)) : "";
  const bool tie = tail.starts_with('5') && tail.find_first_not_of('0', 1) == tail.npos;
  if (tie ? (head.back() - '0') % 2 == 1 : !tail.empty() && tail[0] >= '5') {
    size_t at = head.size() - 1;
    for (; head[at] == '9'; --at) head[at] = '0';
    ++head[at];
  }
  const double out = double_of(str(head, "e", -places));
  if (std::isinf(out)) throw Failure{"the rounded number is too large"};
  return std::copysign(out, v);
}

int64_t rounded_to(int64_t v, int64_t places) {
  if (places >= 0) return v;
  if (places < -19) return 0;
  Wide unit = 1;
  for (int64_t i = 0; i > places; --i) unit *= 10;
  Wide quotient = v / unit, rest = v % unit;
  if (rest < 0) rest += unit, --quotient;
  if (2 * rest > unit || (2 * rest == unit && quotient % 2 != 0)) ++quotient;
  const Wide out = quotient * unit;
  if (out > kMost || out < kLeast) refuse_large_integer();
  return static_cast<int64_t>(out);
}

// Rounded once, as Python divides integers.
double quotient_of(int64_t a, int64_t b) {
  const auto size = [](int64_t v) { return static_cast<UnsignedWide>(v < 0 ? -static_cast<Wide>(v) : v); };
  const UnsignedWide x = size(a), y = size(b);
  if (x == 0) return b < 0 ? -0.0 : 0.0;
  int shift = 0;
  while ((x << shift) >> 126 == 0) ++shift;
  UnsignedWide quotient = (x << shift) / y;  // at least 63 bits, so that one more says of the rest what rounding needs
  if ((x << shift) % y != 0) quotient |= 1;
  const double out = std::ldexp(static_cast<double>(quotient), -shift);
  return (a < 0) != (b < 0) ? -out : out;
}

// As Python has them of floats: the quotient rounded down, and a rest of the divisor's sign.
std::pair<double, double> divided(double a, double b) {
  double rest = std::fmod(a, b), quotient = (a - rest) / b;
  if (rest != 0) {
    if ((b < 0) != (rest < 0)) rest += b, quotient -= 1;
  } else {
    rest = std::copysign(0.0, b);
  }
  if (quotient == 0) return {std::copysign(0.0, a / b), rest};
  const double down = std::floor(quotient);
  return {quotient - down > 0.5 ? down + 1 : down, rest};
}

double power(double a, double b) {
  if (a == 0 && b < 0) throw Failure{"divides by 0"};
  if (a < 0 && std::isfinite(a) && std::isfinite(b) && b != std::floor(b))
    throw Failure{"the power is a complex number, which is not supported"};
  const double out = std::pow(a, b);
  if (std::isinf(out) && std::isfinite(a) && std::isfinite(b)) throw Failure{"the power is too large a number"};
  return out;
}

int64_t integers(std::string_view op, int64_t x, int64_t y) {
  int64_t out = 0;
  bool over = false;
  if (op == "+") over = __builtin_add_overflow(x, y, &out);
  else if (op == "-") over = __builtin_sub_overflow(x, y, &out);
  else if (op == "*") over = __builtin_mul_overflow(x, y, &out);
  else if (op == "**") {
    out = 1;
    if (x == 0 || x == 1) out = y == 0 ? 1 : x;
    else if (x == -1) out = y % 2 == 0 ? 1 : -1;
    else
      for (int64_t i = 0; i < y && !over; ++i) over = __builtin_mul_overflow(out, x, &out);
  } else if (y == -1) {
    if (op == "//") over = __builtin_sub_overflow(int64_t{0}, x, &out);
  } else {
    const int64_t quotient = x / y - ((x % y != 0 && (x < 0) != (y < 0)) ? 1 : 0);
    out = op == "//" ? quotient : x - quotient * y;
  }
  if (over) refuse_large_integer();
  return out;
}

int compare_with(int64_t w, double d) {
  if (d >= kPastMost) return -1;
  if (d < -kPastMost) return 1;
  const double whole = std::trunc(d);
  const auto t = static_cast<int64_t>(whole);
  if (w != t) return w < t ? -1 : 1;
  return d > whole ? -1 : d < whole;
}

}  // namespace

void refuse_large_integer() { throw Failure{"an integer has more than 64 bits, which is not supported"}; }

Value as_integer(const Arguments& a) {
  const Value* standard = a.at(0, "default");
  const Value otherwise = standard ? *standard : Value(int64_t{0});
  if (a.self.undefined()) throw Failure{a.self.undefined()->why};
  if (const auto w = a.self.whole()) return *w;
  if (const double* d = a.self.real()) {
    if (std::isnan(*d)) return otherwise;
    if (std::isinf(*d)) throw Failure{"an infinity is no integer"};
    return integer_of(*d);
  }
  if (!a.self.text()) return otherwise;
  const std::string& text = a.self.text()->bytes;
  const Value* base = a.at(1, "base");
  if (!base || base->whole())
    if (const auto found = integer_of(text, base ? *base->whole() : 10)) return *found;
  const auto real = real_of(text);  // so that 42.23 is 42, and 1e3 is 1000
  return real && std::isfinite(*real) ? Value(integer_of(*real)) : otherwise;
}

Value as_real(const Arguments& a) {
  const Value* standard = a.at(0, "default");
  if (a.self.undefined()) throw Failure{a.self.undefined()->why};
  if (const auto n = a.self.number()) return *n;
  if (a.self.text())
    if (const auto n = real_of(a.self.text()->bytes)) return *n;
  return standard ? *standard : Value(0.0);
}

Value rounded(const Arguments& a) {
  const auto n = a.self.number();
  if (!n) throw Failure{str("rounds numbers, not a ", type_name(a.self))};
  const Value *how = a.at(1, "method"), *precision = a.at(0, "precision");
  const std::string method = !how ? "common" : how->text() ? how->text()->bytes : "";
  const auto whole = a.self.whole();
  const auto places = precision ? precision->whole() : std::optional<int64_t>(0);
  if (!places && !(precision->is_none() && method == "common"))
    throw Failure{str("needs an integer as 'precision', not a ", type_name(*precision))};
  if (method == "common") {
    if (whole) return rounded_to(*whole, places.value_or(0));
    if (places) return rounded_to(*n, *places);
    if (!std::isfinite(*n)) throw Failure{"an infinity or NaN is no integer"};
    return integer_of(rounded_to(*n, 0));
  }
  if (method != "ceil" && method != "floor") throw Failure{"the method is common, ceil or floor"};
  constexpr int64_t kMostPlaces = 22;  // powers of 10 that a float holds exactly
  if (*places > kMostPlaces || *places < -300)
    throw Failure{str("a precision of ", *places, " is not supported by ", method)};
  if (whole && *places >= 0) return *n;
  const double scale = power(10, static_cast<double>(*places)), scaled = *n * scale;
  if (!std::isfinite(scaled)) throw Failure{"an infinity or NaN is no integer"};
  return (method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale + 0.0;  // an integer has no -0
}

Value absolute(const Arguments& a) {
  if (const auto w = a.self.whole()) {
    if (*w == kLeast) refuse_large_integer();
    return std::abs(*w);
  }
  if (const double* d = a.self.real()) return std::abs(*d);
  throw Failure{str("needs a number, not a ", type_name(a.self))};
}

Value arithmetic(std::string_view op, const Value& a, const Value& b) {
  const auto x = a.whole(), y = b.whole();
  const double p = *a.number(), q = *b.number();
  if (q == 0 && (op == "/" || op == "//" || op == "%")) throw Failure{"divides by 0"};
  if (x && y && op == "/") return quotient_of(*x, *y);
  if (x && y && !(op == "**" && *y < 0)) return integers(op, *x, *y);
  if (op == "+") return p + q;
  if (op == "-") return p - q;
  if (op == "*") return p * q;
  if (op == "/") return p / q;
  if (op == "**") return power(p, q);
  return op == "//" ? divided(p, q).first : divided(p, q).second;
}

int compare_numbers(const Value& a, const Value& b) {
  if (const auto x = a.whole(), y = b.whole(); x && y) return *x < *y ? -1 : *x > *y;
  if (const auto x = a.whole()) return compare_with(*x, *b.real());
  if (const auto y = b.whole()) return -compare_with(*y, *a.real());
  return *a.real() < *b.real() ? -1 : *a.real() > *b.real();
}

}  // namespace lockstep::jinja
