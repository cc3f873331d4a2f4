// Compiled in place of zstd_decoder.cpp where the package libzstd-dev is not there.
#include "data/import/input_stream.h"

namespace lockstep {

std::unique_ptr<Decompressor> zstd_decoder() { return nullptr; }

}  // namespace lockstep
