// How many files this process may have open.
#pragma once

#include <cstdint>
#include <string_view>

namespace lockstep {

// Raises the limit as far as the system lets it, and returns it. Throws ExitCode::kDevice where fewer than `needed` are
// allowed; `what` says by what they are needed: "with 4 ranks".
int64_t require_open_files(int64_t needed, std::string_view what);

}  // namespace lockstep
