#include <sentencepiece_processor.h>

#include "core/base/error.h"
#include "data/tokenizer/pieces.h"

namespace lockstep {
namespace {

class LibraryModel final : public PieceModel {
 public:
  LibraryModel(std::string bytes, std::vector<Piece> pieces, std::string_view where)
      : PieceModel(std::move(bytes), std::move(pieces)) {
    const auto status = processor_.LoadFromSerializedProto(this->bytes());
    require(status.ok(), ExitCode::kBadData, where, ": SentencePiece refuses it: ", status.error_message());
    require(processor_.GetPieceSize() == size(), ExitCode::kBadData, where, ": SentencePiece reads ",
            processor_.GetPieceSize(), " pieces of ", size());
  }

  std::vector<Token> encode(std::string_view text) const override {
    const auto encoded = processor_.EncodeAsImmutableProto(text);
    std::vector<Token> out;
    out.reserve(encoded.pieces_size());
    for (const auto& piece : encoded.pieces())
      out.push_back({static_cast<int32_t>(piece.id()), piece.begin(), piece.end()});
    return out;
  }

  std::string decode(const std::vector<int32_t>& ids) const override {
    std::string out;
    const auto status = processor_.Decode(ids, &out);
    require(status.ok(), ExitCode::kBadData, "token ids: ", status.error_message());
    return out;
  }

 private:
  sentencepiece::SentencePieceProcessor processor_;
};

}  // namespace

std::shared_ptr<const PieceModel> PieceModel::parse(std::string bytes, std::string_view where) {
  auto pieces = checked_pieces(bytes, where);
  return std::make_shared<LibraryModel>(std::move(bytes), std::move(pieces), where);
}

}  // namespace lockstep
