// For inputs that are read in several passes. A plain function.
#pragma once

#include <string>

#include "core/base/error.h"

namespace lockstep {

// Throws ExitCode::kBadData where two passes over an input have read different bytes.
inline void require_same_pass(bool same, const std::string& name) {
  require(same, ExitCode::kBadData, name,
          ": changed during the import: what was read first differs from what was read then; import it again when no "
          "other program writes it");
}

}  // namespace lockstep
