// Characters as Python's str sees them: digits, numbers, letters, and their case. Plain functions.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep::jinja {

int decimal_of(uint32_t code_point);  // 0 to 9; -1: no decimal digit
bool is_digit(uint32_t code_point);   // of a digit, such as U+00B2, not of 10
bool is_numeric(uint32_t code_point);
bool is_alpha(uint32_t code_point);
bool is_alphanumeric(uint32_t code_point);

bool is_upper(uint32_t code_point);
bool is_lower(uint32_t code_point);
bool is_title(uint32_t code_point);  // two letters in one, such as U+01C5
bool is_cased(uint32_t code_point);  // one of these three
bool is_case_ignorable(uint32_t code_point);

// In UTF-8: one character or several. Of a capital sigma, whose small form depends on the text, that within a word.
std::string upper_of(uint32_t code_point);
std::string title_of(uint32_t code_point);
std::string lower_of(uint32_t code_point);

}  // namespace lockstep::jinja
