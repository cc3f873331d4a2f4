// PieceModel: a SentencePiece model (Kudo and Richardson, 2018; unigram or BPE, with or without byte fallback),
// immutable and shared, by its library where the build has it; which of several equal cuts a unigram model makes is no
// matter of the library's version (data/text/tokenizer/unigram.h). Callable from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

class PieceModel {
 public:
  enum class Type : uint8_t { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };
  struct Piece {
    std::string text;  // a space is U+2581
    Type type = Type::kNormal;
    float score = 0;
  };
  // What a token stands for: bytes [begin, end) of the text; of a character that is spelt in bytes all but the last
  // token have none.
  struct Token {
    int32_t id;
    size_t begin, end;
  };

  // From the bytes of a file tokenizer.model. Throws ExitCode::kBadData naming `where` and what is wrong, and
  // ExitCode::kConfig where the build has no SentencePiece.
  static std::shared_ptr<const PieceModel> parse(std::string bytes, std::string_view where);
  static std::shared_ptr<const PieceModel> read(const std::string& path);  // throws kMissingInput, too

  virtual ~PieceModel() = default;
  // Of valid UTF-8 as one text, to which a model may add a space in front. Control pieces in the text are text.
  virtual std::vector<Token> encode(std::string_view text) const = 0;
  // A whole text, without that space. Bytes that are no UTF-8 become U+FFFD.
  virtual std::string decode(const std::vector<int32_t>& ids) const = 0;

  const std::string& bytes() const { return bytes_; }
  const std::vector<Piece>& pieces() const { return pieces_; }
  int64_t size() const { return static_cast<int64_t>(pieces_.size()); }
  // Of a token within a text: with its space in front, a byte as itself, nothing of a control piece.
  std::string text_of(int32_t id) const;
  int32_t special(std::string_view text) const;  // the control or user-defined piece; -1 if there is none
  const Piece& piece(int32_t id) const { return pieces_[static_cast<size_t>(id)]; }
  // The first control piece that the text spells out, of several there the longest: where it begins, and its id; the
  // text's size and -1 if there is none.
  std::pair<size_t, int32_t> find_control(std::string_view text) const;

 protected:
  PieceModel(std::string bytes, std::vector<Piece> pieces) : bytes_(std::move(bytes)), pieces_(std::move(pieces)) {}

 private:
  std::string bytes_;
  std::vector<Piece> pieces_;
};

// The pieces of a model, once all that the library takes as given is checked: the encoding of the message, types,
// names that differ, one unknown piece, all bytes or none, and tables of normalisation that do not lead outside.
// Throws ExitCode::kBadData naming `where`.
std::vector<PieceModel::Piece> checked_pieces(std::string_view bytes, std::string_view where);

// Of a model that was checked: whether it is a unigram model; and a model that brings a text into the same normal form,
// but cuts it into characters, user-defined pieces and, with byte fallback, the bytes of characters in no piece.
bool is_unigram(std::string_view bytes);
std::string characters_model(std::string_view bytes, const std::vector<PieceModel::Piece>& pieces);

}  // namespace lockstep
