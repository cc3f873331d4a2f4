// WordPiece: the ids that the package `tokenizers` gives (tests/data/tokenizer/make_word_pieces.py); records between
// [CLS] and [SEP]; tokens hidden by the tokenizer's own [MASK]; what is wrong with a tokenizer's file is named.
#include "data/text/tokenizer/word_pieces.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <random>
#include <set>
#include <span>

#include "core/base/error.h"
#include "data/import/import.h"
#include "data/samples/dataset_file.h"
#include "data/samples/text/labelled_text.h"
#include "data/samples/text/packed_dataset.h"
#include "data/samples/text/token_dataset.h"
#include "data/text/record_encoder.h"
#include "data/text/tokenizer/normalizer.h"
#include "data/text/tokenizer/word_piece_file.h"
#include "tests/support/files.h"

namespace lockstep::word_pieces_test {
namespace {

using namespace test;
using Ids = std::vector<int32_t>;

std::string golden(const std::string& name) { return str(LOCKSTEP_TOKENIZER_GOLDEN, "/", name); }

std::string put(const std::string& path, const std::string& text) {
  write_file(path, text);
  return path;
}

class WordPiecesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!can_normalise()) GTEST_SKIP() << "this build lacks libutf8proc-dev";
    json_ = content(golden("word_pieces.json"));
    text_ = content(golden("word_pieces.txt"));
  }
  std::shared_ptr<const WordPieces> read(const std::string& json) const {
    return parse_word_piece_json(json, "t.json");
  }
  std::string with(const std::string& from, const std::string& to) const {
    std::string out = json_;
    const size_t at = out.find(from);
    EXPECT_NE(at, out.npos) << from;
    return out.replace(at, from.size(), to);
  }
  static Ids ids_of(const WordPieces& words, const std::string& text, bool special = false) {
    Ids out;
    for (const WordPieces::Token& token : words.encode(text, special)) out.push_back(token.id);
    return out;
  }
  Vocabulary vocabulary() const { return Vocabulary::word_pieces(read(json_)); }

  std::string json_, text_;
  TemporaryFolder folder_;
};

struct Rules {
  BertRules rules;
  size_t special, plain;  // ids of the text, with its special tokens or without
  uint64_t special_hash, plain_hash;
};

TEST_F(WordPiecesTest, EncodesAsThePackageDoes) {
  const Rules all[] = {{{true, true, true, true}, 3240, 3251, 0x1ecfb5976f15409f, 0x21643e6e547f8af8},
                       {{true, true, false, false}, 2721, 2727, 0xa0ab060e32dacaf0, 0xe475ee2ddbabe7fc},
                       {{false, false, false, true}, 2235, 2246, 0xe1922d0690850215, 0x5346e4804aa3b88a},
                       {{false, true, true, false}, 2919, 2925, 0x6d2c73bbab05dd70, 0x6528f62d81673648}};
  for (const Rules& r : all) {
    WordPieceTables tables = read(json_)->tables();
    tables.rules = r.rules;
    const WordPieces words(tables, "t");
    for (const bool special : {true, false}) {
      const Ids ids = ids_of(words, text_, special);
      uint64_t hash = 0;
      for (int32_t id : ids) hash = hash * 1000003 + static_cast<uint64_t>(id) + 1;
      EXPECT_EQ(ids.size(), special ? r.special : r.plain);
      EXPECT_EQ(hash, special ? r.special_hash : r.plain_hash);
    }
  }
}

TEST_F(WordPiecesTest, AddedTokensAreFoundInTheNormalisedText) {
  const auto words = read(with(R"("added_tokens":[)", R"("added_tokens":[{"id":600,"content":"Extra Token",)"
                                                      R"("special":false,"normalized":true},)"));
  EXPECT_EQ(words->size(), 601);
  EXPECT_TRUE(words->needs_whole_text());
  const Ids expected{41, 294, 45, 491, 304, 255, 506, 357, 258, 294, 16, 600, 41, 446, 600};
  EXPECT_EQ(ids_of(*words, "an \u00c9xtra  token, extra TOKEN and eXtra tokEn"), expected);
  EXPECT_EQ(words->decode(ids_of(*words, "It's the first, isn't it ? No .")), "it ' s the first, isn ' t it? no.");
}

TEST_F(WordPiecesTest, TokensKnowTheirPlaceInTheText) {
  const auto words = read(json_);
  const std::string text = "The \u00c9e\u0301! \u4e00[SEP]";
  std::string seen;
  for (const WordPieces::Token& t : words->encode(text, true)) seen += str("|", text.substr(t.begin, t.end - t.begin));
  EXPECT_EQ(seen, "|The|\u00c9|e|!|\u4e00|[SEP]");
  EXPECT_TRUE(words->encode("").empty());
  EXPECT_TRUE(words->encode(" \n\x01").empty());
}

TEST_F(WordPiecesTest, WritesWhatItReads) {
  const auto words = read(json_);
  EXPECT_TRUE(read(words->json())->tables() == words->tables());
  const Vocabulary v = vocabulary();
  EXPECT_EQ(v.level(), TextLevel::kWords);
  EXPECT_EQ(first_difference(v, *parse_vocabulary(vocabulary_text(&v))), "");
  EXPECT_EQ(v.record_begin()[0], 2);
  EXPECT_EQ(v.record_end()[0], 3);
  WordPieceTables cased = words->tables();
  cased.rules.lowercase = false;
  EXPECT_NE(first_difference(WordPieces(cased, "t"), *words).find("normalises"), std::string::npos);
  cased = words->tables();
  std::swap(cased.tokens[10], cased.tokens[11]);
  EXPECT_NE(first_difference(WordPieces(cased, "t"), *words).find("token 10 is "), std::string::npos);
}

TEST_F(WordPiecesTest, AVocabTxtIsTheSame) {
  const auto words = read(json_);
  std::string list;
  for (const std::string& token : words->tables().tokens) list += token + "\r\n";
  const std::string path = put(folder_ / "vocab.txt", list);
  EXPECT_EQ(first_difference(vocabulary_of_tokenizer(path), vocabulary()), "");
  EXPECT_TRUE(has_tokenizer(folder_ / ""));
  put(folder_ / "tokenizer_config.json", R"({"do_lower_case": false, "tokenize_chinese_chars": false})");
  const Vocabulary cased = vocabulary_of_tokenizer(folder_ / "");
  EXPECT_TRUE((cased.words()->tables().rules == BertRules{true, false, false, false}));
  put(folder_ / "tokenizer.json", json_);
  EXPECT_EQ(first_difference(vocabulary_of_tokenizer(folder_ / ""), vocabulary()), "") << "which comes first";
  const auto refused = [&](const std::string& text, const std::string& what) {
    expect_error(ExitCode::kBadData, {"v.txt", what}, [&] { parse_vocab_txt(text, "", "v.txt"); });
  };
  refused("[UNK]\n\nb\n", ":2: is empty");
  refused("[UNK]\na\na\n", "token 2, 'a', is there twice");
  refused("a\nb\n", "unknown token, '[UNK]', is not in its vocabulary");
  refused("[UNK]\n\xff\n", "byte 6 is not valid UTF-8");
  expect_error(ExitCode::kBadData, {"tokenizer_config.json"}, [&] { parse_vocab_txt("[UNK]\n", "[]", "v.txt"); });
}

TEST_F(WordPiecesTest, WhatIsNotSupportedIsNamed) {
  const auto refused = [&](const std::string& from, const std::string& to, const std::string& what) {
    expect_error(ExitCode::kBadData, {"t.json", what}, [&] { read(with(from, to)); });
  };
  refused("\"BertPreTokenizer\"", "\"Whitespace\"", "pre-tokenizer 'Whitespace'");
  refused("\"BertNormalizer\"", "\"NFKC\"", "normalizer 'NFKC'");
  refused("\"BertProcessing\"", "\"XlnetProcessing\"", "post-processor 'XlnetProcessing'");
  refused("\"single_word\":false", "\"single_word\":true", "single_word");
  refused("\"[UNK]\":1", "\"[UNX]\":1", "the added token '[UNK]' has the id 1, and the vocabulary says otherwise");
  refused("\"max_input_chars_per_word\":100", "\"max_input_chars_per_word\":0", "max_input_chars_per_word: 0");
  refused("[\"[SEP]\",3]", "[\"[SEP]\",9]", "puts token 9 around a text");
  refused("[\"[SEP]\",3]", "[\"[SEP]\",700]", "an id that is none");
  expect_error(ExitCode::kBadData, {"\"truncation\""}, [&] {
    parse_word_piece_json(with("\"truncation\":null", "\"truncation\":{}"), "t.json", LengthRules::kRefuse);
  });
  EXPECT_EQ(read(with("\"truncation\":null", "\"truncation\":{}"))->size(), 600);
}

TEST_F(WordPiecesTest, ALongTextHasTheIdsOfTheWhole) {
  std::string text;
  while (text.size() < (3u << 20)) text += text_ + "\n";
  ImportOptions options;
  options.vocabulary = std::make_shared<Vocabulary>(vocabulary());
  options.separator = "[SEP]";
  const std::string out = folder_ / "t.h5";
  import_text(std::vector<std::string>{put(folder_ / "t.txt", text)}, out, TextLevel::kWords, options);
  const FileTokens source(open_dataset_file(out, 64 << 20));
  Ids expected = ids_of(*read(json_), text), stored(static_cast<size_t>(source.size()));
  expected.push_back(3);
  source.read({0, source.size()}, stored.data());
  EXPECT_TRUE(stored == expected);
  EXPECT_EQ(first_difference(*source.vocabulary(), *options.vocabulary), "");
}

// Beside the definition: of all tokens that the text begins with the longest one.
TEST(LongestToken, IsTheLongestThatTheTextBeginsWith) {
  std::mt19937 random(7);
  const auto word = [&](size_t most) {
    std::string out(1 + random() % most, 'a');
    for (char& c : out) c = "ab\xC3\xA9"[random() % 4];
    return out;
  };
  for (int trial = 0; trial < 50; ++trial) {
    std::set<std::string> texts;
    while (texts.size() < 40) texts.insert(word(6));
    std::vector<LongestToken::Token> tokens;
    for (const std::string& t : texts) tokens.push_back({t, static_cast<int32_t>(tokens.size())});
    std::shuffle(tokens.begin(), tokens.end(), random);
    const LongestToken longest(tokens);
    EXPECT_EQ(longest.repeated(), nullptr);
    for (int i = 0; i < 200; ++i) {
      const std::string text = word(10);
      std::string expected;
      for (const std::string& t : texts)
        if (text.starts_with(t) && t.size() > expected.size()) expected = t;
      const auto* found = longest.of(text);
      EXPECT_EQ(found ? std::string(found->text) : "", expected) << text;
    }
  }
  const LongestToken twice(std::vector<LongestToken::Token>{{"b", 3}, {"a", 2}, {"b", 1}});
  EXPECT_EQ(twice.repeated()->id, 3);
  EXPECT_EQ(LongestToken().of("a"), nullptr);
}

// A million characters, and long tokens that nearly fit at each of them: minutes where each length is tried.
TEST_F(WordPiecesTest, LongWordsAndTokensTakeNoLongerThanTheirBytes) {
  const std::string nearly(1999, 'a');
  const auto words = read(
      str(R"({"version":"1.0","truncation":null,"padding":null,"added_tokens":[],"normalizer":{"type":)",
          R"("BertNormalizer","clean_text":true,"handle_chinese_chars":true,"strip_accents":null,"lowercase":true},)",
          R"("pre_tokenizer":{"type":"BertPreTokenizer"},"post_processor":null,"decoder":{"type":"WordPiece",)",
          R"("prefix":"##","cleanup":true},"model":{"type":"WordPiece","unk_token":"[UNK]",)",
          R"("continuing_subword_prefix":"##","max_input_chars_per_word":1000000,"vocab":{"[UNK]":0,"a":1,"##a":2,)",
          "\"##", nearly, "b\":3}}}"));
  Ids expected(1000000, 2);
  expected[0] = 1;
  expected.resize(expected.size() - 2000), expected.push_back(3);
  EXPECT_TRUE(ids_of(*words, str(std::string(999999, 'a'), "b")) == expected);
}

class WordPieceRecords : public WordPiecesTest {
 protected:
  std::shared_ptr<const DatasetFile> import(const std::string& lines, const JsonFields& fields) {
    ImportOptions options{.force = true};
    options.vocabulary = std::make_shared<Vocabulary>(vocabulary());
    import_json(std::vector<std::string>{put(folder_ / "r.jsonl", lines)}, folder_ / "r.h5", fields, 0, options);
    return open_dataset_file(folder_ / "r.h5", 64 << 20);
  }
  static Ids all_of(const TokenSource& source) {
    Ids ids(static_cast<size_t>(source.size()));
    source.read({0, source.size()}, ids.data());
    return ids;
  }
};

TEST_F(WordPieceRecords, BeginWithClsAndEndWithSep) {
  const auto words = read(json_);
  const FileTokens source(import("{\"t\": \"the first\"}\n{\"t\": \"[SEP]\"}\n", {.text = "t"}));
  Ids expected{2};
  for (const char* text : {"the first", "[SEP]"}) {
    const Ids own = ids_of(*words, text);
    EXPECT_EQ(std::count(own.begin(), own.end(), 3), 0) << "a special token in a text is text";
    expected.insert(expected.end(), own.begin(), own.end());
    expected.push_back(3);
    expected.push_back(2);
  }
  expected.pop_back();
  EXPECT_EQ(all_of(source), expected);
  EXPECT_FALSE(source.has_targets()) << "all are";
  EXPECT_EQ(source.records(), 2);
  const FileTokens answers(import("{\"p\": \"the first\", \"c\": \"first\"}\n", {.prompt = "p", .completion = "c"}));
  std::vector<uint8_t> marks(static_cast<size_t>(answers.size()));
  answers.read_targets({0, answers.size()}, marks.data());
  EXPECT_EQ(marks.front(), 1);
  EXPECT_EQ(marks[1], 0);
  EXPECT_EQ(marks.back(), 1);
}

TEST_F(WordPieceRecords, ThatAreCutEndWithSep) {
  const auto file = import("{\"t\": \"the first the first the first\", \"l\": 0}\n{\"t\": \"the\", \"l\": 1}\n",
                           {.text = "t", .label = "l"});
  const LabelledText samples(file, {0, 2}, 4);
  Ids ids(4), documents(4), positions(4);
  int32_t label = -1;
  void* const sample[] = {ids.data(), &label, documents.data(), positions.data()};
  const Ids first = ids_of(*read(json_), "the first");
  samples.read(0, 0, {samples.spec().tensors, sample});
  EXPECT_EQ(ids, (Ids{2, first[0], first[1], 3}));
  samples.read(0, 1, {samples.spec().tensors, sample});
  EXPECT_EQ(ids, (Ids{2, first[0], 3, 0}));
}

// Of ten hidden tokens eight are [MASK]; special tokens are never hidden; there are no more ids than tokens.
TEST_F(WordPieceRecords, AreHiddenByTheirOwnMask) {
  std::string lines;
  for (int i = 0; i < 200; ++i) lines += "{\"t\": \"the first the first the first\"}\n";
  const auto source = std::make_shared<FileTokens>(import(lines, {.text = "t"}));
  const PackedDataset padded(source, {0, 200}, {.context = 16, .pad = true, .seed = 1, .mask = 0.5});
  const TokenDataset windows(source, {0, source->size()}, {.context = 16, .seed = 1, .mask = 0.5});
  for (const Dataset* data : {static_cast<const Dataset*>(&padded), static_cast<const Dataset*>(&windows)}) {
    EXPECT_EQ(data->spec().classes, 600);
    int64_t hidden = 0, masks = 0, tokens = 0;
    for (int64_t i = 0; i < data->size(); ++i) {
      Ids ids(16), targets(16), documents(16), positions(16);
      void* const sample[] = {ids.data(), targets.data(), documents.data(), positions.data()};
      data->read(0, i, {data->spec().tensors, std::span(sample).first(data->spec().tensors.size())});
      for (size_t k = 0; k < 16; ++k) {
        EXPECT_LT(ids[k], 600);
        EXPECT_TRUE(targets[k] == kIgnoreIndex || targets[k] > 4) << "special token " << targets[k] << " is hidden";
        tokens += ids[k] > 4 || targets[k] != kIgnoreIndex;
        hidden += targets[k] != kIgnoreIndex;
        masks += targets[k] != kIgnoreIndex && ids[k] == 4;
      }
    }
    EXPECT_NEAR(static_cast<double>(hidden) / static_cast<double>(tokens), 0.5, 0.05);
    EXPECT_NEAR(static_cast<double>(masks) / static_cast<double>(hidden), 0.8, 0.08);
  }
}

}  // namespace
}  // namespace lockstep::word_pieces_test
