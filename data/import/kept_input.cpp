#include "data/import/kept_input.h"

#include <unistd.h>

#include "core/base/error.h"
#include "data/import/input_stream.h"

namespace lockstep {

KeptInput::KeptInput(const std::string& beside) : spool_(Spool::unnamed(beside)) {
  InputStream input("-");
  std::vector<uint8_t> block(1 << 20);
  for (size_t got; (got = input.read(block.data(), block.size())) > 0;) spool_.append(block.data(), got);
  spool_.flush();
}

std::string KeptInput::path() const { return str("/proc/self/fd/", spool_.descriptor()); }

}  // namespace lockstep
