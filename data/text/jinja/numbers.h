// Numbers as Python has them: read from texts, rounded, compared, and what operators make of them. An integer of more
// than 64 bits, which Python has, is a Failure that says so. Plain functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "data/text/jinja/value.h"

namespace lockstep::jinja {

[[noreturn]] void refuse_large_integer();

// The filters int, float, round and abs.
Value as_integer(const Arguments& a);
Value as_real(const Arguments& a);
Value rounded(const Arguments& a);
Value absolute(const Arguments& a);

// a `op` b of two numbers: + - * / // % **
Value arithmetic(std::string_view op, const Value& a, const Value& b);
// -1, 0 or 1, of exact values, of two numbers that are not NaN.
int compare_numbers(const Value& a, const Value& b);

}  // namespace lockstep::jinja
