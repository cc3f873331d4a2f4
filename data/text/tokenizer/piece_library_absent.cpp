// Compiled in place of piece_library.cpp where the package libsentencepiece-dev is not there.
#include "core/base/error.h"
#include "data/text/tokenizer/pieces.h"

namespace lockstep {

std::shared_ptr<const PieceModel> PieceModel::parse(std::string, std::string_view where) {
  throw Error(ExitCode::kConfig, str(where,
                                     ": is a SentencePiece model, and this build has no SentencePiece; install "
                                     "libsentencepiece-dev and build again"));
}

}  // namespace lockstep
