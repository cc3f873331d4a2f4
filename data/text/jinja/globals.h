// What every template can call: the functions that Jinja and transformers give. Each throws Failure for arguments that
// it does not take. Plain functions.
#pragma once

#include <cstdint>
#include <memory>

#include "data/text/jinja/value.h"

namespace lockstep::jinja {

// How a template refuses a conversation: always throws.
Value raise_exception(const Arguments& a);
// Python's strftime, of the formats that C has; `now`: seconds since 1970.
Value time_text(const Arguments& a, int64_t now);
// Python's range, of at most 100,000 numbers.
Value range_of(const Arguments& a);
// Python's dict: a copy of an object, with names that have values.
std::shared_ptr<Dict> dict_of(const Arguments& a);

}  // namespace lockstep::jinja
