// Unicode's normal form C (Unicode Standard Annex 15), by utf8proc. Plain functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep {

bool can_normalise();  // false in a build without utf8proc; nfc() is not called there

// UTF-8. Throws ExitCode::kBadData for other bytes.
std::string nfc(std::string_view text);

// The last place in [0, text.size()] before which text can be normalised by itself, whatever follows: a character that
// no character combines with to its left. `from`: the first such place behind it, or the text's size.
size_t last_boundary(std::string_view text);
size_t next_boundary(std::string_view text, size_t from);

}  // namespace lockstep
