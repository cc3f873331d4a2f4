#include <sentencepiece_processor.h>

#include <optional>

#include "core/base/error.h"
#include "data/text/tokenizer/pieces.h"
#include "data/text/tokenizer/unigram.h"

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
    if (!is_unigram(this->bytes())) return;
    const auto also = characters_.LoadFromSerializedProto(characters_model(this->bytes(), this->pieces()));
    require(also.ok(), ExitCode::kBadData, where, ": SentencePiece refuses its characters: ", also.error_message());
    unigram_.emplace(this->pieces());
    for (size_t i = 0; i < this->pieces().size(); ++i)
      if (this->pieces()[i].type == Type::kByte) byte_pieces_.push_back(static_cast<int32_t>(i));
  }

  std::vector<Token> encode(std::string_view text) const override {
    if (unigram_) return encode_unigram(text);
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
  std::vector<Token> encode_unigram(std::string_view text) const {
    std::string normal;
    std::vector<size_t> from;  // of each of its bytes: where what it was made of begins in the text
    size_t last = 0;           // where what all of it was made of ends
    const auto encoded = characters_.EncodeAsImmutableProto(text);
    for (const auto& piece : encoded.pieces()) {
      if (characters_.IsByte(static_cast<int>(piece.id())))
        normal += static_cast<char>(std::stoi(piece.piece().substr(3, 2), nullptr, 16));
      else normal += piece.piece();
      from.resize(normal.size(), piece.begin());
      last = piece.end();
    }
    from.push_back(last);
    std::vector<Token> out;
    size_t begin = 0;
    bool behind_unknown = false;
    for (const auto& [id, end] : unigram_->cut(normal)) {
      const bool unknown = pieces()[static_cast<size_t>(id)].type == Type::kUnknown;
      if (unknown && !byte_pieces_.empty()) {
        for (; begin < end; ++begin)
          out.push_back(
              {byte_pieces_[static_cast<uint8_t>(normal[begin])], from[begin], from[begin + 1 < end ? begin : end]});
      } else if (unknown && behind_unknown) {  // several characters are one token
        out.back().end = from[end];
      } else {
        out.push_back({id, from[begin], from[end]});
      }
      begin = end;
      behind_unknown = unknown;
    }
    return out;
  }

  sentencepiece::SentencePieceProcessor processor_;
  // Of unigram models:
  sentencepiece::SentencePieceProcessor characters_;
  std::optional<Unigram> unigram_;
  std::vector<int32_t> byte_pieces_;  // their pieces; empty without byte fallback
};

}  // namespace

std::shared_ptr<const PieceModel> PieceModel::parse(std::string bytes, std::string_view where) {
  auto pieces = checked_pieces(bytes, where);
  return std::make_shared<LibraryModel>(std::move(bytes), std::move(pieces), where);
}

}  // namespace lockstep
