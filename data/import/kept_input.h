// KeptInput: standard input, kept in an unnamed file so that it can be read several times. Owns the file.
#pragma once

#include <string>

#include "data/store/spool.h"

namespace lockstep {

class KeptInput {
 public:
  // Reads standard input to its end. Throws ExitCode::kBadData, kStorage.
  explicit KeptInput(const std::string& beside);
  std::string path() const;  // opens the file, any number of times

 private:
  Spool spool_;
};

}  // namespace lockstep
