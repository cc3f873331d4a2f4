// SentencePiece models: ids and texts of the package `sentencepiece` (tests/data/sentencepiece/make_golden.py); records
// with targets; what is wrong with a model is named before the library sees it.
#include "data/text/tokenizer/pieces.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/base/error.h"
#include "core/io/json.h"
#include "data/text/record_encoder.h"
#include "data/text/tokenizer/tokenizer_file.h"
#include "tests/support/files.h"

namespace lockstep::pieces_test {
namespace {

using namespace test;

std::string golden(const std::string& name) { return str(LOCKSTEP_PIECES_GOLDEN, "/", name); }

std::string bytes_of(const std::string& name) {
  std::ifstream in(golden(name), std::ios::binary);
  std::stringstream out;
  out << in.rdbuf();
  return out.str();
}

bool can_read_models() {
  try {
    PieceModel::read(golden("bpe.model"));
    return true;
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::kConfig) << e.what();
    EXPECT_NE(std::string(e.what()).find("libsentencepiece-dev"), std::string::npos);
    return false;
  }
}

std::string words_of(const std::vector<int32_t>& ids) {
  std::string out;
  for (int32_t id : ids) out += str(out.empty() ? "" : " ", id);
  return out;
}

TEST(Pieces, AreThoseOfSentencePiece) {
  if (!can_read_models()) GTEST_SKIP() << "a build without SentencePiece";
  for (const std::string model : {"unigram", "bpe"}) {
    const Vocabulary vocabulary = Vocabulary::pieces(PieceModel::read(golden(model + ".model")));
    EXPECT_EQ(first_difference(vocabulary, *parse_vocabulary(vocabulary_text(&vocabulary))), "");
    std::ifstream lines(golden("golden.jsonl"));
    int count = 0;
    for (std::string line; std::getline(lines, line); ++count) {
      const auto object = parse_json_object(line);
      ASSERT_TRUE(object);
      const auto field = [&](const std::string& name) { return std::get<std::string>(*find_member(*object, name)); };
      const auto ids = vocabulary.encode(field("text"));
      EXPECT_EQ(words_of(ids), field(model)) << model << ": " << field("text");
      EXPECT_EQ(vocabulary.decode_text(ids), field(model + "_text")) << model << ": " << field("text");
    }
    EXPECT_EQ(count, 14);
  }
}

// tests/data/sentencepiece/make_ties.py
TEST(Pieces, OfEqualCutsAreThoseOfTheCurrentPackageWhicheverTheBuildHas) {
  if (!can_read_models()) GTEST_SKIP() << "a build without SentencePiece";
  const auto model = PieceModel::read(golden("ties.model"));
  const Vocabulary vocabulary = Vocabulary::pieces(model);
  std::ifstream lines(golden("ties.jsonl"));
  int count = 0, wrong = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    const auto object = parse_json_object(line);
    ASSERT_TRUE(object);
    std::string text;
    for (int64_t i = 0; i < integer_of(*object, "repeat", 1); ++i) text += text_of(*object, "text");
    const auto tokens = model->encode(text);
    uint64_t hash = 0;
    for (const PieceModel::Token& token : tokens) hash = hash * 1000003 + static_cast<uint64_t>(token.id) + 1;
    char digits[17];
    std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(hash));
    if (find_member(*object, "hash")) EXPECT_EQ(digits, text_of(*object, "hash")) << "of a long text";
    else wrong += words_of(vocabulary.encode(text)) != text_of(*object, "ids");
    size_t byte = 0;
    for (const PieceModel::Token& token : tokens) {
      EXPECT_EQ(token.begin, byte) << text;
      byte = token.end;
    }
    EXPECT_EQ(byte, text.size()) << "all of the text has tokens";
  }
  EXPECT_EQ(count, 201);
  EXPECT_EQ(wrong, 0);
}

TEST(Pieces, OfATextFollowEachOtherWithTheirSpaces) {
  if (!can_read_models()) GTEST_SKIP() << "a build without SentencePiece";
  const Vocabulary vocabulary = Vocabulary::pieces(PieceModel::read(golden("bpe.model")));
  const std::string text = "The dog \xF0\x9F\x98\x80 reads";
  std::string joined;
  for (int32_t id : vocabulary.encode(text)) joined += vocabulary.decode({id});
  EXPECT_EQ(joined, " " + text);
}

TEST(Pieces, OfControlAreTextUnlessAskedFor) {
  if (!can_read_models()) GTEST_SKIP() << "a build without SentencePiece";
  const Vocabulary vocabulary = Vocabulary::pieces(PieceModel::read(golden("bpe.model")));
  const std::string text = "<s>The dog</s></s> reads";
  std::vector<int32_t> expected{vocabulary.special("<s>")};
  const auto add = [&](const std::vector<int32_t>& ids) { expected.insert(expected.end(), ids.begin(), ids.end()); };
  add(vocabulary.encode("The dog"));
  add({vocabulary.special("</s>"), vocabulary.special("</s>")});
  add(vocabulary.encode(" reads"));
  EXPECT_EQ(vocabulary.encode(text, true), expected);
  const std::vector<int32_t> as_text = vocabulary.encode(text);
  EXPECT_EQ(std::count(as_text.begin(), as_text.end(), expected[0]), 0);
}

TEST(Pieces, OfARecordAreTargetsWhereItsBytesAre) {
  if (!can_read_models()) GTEST_SKIP() << "a build without SentencePiece";
  const Vocabulary vocabulary = Vocabulary::pieces(PieceModel::read(golden("bpe.model")));
  RecordEncoder encoder(vocabulary);
  std::vector<int32_t> ids;
  std::vector<uint8_t> targets;
  encoder.need_token("</s>", "the separator");
  expect_error(ExitCode::kUsage, {"<end>"}, [&] { encoder.need_token("<end>", "the separator"); });
  encoder.encode({{"The dog"}, {" \xF0\x9F\x98\x80 reads", true}, {"</s>", true, true}}, ids, targets);
  ASSERT_EQ(ids.size(), targets.size());
  EXPECT_EQ(ids.back(), vocabulary.special("</s>"));
  std::string answer, prompt;
  for (size_t i = 0; i + 1 < ids.size(); ++i) (targets[i] ? answer : prompt) += vocabulary.decode({ids[i]});
  EXPECT_EQ(prompt, " The dog");
  EXPECT_EQ(answer, " \xF0\x9F\x98\x80 reads") << "the bytes of a character have its mark";
  EXPECT_EQ(targets.back(), 1);
}

// The library finds user-defined pieces in every text; where one is a token of a template, such a text is refused.
TEST(Pieces, ThatAreReservedAreRefusedInAText) {
  if (!can_read_models()) GTEST_SKIP() << "a build without SentencePiece";
  const Vocabulary vocabulary = Vocabulary::pieces(PieceModel::read(golden("bpe.model")));
  RecordEncoder encoder(vocabulary, {"<sep>"});
  std::vector<int32_t> ids;
  std::vector<uint8_t> targets;
  encoder.encode({{"The dog <sep"}, {"<sep>", true, true}}, ids, targets);
  EXPECT_EQ(ids.back(), vocabulary.special("<sep>"));
  expect_error(ExitCode::kBadData, {"spells out <sep> in a message"},
               [&] { encoder.encode({{"The dog <sep> reads"}}, ids, targets); });
  ids.clear();
  RecordEncoder(vocabulary).encode({{"The dog <sep> reads"}}, ids, targets);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), vocabulary.special("<sep>")), 1);
}

// A field of bytes, whose length is below 128.
std::string field(int number, const std::string& bytes) {
  return std::string(1, static_cast<char>(number << 3 | 2)) + static_cast<char>(bytes.size()) + bytes;
}
std::string piece(const std::string& text, char type) { return field(1, field(1, text) + "\x18" + type); }

// A tokenizer.json with byte_fallback, as the package writes it of a SentencePiece model.
TEST(Pieces, AreReadBesideATokenizerJsonWithByteFallback) {
  if (!can_read_models()) GTEST_SKIP() << "a build without SentencePiece";
  test::TemporaryFolder folder;
  std::filesystem::copy_file(golden("bpe.model"), folder / "tokenizer.model");
  const auto model = PieceModel::read(golden("bpe.model"));
  std::string vocabulary, first;
  for (int64_t i = 0; i < model->size(); ++i) {
    const std::string text = model->piece(static_cast<int32_t>(i)).text;
    vocabulary += str(i ? "," : "", json_text_of(text), ":", i);
    if (i == 0) first = text;
  }
  const auto write = [&](const std::string& added, const std::string& tokens) {
    test::write_file(folder / "tokenizer.json",
                     str(R"({"added_tokens":[)", added, R"(],"normalizer":{"type":"Sequence","normalizers":[]},)",
                         R"("model":{"type":"BPE","byte_fallback":true,"merges":[],"vocab":{)", tokens, "}}}"));
  };
  write(str(R"({"id":0,"content":)", json_text_of(first), "}"), vocabulary);
  const Vocabulary read = vocabulary_of_tokenizer(folder / "");
  ASSERT_TRUE(read.pieces());
  EXPECT_EQ(read.pieces()->bytes(), model->bytes());
  EXPECT_TRUE(vocabulary_of_tokenizer(folder / "tokenizer.json").pieces());
  const auto refused = [&](std::initializer_list<std::string> parts) {
    test::expect_error(ExitCode::kBadData, parts, [&] { vocabulary_of_tokenizer(folder / ""); });
  };
  write(str(R"({"id":)", model->size(), R"(,"content":"<|im_start|>"})"), vocabulary);
  refused({"added token '<|im_start|>' is not in tokenizer.model"});
  write("", str("\"other\":0,", vocabulary.substr(vocabulary.find(',') + 1)));
  refused({"token 'other' is not the same in tokenizer.model"});
  std::filesystem::remove(folder / "tokenizer.model");
  refused({"byte_fallback", "put tokenizer.model beside it"});
}

TEST(Pieces, OfDamagedModelsAreRefused) {
  const std::string unknown = piece("<unk>", 2), trainer = field(2, "\x18\x01");
  EXPECT_EQ(checked_pieces(unknown + piece("a", 1) + trainer, "m").size(), 2u);
  const auto refused = [](const std::string& bytes, const std::string& what) {
    expect_error(ExitCode::kBadData, {"m: ", what}, [&] { checked_pieces(bytes, "m"); });
  };
  refused("", "0 bytes");
  refused("no model", "is no model of SentencePiece");
  refused(unknown.substr(0, unknown.size() - 1), "is no model of SentencePiece");
  refused(piece("a", 1) + trainer, "0 unknown pieces");
  refused(unknown + piece("<unk2>", 2) + trainer, "2 unknown pieces");
  refused(unknown + piece("a", 1) + piece("a", 4) + trainer, "'a' is there twice");
  refused(unknown + piece("", 1) + trainer, "no text of 1 to");
  refused(unknown + piece("\xFF", 1) + trainer, "in UTF-8");
  refused(unknown + piece("a", 9) + trainer, "unknown type 9");
  refused(unknown + piece("<0x00>", 6) + trainer, "1 of 256 bytes");
  refused(unknown + piece("<0x01>", 6) + trainer, "not that of byte 0");
  refused(unknown + field(2, "\x18\x09"), "kind of model, 9");
  const std::string leads_out = std::string("\4\0\0\0", 4) + std::string("\0\4\0\0", 4) + std::string("x\0", 2);
  refused(unknown + field(3, field(2, leads_out)) + trainer, "leads outside");
  refused(unknown + field(3, field(2, "abc")) + trainer, "leads outside");
  const std::string whole = bytes_of("unigram.model");
  EXPECT_NO_THROW(checked_pieces(whole, "m")) << "a table that trains made";
  for (size_t cut = 1; cut < whole.size(); cut += 97)
    EXPECT_THROW(checked_pieces(std::string_view(whole).substr(0, cut), "m"), Error) << cut;
}

}  // namespace
}  // namespace lockstep::pieces_test
