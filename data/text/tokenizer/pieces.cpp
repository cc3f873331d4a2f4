#include "data/text/tokenizer/pieces.h"

#include <cmath>
#include <cstring>
#include <unordered_set>

#include "core/base/error.h"
#include "core/base/escape.h"
#include "core/base/plain_file.h"
#include "core/io/protobuf.h"
#include "data/text/tokenizer/bpe_tables.h"
#include "data/text/vocabulary.h"

namespace lockstep {
namespace {

constexpr std::string_view kSpace = "\xE2\x96\x81";
constexpr size_t kMostPieces = 1 << 20, kLongestPiece = 4096;

struct Fields : protobuf::Fields {
  Fields(std::string_view message, std::string_view where)
      : protobuf::Fields(message, where, "model of SentencePiece") {}
};

bool is_utf8(std::string_view text) {
  Utf8Reader reader;
  for (char c : text)
    if (c == 0 || reader.next(static_cast<uint8_t>(c)) == Utf8Reader::Result::kInvalid) return false;
  return reader.between();
}

// A table of normalisation: the size of a double array (Aoe, 1989, as Darts-clone stores it), the array, and texts that
// its leaves lead to, each ended by a zero. The library walks it without looking where it goes.
void check_table(std::string_view table, std::string_view where) {
  if (table.empty()) return;
  const auto need = [&](bool good) {
    require(good, ExitCode::kBadData, where, ": its table of normalisation leads outside, so that it is damaged");
  };
  uint32_t size = 0;
  need(table.size() > sizeof size);
  std::memcpy(&size, table.data(), sizeof size);
  need(size % 4 == 0 && size > 0 && size <= table.size() - sizeof size);
  const std::string_view texts = table.substr(sizeof size + size);
  need(!texts.empty() && texts.back() == 0);
  std::vector<uint32_t> units(size / 4);
  std::memcpy(units.data(), table.data() + sizeof size, size);
  const auto base_of = [&](uint32_t at) { return at ^ ((units[at] >> 10) << ((units[at] & (1u << 9)) >> 6)); };
  std::vector<uint8_t> seen(units.size());
  std::vector<uint32_t> open{0};
  seen[0] = 1;
  while (!open.empty()) {
    const uint32_t at = open.back(), base = base_of(at);
    open.pop_back();
    need((base | 0xFF) < units.size());
    if (units[at] >> 8 & 1) need((units[base] & 0x7FFFFFFF) < texts.size());
    for (uint32_t label = 1; label < 256; ++label) {
      const uint32_t child = base ^ label;
      if ((units[child] & (1u << 31 | 0xFF)) != label || seen[child]) continue;
      seen[child] = 1;
      open.push_back(child);
    }
  }
}

void check_normalizer(std::string_view message, std::string_view where) {
  for (Fields f(message, where); f.next();)
    if (f.number() == 2) check_table(f.bytes(), where);
}

void check_trainer(std::string_view message, bool has_bytes, std::string_view where) {
  bool byte_fallback = false;
  for (Fields f(message, where); f.next();) {
    if (f.number() == 3)
      require(f.integer() >= 1 && f.integer() <= 4, ExitCode::kBadData, where, ": its kind of model, ", f.integer(),
              ", is not known");
    if (f.number() == 35) byte_fallback = f.integer() != 0;
  }
  require(byte_fallback == has_bytes, ExitCode::kBadData, where,
          has_bytes ? ": has pieces for bytes, which it says it does not use" : ": lacks the pieces of the 256 bytes");
}

PieceModel::Piece piece_of(std::string_view message, std::string_view where) {
  PieceModel::Piece out;
  for (Fields f(message, where); f.next();) {
    if (f.number() == 1) out.text = f.bytes();
    if (f.number() == 2) {
      out.score = f.real();
      require(std::abs(out.score) < 1e9f, ExitCode::kBadData, where, ": the score of a piece is no number");
    }
    if (f.number() == 3) {
      require(f.integer() >= 1 && f.integer() <= 6, ExitCode::kBadData, where, ": a piece has the unknown type ",
              f.integer());
      out.type = static_cast<PieceModel::Type>(f.integer());
    }
  }
  return out;
}

std::string byte_piece(int byte) {
  char text[8];
  std::snprintf(text, sizeof text, "<0x%02X>", static_cast<unsigned>(byte));
  return text;
}

}  // namespace

std::vector<PieceModel::Piece> checked_pieces(std::string_view bytes, std::string_view where) {
  require(!bytes.empty() && bytes.size() <= kLargestTokenizer, ExitCode::kBadData, where, ": has ", bytes.size(),
          " bytes; a model has up to ", kLargestTokenizer);
  std::vector<PieceModel::Piece> out;
  std::string_view trainer;
  for (Fields f(bytes, where); f.next();) {
    if (f.number() == 1) {
      require(out.size() < kMostPieces, ExitCode::kBadData, where, ": has more than ", kMostPieces, " pieces");
      out.push_back(piece_of(f.bytes(), where));
    }
    if (f.number() == 2) trainer = f.bytes();
    if (f.number() == 3 || f.number() == 5) check_normalizer(f.bytes(), where);
  }
  std::unordered_set<std::string_view> names;
  size_t unknown = 0, spelt = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    const auto& [text, type, score] = out[i];
    const std::string shown = escaped(text.substr(0, 40), Lines::kEscape);
    require(!text.empty() && text.size() <= kLongestPiece && is_utf8(text), ExitCode::kBadData, where, ": piece ", i,
            " ('", shown, "') is no text of 1 to ", kLongestPiece, " bytes in UTF-8");
    require(names.insert(text).second, ExitCode::kBadData, where, ": the piece '", shown, "' is there twice");
    unknown += type == PieceModel::Type::kUnknown;
    if (type != PieceModel::Type::kByte) continue;
    require(spelt < 256 && text == byte_piece(static_cast<int>(spelt)), ExitCode::kBadData, where, ": piece ", i, " ('",
            shown, "') is not that of byte ", spelt);
    ++spelt;
  }
  require(unknown == 1, ExitCode::kBadData, where, ": has ", unknown, " unknown pieces among ", out.size(),
          "; a model has one");
  require(spelt == 0 || spelt == 256, ExitCode::kBadData, where, ": has pieces for ", spelt, " of 256 bytes");
  require(!trainer.empty(), ExitCode::kBadData, where, ": does not say how it was trained; is it cut short?");
  check_trainer(trainer, spelt > 0, where);
  return out;
}

namespace {

constexpr uint64_t kModelType = 3, kCharacterModel = 4;  // of a trainer's message

}  // namespace

bool is_unigram(std::string_view bytes) {
  uint64_t type = 1;
  for (Fields f(bytes, ""); f.next();)
    if (f.number() == 2)
      for (Fields trainer(f.bytes(), ""); trainer.next();)
        if (trainer.number() == kModelType) type = trainer.integer();
  return type == 1;
}

std::string characters_model(std::string_view bytes, const std::vector<PieceModel::Piece>& pieces) {
  using Type = PieceModel::Type;
  std::string out;
  std::unordered_set<std::string> names;
  const auto add = [&](const std::string& text, Type type) {
    if (!names.insert(text).second) return;
    std::string piece;
    protobuf::put_bytes(piece, 1, text);
    protobuf::put_integer(piece, 3, static_cast<uint64_t>(type));
    protobuf::put_bytes(out, 1, piece);
  };
  for (const auto& [text, type, score] : pieces)
    if (type == Type::kUnknown || type == Type::kUserDefined || type == Type::kByte) add(text, type);
  for (const auto& [text, type, score] : pieces) {
    if (type != Type::kNormal && type != Type::kUserDefined) continue;
    Utf8Reader reader;
    for (char byte : text)
      if (reader.next(static_cast<uint8_t>(byte)) == Utf8Reader::Result::kCodePoint)
        add(to_utf8(reader.code_point()), Type::kNormal);
  }
  for (Fields f(bytes, ""); f.next();)
    if (f.number() == 2 || f.number() == 3) protobuf::put_bytes(out, f.number(), f.bytes());
  // A message that is there twice is one, and the last value counts.
  std::string trainer;
  protobuf::put_integer(trainer, kModelType, kCharacterModel);
  protobuf::put_bytes(out, 2, trainer);
  return out;
}

std::shared_ptr<const PieceModel> PieceModel::read(const std::string& path) {
  return parse(InputFile(path).text(kLargestTokenizer), path);
}

std::string PieceModel::text_of(int32_t id) const {
  const Piece& piece = pieces_[static_cast<size_t>(id)];
  if (piece.type == Type::kControl) return "";
  if (piece.type == Type::kByte) return {static_cast<char>(std::stoi(piece.text.substr(3, 2), nullptr, 16))};
  if (piece.type == Type::kUnknown) return " \xE2\x81\x87 ";  // as the library shows it
  std::string out;
  for (size_t at = 0; at < piece.text.size();) {
    const bool space = std::string_view(piece.text).substr(at).starts_with(kSpace);
    out += space ? ' ' : piece.text[at];
    at += space ? kSpace.size() : 1;
  }
  return out;
}

int32_t PieceModel::special(std::string_view text) const {
  for (size_t i = 0; i < pieces_.size(); ++i)
    if (pieces_[i].text == text && (pieces_[i].type == Type::kControl || pieces_[i].type == Type::kUserDefined))
      return static_cast<int32_t>(i);
  return -1;
}

std::pair<size_t, int32_t> PieceModel::find_control(std::string_view text) const {
  std::pair<size_t, int32_t> out{text.size(), -1};
  for (size_t i = 0; i < pieces_.size(); ++i) {
    if (pieces_[i].type != Type::kControl) continue;
    const size_t at = text.find(pieces_[i].text);
    const bool longer = out.second >= 0 && pieces_[i].text.size() > piece(out.second).text.size();
    if (at < out.first || (at == out.first && longer)) out = {at, static_cast<int32_t>(i)};
  }
  return out;
}

}  // namespace lockstep
