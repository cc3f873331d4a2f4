// What other programs call lockstep's keys: the one table of it. A plain function.
#pragma once

#include <span>
#include <string_view>

namespace lockstep {

struct OtherName {
  std::string_view name;       // the last part of a key or option of another program
  std::string_view ours;       // our key, or a section; empty where there is no such key
  std::string_view note = {};  // what else to know: how the value differs
};

// A name may be here several times: the first whose `ours` the program has is meant.
std::span<const OtherName> other_names();

}  // namespace lockstep
