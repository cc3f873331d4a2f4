// The page that `lockstep serve` answers / with, page.html, as it was when this was built. In it NONCE stands for a
// random text that lets its own script and style run, and no other.
#pragma once

namespace lockstep {

extern const char* const kServePage;

}  // namespace lockstep
