// Byte-level BPE: the ids that the package `tokenizers` gives (tests/data/tokenizer/make_golden.py), however a text is
// cut; training; what is wrong with a tokenizer's file is named.
#include "data/text/tokenizer/tokenizer_file.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <map>
#include <ostream>
#include <random>

#include "core/base/error.h"
#include "data/import/import.h"
#include "data/samples/dataset_file.h"
#include "data/samples/text/token_dataset.h"
#include "data/text/record_encoder.h"
#include "data/text/tokenizer/normalizer.h"
#include "data/text/tokenizer/train_bpe.h"
#include "tests/support/files.h"
#include "tests/support/time_bound.h"

namespace lockstep::tokenizer_test {
namespace {

using namespace test;
using Ids = std::vector<int32_t>;

std::string golden(const std::string& name) { return str(LOCKSTEP_TOKENIZER_GOLDEN, "/", name); }

// What make_golden.py prints of a text's ids.
struct Golden {
  size_t count = 0;
  uint64_t hash = 0;
  friend bool operator==(const Golden&, const Golden&) = default;
  friend std::ostream& operator<<(std::ostream& out, const Golden& g) {
    return out << g.count << " ids, hash 0x" << std::hex << g.hash << std::dec;
  }
};
Golden golden_of(const Ids& ids) {
  Golden g{ids.size()};
  for (int32_t id : ids) g.hash = g.hash * 1000003 + static_cast<uint64_t>(id) + 1;
  return g;
}
const std::map<std::string, Golden> kGolden{{"gpt2", {1393, 0x1b9c005b85941270}},
                                            {"llama3", {1405, 0xbca6b07bba7c28cd}},
                                            {"qwen2", {1443, 0x650b16d81054a48b}},
                                            {"nfc", {1581, 0x4bdb4f2907acd5b2}},
                                            {"gpt2_tables", {1283, 0xe8ab9bf6cd3fcc22}}};

Ids encode(const BytePairs& pairs, const std::string& text, bool special = false) {
  Ids ids;
  BpeEncoder encoder(pairs, special);
  encoder.add(text, ids);
  encoder.finish(ids);
  return ids;
}

std::string decode(const BytePairs& pairs, const Ids& ids) {
  std::string text;
  for (int32_t id : ids) text += pairs.bytes_of(id);
  return text;
}

BpeTables trained(const std::string& file, const std::string& pattern, int64_t vocabulary, int threads = 1) {
  BpeTraining o;
  o.vocabulary = vocabulary;
  o.pattern = pattern;
  o.threads = threads;
  return train_bpe({file}, o);
}

// Of 256 bytes and these merges, in the alphabet of files.
std::string small_json(const std::string& more_tokens, const std::string& merges, const std::string& added = "",
                       const std::string& splits = R"({"type":"ByteLevel","add_prefix_space":false})",
                       const std::string& model = "") {
  std::string tokens;
  for (int b = 0; b < 256; ++b) {
    const std::string text = to_alphabet(std::string(1, static_cast<char>(b)));
    tokens += str(b > 0 ? "," : "", "\"", text == "\"" || text == "\\" ? "\\" : "", text, "\":", b);
  }
  return str(R"({"added_tokens":[)", added, R"(],"normalizer":null,"pre_tokenizer":)", splits,
             R"(,"decoder":{"type":"ByteLevel"},"model":{"type":"BPE",)", model, R"("vocab":{)", tokens, more_tokens,
             R"(},"merges":[)", merges, "]}}");
}

TEST(TokenizerTest, TrainsAndEncodesAsThePackageDoes) {
  const std::string text = content(golden("text.txt"));
  for (const std::string pattern : {"gpt2", "llama3", "qwen2"}) {
    const BytePairs pairs(trained(golden("text.txt"), pattern, 450), pattern);
    EXPECT_EQ(pairs.size(), 450);
    EXPECT_EQ(pairs.bytes_of(449), "<|endoftext|>");
    const Ids ids = encode(pairs, text);
    EXPECT_EQ(golden_of(ids), kGolden.at(pattern)) << pattern;
    EXPECT_EQ(decode(pairs, ids), text);
  }
}

TEST(TokenizerTest, TextIsBroughtIntoNormalFormC) {
  if (!can_normalise()) GTEST_SKIP() << "this build lacks libutf8proc-dev";
  BpeTables tables = trained(golden("text.txt"), "qwen2", 450);
  tables.nfc = true;
  const BytePairs made(tables, "qwen2");
  const auto read = parse_tokenizer_json(tokenizer_json(made.tables()), "its own text");
  EXPECT_TRUE(read->tables().nfc);
  const std::string text = content(golden("decomposed.txt"));
  const Ids whole = encode(*read, text);
  EXPECT_EQ(golden_of(whole), kGolden.at("nfc"));
  EXPECT_EQ(decode(*read, whole), nfc(text));
  EXPECT_NE(nfc(text), text);
  for (size_t step : {1, 2, 5, 64}) {
    BpeEncoder encoder(*read);
    ValidText valid(InvalidBytes::kRefuse, "text", "");
    Ids ids;
    for (size_t at = 0; at < text.size(); at += step) {
      std::string piece;
      valid.add(std::string_view(text).substr(at, step), piece);
      encoder.add(piece, ids);
    }
    encoder.finish(ids);
    EXPECT_EQ(ids, whole) << "in pieces of " << step;
  }
  EXPECT_EQ(nfc(">\u0338 A\u030a \u1100\u1161\u11a8"), "\u226f \u00c5 \uac01");
  // A token that holds a byte of a target is one, though its bytes are others now.
  const Vocabulary vocabulary = Vocabulary::byte_pairs(read);
  RecordEncoder encoder(vocabulary);
  Ids ids;
  std::vector<uint8_t> targets;
  encoder.encode({{"x e\u0301", false}, {" e\u0301", true}}, ids, targets);
  EXPECT_EQ(decode(*read, ids), "x \u00e9 \u00e9");
  ASSERT_EQ(targets.size(), ids.size());
  EXPECT_EQ(targets.front(), 0);
  EXPECT_EQ(targets.back(), 1);
}

TEST(TokenizerTest, Gpt2sTablesGiveGpt2sIds) {
  const char* folder = std::getenv("LOCKSTEP_GPT2_BPE");
  if (!folder) GTEST_SKIP() << "LOCKSTEP_GPT2_BPE names no folder with encoder.json and vocab.bpe";
  const auto pairs = read_tokenizer(folder);
  EXPECT_EQ(pairs->size(), 50257);
  EXPECT_EQ(golden_of(encode(*pairs, content(golden("text.txt")))), kGolden.at("gpt2_tables"));
  EXPECT_EQ(encode(*pairs, "Hello, world!"), (Ids{15496, 11, 995, 0}));
  EXPECT_EQ(encode(*pairs, "a<|endoftext|>", true), (Ids{64, 50256}));
}

TEST(TokenizerTest, PiecesOfATextGiveItsIds) {
  const std::string text = content(golden("text.txt"));
  for (const std::string pattern : {"gpt2", "llama3", "qwen2"}) {
    const BytePairs pairs(trained(golden("text.txt"), pattern, 450), pattern);
    for (const bool special : {false, true}) {
      const Ids whole = encode(pairs, text, special);
      EXPECT_EQ(std::count(whole.begin(), whole.end(), 449), special ? 1 : 0);
      for (size_t step : {1, 2, 3, 7, 64, 1000}) {
        BpeEncoder encoder(pairs, special);
        ValidText valid(InvalidBytes::kRefuse, "text", "");
        Ids ids;
        for (size_t at = 0; at < text.size(); at += step) {
          std::string piece;
          valid.add(std::string_view(text).substr(at, step), piece);
          encoder.add(piece, ids);
        }
        encoder.finish(ids);
        EXPECT_EQ(ids, whole) << pattern << " in pieces of " << step;
      }
    }
  }
}

// Long words go another way than short ones: a heap of pairs.
TEST(TokenizerTest, LongWordsAreMergedInTheSameOrder) {
  const BytePairs pairs(trained(golden("text.txt"), "gpt2", 450), "text");
  std::mt19937 random(3);
  for (int i = 0; i < 200; ++i) {
    std::string word;
    while (word.size() < 200) word += "aaabtheo="[random() % 9];
    // The definition: the pair that comes first in the list of merges, and of several the leftmost.
    Ids expected;
    for (char c : word) expected.push_back(encode(pairs, std::string(1, c))[0]);
    for (const auto& [left, right] : pairs.tables().merges)
      for (size_t at = 0; at + 1 < expected.size(); ++at)
        if (expected[at] == left && expected[at + 1] == right) {
          const Ids whole = encode(pairs, pairs.bytes_of(left) + pairs.bytes_of(right));
          ASSERT_EQ(whole.size(), 1u);
          expected[at] = whole[0];
          expected.erase(expected.begin() + static_cast<std::ptrdiff_t>(at) + 1);
        }
    BpeTables tables = pairs.tables();
    tables.patterns.clear();  // the whole text is one word
    EXPECT_EQ(encode(BytePairs(tables, "one word"), word), expected) << word;
  }
}

TEST(TokenizerTest, ThreadsDoNotChangeWhatIsTrained) {
  TemporaryFolder folder;
  std::string text;
  std::mt19937 random(5);
  const std::vector<std::string> parts{"the", "cat", "漢字", "é", "12", "\n", "  ", "'s", "。", "\r\n", "x", "🙂"};
  while (text.size() < (5 << 20)) text += parts[random() % parts.size()] + (random() % 3 ? " " : "");
  write_file(folder / "text", text);
  for (const std::string pattern : {"gpt2", "llama3"}) {
    const BpeTables one = trained(folder / "text", pattern, 400);
    EXPECT_EQ(one.merges.size(), 143u);
    for (int threads : {2, 3}) EXPECT_TRUE(trained(folder / "text", pattern, 400, threads) == one) << threads;
  }
  const BpeTables few = trained(golden("text.txt"), "gpt2", 100000);
  EXPECT_LT(few.tokens.size(), 2000u) << "no pair that occurs once is merged";
  expect_error(ExitCode::kUsage, {"256 tokens; 257"}, [&] { trained(folder / "text", "gpt2", 256); });
  expect_error(ExitCode::kUsage, {"no pattern 'gpt5'"}, [&] { trained(folder / "text", "gpt5", 300); });
}

TEST(TokenizerTest, BothSpellingsOfMergesAndTheWrittenFormAreOne) {
  const std::string tokens = R"(,"ab":256,"abc":257)";
  const auto spaces = parse_tokenizer_json(small_json(tokens, R"("a b","ab c")"), "spaces");
  const auto pairs = parse_tokenizer_json(small_json(tokens, R"(["a","b"],["ab","c"])"), "pairs");
  EXPECT_TRUE(spaces->tables() == pairs->tables());
  EXPECT_EQ(encode(*pairs, "xabcab"), (Ids{'x', 257, 256}));
  for (const std::string pattern : {"gpt2", "llama3"}) {
    const BpeTables tables = trained(golden("text.txt"), pattern, 450);
    const auto again = parse_tokenizer_json(tokenizer_json(tables), "written");
    EXPECT_TRUE(again->tables() == tables) << pattern;
  }
}

TEST(TokenizerTest, AWordThatIsATokenIsNotMergedWhereTheFileSaysSo) {
  const std::string tokens = R"(,"ab":256,"bc":257,"abc":258)", merges = R"("b c","a b","ab c")";
  const std::string byte_level = R"({"type":"ByteLevel","add_prefix_space":false})";
  const auto merged = parse_tokenizer_json(small_json(tokens, merges), "merged");
  const auto ignored =
      parse_tokenizer_json(small_json(tokens, merges, "", byte_level, R"("ignore_merges":true,)"), "ignored");
  EXPECT_EQ(encode(*merged, "abc"), (Ids{'a', 257}));
  EXPECT_EQ(encode(*ignored, "abc"), (Ids{258}));
  EXPECT_EQ(encode(*ignored, "abcc"), (Ids{'a', 257, 'c'}));
}

TEST(TokenizerTest, SpecialTokensAreTextUnlessAskedFor) {
  const auto pairs = parse_tokenizer_json(
      small_json(R"(,"<e>":256)", "",
                 R"({"id":256,"content":"<e>","special":true},{"id":257,"content":"<e>>","special":true},)"
                 R"({"id":258,"content":"<tool>","special":false})"),
      "added");
  EXPECT_EQ(encode(*pairs, "<e><tool>"), (Ids{'<', 'e', '>', 258}));
  EXPECT_EQ(encode(*pairs, "a<e><e>><tool", true), (Ids{'a', 256, 257, '<', 't', 'o', 'o', 'l'}));
  EXPECT_EQ(decode(*pairs, {256, 257, 258}), "<e><e>><tool>");
}

// What RoBERTa's files put around a text, and hide tokens by; what decoders put in front of one is left to others.
TEST(TokenizerTest, AnEncodersTokensStandAroundRecords) {
  const std::string added = R"({"id":256,"content":"<s>","special":true},{"id":257,"content":"</s>","special":true},)"
                            R"({"id":258,"content":"<mask>","special":true,"lstrip":true})";
  const auto with = [&](const std::string& post) {
    return parse_tokenizer_json(str("{\"post_processor\":", post, ",", small_json("", "", added).substr(1)), "t.json");
  };
  const auto pairs = with(R"({"type":"RobertaProcessing","sep":["</s>",257],"cls":["<s>",256],"trim_offsets":true})");
  const auto again = parse_tokenizer_json(pairs->json(), "written");
  EXPECT_TRUE(again->tables() == pairs->tables());
  const Vocabulary v = Vocabulary::byte_pairs(pairs);
  EXPECT_EQ(std::vector<int32_t>(v.record_begin().begin(), v.record_begin().end()), std::vector<int32_t>{256});
  EXPECT_EQ(std::vector<int32_t>(v.record_end().begin(), v.record_end().end()), std::vector<int32_t>{257});
  EXPECT_EQ(v.mask(), 258);
  EXPECT_TRUE(v.is_never_hidden(256) && v.is_never_hidden(258) && !v.is_never_hidden(255));
  const std::string sequence =
      R"({"type":"Sequence","processors":[{"type":"ByteLevel"},{"type":"TemplateProcessing","single":)"
      R"([{"SpecialToken":{"id":"<s>","type_id":0}},{"Sequence":{"id":"A","type_id":0}},)"
      R"({"SpecialToken":{"id":"</s>","type_id":0}}],"pair":[],"special_tokens":)"
      R"({"<s>":{"id":"<s>","ids":[256]},"</s>":{"id":"</s>","ids":[257]}}}]})";
  EXPECT_TRUE(with(sequence)->tables() == pairs->tables());
  const auto begins =
      with(R"({"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>","type_id":0}},)"
           R"({"Sequence":{"id":"A","type_id":0}}],"special_tokens":{"<s>":{"id":"<s>","ids":[256]}}})");
  EXPECT_TRUE(begins->tables().around.empty());
  EXPECT_EQ(Vocabulary::byte_pairs(begins).mask(), -1);
  EXPECT_EQ(first_difference(*begins, *pairs), "the tokens are the same, but what a text is put between differs");
  expect_error(ExitCode::kBadData, {"t.json", "post-processor with an id that is none"},
               [&] { with(R"({"type":"BertProcessing","sep":["</s>",999],"cls":["<s>",256]})"); });
}

TEST(TokenizerTest, WrongFilesAreNamed) {
  const auto refuse = [](const std::string& json, std::initializer_list<std::string> parts) {
    expect_error(ExitCode::kBadData, parts, [&] { parse_tokenizer_json(json, "t.json"); });
  };
  const auto replaced = [](std::string json, const std::string& what, const std::string& by) {
    const size_t at = json.find(what);
    EXPECT_NE(at, json.npos) << what;
    return json.replace(at, what.size(), by);
  };
  const std::string good = small_json(R"(,"ab":256)", R"("a b")");
  EXPECT_EQ(parse_tokenizer_json(good, "t.json")->size(), 257);
  refuse("", {"t.json", "no JSON object"});
  refuse(std::string(100000, '['), {"no JSON object"});
  refuse(good.substr(0, good.size() - 1), {"no JSON object"});
  refuse(replaced(good, R"("normalizer":null)", R"("normalizer":{"type":"NFKC"})"), {"normalizer (NFKC)"});
  refuse(replaced(good, R"("decoder":{"type":"ByteLevel"})", R"("decoder":{"type":"Metaspace"})"), {"'Metaspace'"});
  refuse(replaced(good, R"("type":"BPE")", R"("type":"Unigram")"), {"'Unigram'", "BPE is supported"});
  refuse(replaced(good, R"("type":"BPE")", R"("type":"BPE","dropout":0.1)"), {"dropout"});
  refuse(replaced(good, R"("type":"BPE")", R"("type":"BPE","byte_fallback":true)"), {"byte_fallback"});
  refuse(replaced(good, R"("type":"BPE")", R"("type":"BPE","end_of_word_suffix":"</w>")"), {"end_of_word_suffix"});
  refuse(replaced(good, R"("ab":256)", R"("ab":257)"), {"has no token 256"});
  refuse(replaced(good, R"("ab":256)", R"("ab":255)"), {"have the same id"});
  refuse(replaced(good, R"("ab":256)", R"("ab":-1)"), {"an id that is none"});
  refuse(replaced(good, R"("ab":256)", R"("ab":99999999)"), {"an id that is none"});
  refuse(replaced(good, R"("ab":256)", R"("a":256)"), {"a token twice"});
  refuse(replaced(good, R"("ab":256)", R"("漢":256)"), {"'漢'", "stands for no byte"});
  refuse(replaced(good, R"("B":66)", R"("xyz":66)"), {"no token for byte 66"});
  refuse(replaced(good, R"("a b")", R"("a cc")"), {"merge 0 is of 'cc'"});
  refuse(replaced(good, R"("a b")", R"("b a")"), {"merge 0 makes 'ba'"});
  refuse(replaced(good, R"("a b")", R"("a b","a b")"), {"merge 1", "twice"});
  refuse(replaced(good, R"("a b")", R"("ab")"), {"merge 0", "not two tokens"});
  refuse(replaced(good, R"("a b")", R"(["a","b","c"])"), {"merge 0", "not two tokens"});
  refuse(replaced(good, R"("a b")", "7"), {"merge 0", "not two tokens"});
  const auto with = [&](const std::string& token) { return small_json("", "", token); };
  refuse(with(R"({"id":300,"content":"<e>"})"), {"'<e>'", "leaves ids without a token"});
  refuse(with(R"({"id":65,"content":"<e>"})"), {"'<e>'", "says otherwise"});
  refuse(with(R"({"id":256,"content":"<e>"},{"id":256,"content":"<f>"})"), {"'<f>'", "256"});
  refuse(with(R"({"id":256,"content":"<e>"},{"id":257,"content":"<e>"})"), {"257", "the same as another"});
  refuse(with(R"({"id":256,"content":"<e>","lstrip":true})"), {"lstrip"});
  refuse(with("3"), {"added token", "no JSON object"});
  const auto split = [&](const std::string& pre) { return small_json("", "", "", pre); };
  const auto regex = [&](const std::string& r) {
    return split(str(R"({"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":")", r,
                     R"("},"behavior":"Isolated","invert":false},{"type":"ByteLevel","add_prefix_space":false,)",
                     R"("use_regex":false}]})"));
  };
  refuse(split(R"({"type":"Metaspace"})"), {"'Metaspace'"});
  const std::string spaced = R"({"type":"ByteLevel","add_prefix_space":true})";
  refuse(split(str(R"({"type":"Sequence","pretokenizers":[{"type":"Digits"},)", spaced, "]}")),
         {"add_prefix_space behind other splits"});
  refuse(small_json("", "", R"({"id":256,"content":"<e>"})", spaced), {"add_prefix_space beside added tokens"});
  refuse(replaced(good, R"("normalizer":null)", R"("normalizer":{"type":"Sequence","normalizers":[{},{}]})"),
         {"a Sequence of 2 normalizers"});
  refuse(split(R"({"type":"Sequence","pretokenizers":[]})"), {"no ByteLevel"});
  refuse(split(R"({"type":"Split","pattern":{"String":" "},"behavior":"Isolated"})"), {"no ByteLevel"});
  refuse(split(R"({"type":"Split","pattern":{},"behavior":"Isolated"})"), {"\"Regex\" or \"String\""});
  refuse(split(R"({"type":"Split","pattern":{"Regex":" "},"behavior":"Removed"})"), {"'Removed'"});
  for (const std::string bad : {"(?<=a)b", "a*", "^a", "a$", "\\\\bx", "(a)\\\\1", "[a&&b]", "[[:alpha:]]", "a{1,2}+",
                                "(*ACCEPT)", "\\\\p{NoSuchClass}x", "(", "[\\\\Sa]", "(?P<n>a)", "\\\\K", "a\\\\"})
    refuse(regex(bad), {"the pattern '"});
  EXPECT_EQ(parse_tokenizer_json(regex("\\\\p{L}+|[^\\\\s\\\\p{L}]|\\\\s+"), "t")->size(), 256);
}

// The splits of make_golden.py, on a text of many scripts.
TEST(TokenizerTest, SplitsAsThePackageDoes) {
  if (!can_normalise()) GTEST_SKIP() << "this build lacks libutf8proc-dev";
  const std::string text =
      content(golden("word_pieces.txt")) + " 12345 a1b\u00bd22\u0663 x\u2460 <end> \n<|endoftext|>  y";
  BpeTables tables = trained(golden("text.txt"), "gpt2", 450);
  tables.added[0].lstrip = tables.added[0].rstrip = true;
  const std::string json = tokenizer_json(tables);
  const auto encoded = [&](const std::string& first, const std::string& level) {
    std::string out = json;
    const size_t at = out.find("{\"type\":\"ByteLevel\""), end = out.find('}', at) + 1;
    out.replace(at, end - at,
                first.empty() ? level : str(R"({"type":"Sequence","pretokenizers":[)", first, ",", level, "]}"));
    const auto pairs = parse_tokenizer_json(out, first);
    EXPECT_TRUE(parse_tokenizer_json(pairs->json(), "written")->tables() == pairs->tables()) << first;
    return golden_of(Vocabulary::byte_pairs(pairs).encode(text, true));
  };
  const std::string plain = R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":false})";
  EXPECT_EQ(encoded(R"({"type":"Digits","individual_digits":true})", plain), (Golden{11138, 0x64995c047625de97}));
  EXPECT_EQ(encoded(R"({"type":"Digits","individual_digits":false})", plain), (Golden{10965, 0xf4a53960481e1c0f}));
  EXPECT_EQ(encoded(R"({"type":"Punctuation","behavior":"Isolated"})", plain), (Golden{11130, 0xab0fe5d9cb5899d1}));
  EXPECT_EQ(encoded(R"({"type":"Punctuation","behavior":"Contiguous"})", plain), (Golden{10983, 0x2b209ab1050c3502}));
  EXPECT_EQ(encoded(R"({"type":"Split","pattern":{"String":"e."},"behavior":"Isolated","invert":false})", plain),
            (Golden{10944, 0x79f80580848437bc}));
  EXPECT_EQ(encoded(R"({"type":"Split","pattern":{"String":" "},"behavior":"Contiguous","invert":false})", plain),
            (Golden{11110, 0x81ce4b7f55091f14}));
  EXPECT_EQ(encoded("", R"({"type":"ByteLevel","add_prefix_space":true})"), (Golden{10944, 0x8028a778631c7e6d}));
}

// add_prefix_space, where a text is read in blocks and where records have targets.
TEST(TokenizerTest, ASpaceComesBeforeATextOnce) {
  TemporaryFolder folder;
  BpeTables tables = trained(golden("text.txt"), "gpt2", 450);
  tables.prefix_space = true;
  ImportOptions options;
  options.vocabulary =
      std::make_shared<Vocabulary>(Vocabulary::byte_pairs(parse_tokenizer_json(tokenizer_json(tables), "spaced")));
  std::string text;
  while (text.size() < (3u << 20)) text += content(golden("text.txt"));
  write_file(folder / "t.txt", text);
  import_text({folder / "t.txt", folder / "t.txt"}, folder / "t.h5", TextLevel::kBpe, options);
  const FileTokens source(open_dataset_file(folder / "t.h5", 64 << 20));
  Ids stored(static_cast<size_t>(source.size()));
  source.read({0, source.size()}, stored.data());
  Ids expected = options.vocabulary->encode(text);
  expected.insert(expected.end(), expected.begin(), expected.end());
  EXPECT_TRUE(stored == expected);
  EXPECT_EQ(options.vocabulary->decode(options.vocabulary->encode("one")), " one");
  EXPECT_EQ(options.vocabulary->decode(options.vocabulary->encode(" one")), " one");
  Ids ids;
  std::vector<uint8_t> targets;
  RecordEncoder(*options.vocabulary).encode({{"one", false}, {" two", true}}, ids, targets);
  EXPECT_EQ(options.vocabulary->decode(ids), " one two");
  EXPECT_EQ(targets.front(), 0);
  EXPECT_EQ(targets.back(), 1);
  options.special_tokens = options.force = true;
  expect_error(ExitCode::kUsage, {"--special-tokens"},
               [&] { import_text({folder / "t.txt"}, folder / "t.h5", TextLevel::kBpe, options); });
}

// The package would cut and pad what it encodes, which an import does not.
TEST(TokenizerTest, TruncationAndPaddingAreRefusedWhereTextsAreEncoded) {
  TemporaryFolder folder;
  const std::string good = small_json("", "");
  const auto with = [&](const std::string& keys) {
    write_file(folder / "tokenizer.json", str("{", keys, ",", good.substr(1)));
    return folder / "";
  };
  const std::string cut = R"("truncation":{"direction":"Right","max_length":512,"strategy":"LongestFirst","stride":0})",
                    pad = R"("padding":{"strategy":{"Fixed":128},"direction":"Right","pad_id":1})";
  for (const auto& [keys, key] : std::map<std::string, std::string>{{cut + R"(,"padding":null)", "truncation"},
                                                                    {R"("truncation":null,)" + pad, "padding"},
                                                                    {cut + "," + pad, "truncation"}}) {
    const std::string path = with(keys), file = (std::filesystem::path(path) / "tokenizer.json").string();
    expect_error(ExitCode::kBadData,
                 {file, str("has \"", key, "\": {"), key == "padding" ? "\"Fixed\":128" : "\"max_length\":512",
                  "--whole-texts", "null"},
                 [&] { read_tokenizer(path, LengthRules::kRefuse); });
    EXPECT_TRUE(read_tokenizer(path, LengthRules::kIgnore)->tables() == parse_tokenizer_json(good, "t")->tables());
  }
  EXPECT_EQ(read_tokenizer(with(R"("truncation":null,"padding":null)"), LengthRules::kRefuse)->size(), 256);
}

TEST(TokenizerTest, APatternThatTakesForeverIsStopped) {
  BpeTables tables = trained(golden("text.txt"), "gpt2", 300);
  tables.patterns = {"(a+)+b"};
  const BytePairs pairs(tables, "slow");
  expect_error(ExitCode::kBadData, {"too many steps"}, [&] { encode(pairs, str(std::string(40, 'a'), "c")); });
}

// PCRE2's limit is for each match; of these there are as many as bytes.
TEST(TokenizerTest, APatternThatIsSlowAtEveryPlaceOfATextIsStopped) {
  BpeTables tables = trained(golden("text.txt"), "gpt2", 300);
  for (const char* pattern : {"a*a*a*a*b|a", "a*a*a*a*(?:b|c)", "(?:a*a*a*)*(?:b|c)|a"}) {
    tables.patterns = {pattern};
    const BytePairs pairs(tables, "slow");
    const auto begin = std::clock();
    expect_error(ExitCode::kBadData, {"too many steps", pattern}, [&] { encode(pairs, std::string(1200, 'a')); });
    EXPECT_LT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, testing::time_bound(2)) << pattern;
    EXPECT_GT(encode(pairs, "aab c").size(), 0u);  // the next text has a budget of its own
  }
  // Long words and runs of many kinds are no such case.
  tables.patterns = {std::string(named_pattern("llama3"))};
  const BytePairs pairs(tables, "usual");
  for (const char* unit : {"a", " ", "\n", "7", "\xE4\xBD\xA0", "A", ".", " a", "'s", "\t\n"}) {
    std::string text;
    while (text.size() < 300'000) text += unit;
    EXPECT_GT(encode(pairs, text + "a").size(), 0u) << unit;
  }
}

TEST(TokenizerTest, FoldersOfTablesAreRead) {
  TemporaryFolder folder;
  std::string tokens;
  for (int b = 0; b < 256; ++b) {
    const std::string text = to_alphabet(std::string(1, static_cast<char>(b)));
    tokens += str(b > 0 ? ", " : "", "\"", text == "\"" || text == "\\" ? "\\" : "", text, "\": ", b);
  }
  expect_error(ExitCode::kMissingInput, {"neither tokenizer.json"}, [&] { read_tokenizer(folder / ""); });
  write_file(folder / "vocab.json", str("{", tokens, R"(, "ab": 256, "<|endoftext|>": 257})"));
  write_file(folder / "merges.txt", "#version: 0.2\na b\n");
  const auto pairs = read_tokenizer(folder / "");
  EXPECT_EQ(encode(*pairs, "ab<|endoftext|>", true), (Ids{256, 257}));
  ASSERT_EQ(pairs->tables().added.size(), 1u);
  EXPECT_EQ(pairs->tables().added[0].text, "<|endoftext|>");
  write_file(folder / "merges.txt", "a b\nab\n");
  expect_error(ExitCode::kBadData, {"merge 1", "'ab'"}, [&] { read_tokenizer(folder / ""); });
}

TEST(TokenizerTest, TheFirstDifferenceOfTwoIsNamed) {
  const auto of = [](const std::string& text) { return Vocabulary::byte_pairs(parse_tokenizer_json(text, "t")); };
  const Vocabulary a = of(small_json(R"(,"ab":256,"bc":257)", R"("a b","b c")"));
  EXPECT_EQ(first_difference(a, a), "");
  EXPECT_EQ(first_difference(a, of(small_json(R"(,"ab":256)", R"("a b")"))),
            "token 257 is 'bc' there and nothing here (vocabularies of 258 and 257 tokens)");
  EXPECT_EQ(first_difference(a, of(small_json(R"(,"ab":256,"bc":257)", R"("b c","a b")"))),
            "the tokens are the same, but merge 0 differs");
  EXPECT_EQ(first_difference(a, Vocabulary::bytes()), "tokens are byte pairs there and bytes here");
}

TEST(TokenizerTest, ADatasetAndACheckpointCarryTheTokenizer) {
  TemporaryFolder folder;
  const auto pairs = std::make_shared<const BytePairs>(trained(golden("text.txt"), "llama3", 450), "trained");
  ImportOptions options;
  options.vocabulary = std::make_shared<const Vocabulary>(Vocabulary::byte_pairs(pairs));
  options.separator = "<|endoftext|>";
  const std::string text = content(golden("text.txt")), out = folder / "out.h5";
  import_text({golden("text.txt"), golden("text.txt")}, out, TextLevel::kBpe, options);
  const auto file = open_dataset_file(out, 1 << 20);
  const Ids ids = encode(*pairs, text);
  Ids expected = ids, stored(static_cast<size_t>(file->header.tokens));
  expected.push_back(449);
  const Ids once = expected;
  expected.insert(expected.end(), once.begin(), once.end());
  FileTokens(file).read({0, file->header.tokens}, stored.data());
  EXPECT_EQ(stored, expected);
  ASSERT_TRUE(file->header.vocabulary && file->header.vocabulary->pairs());
  EXPECT_TRUE(file->header.vocabulary->pairs()->tables() == pairs->tables());
  EXPECT_EQ(file->header.level(), "bpe");
  EXPECT_EQ(file->header.vocabulary->decode(stored), str(text, "<|endoftext|>", text, "<|endoftext|>"));
  const auto again = parse_vocabulary(vocabulary_text(options.vocabulary.get()));
  EXPECT_EQ(first_difference(*again, *options.vocabulary), "");
  EXPECT_EQ(again->encode(text), ids);
  expect_error(ExitCode::kBadData, {"invalid UTF-8 at byte 1"}, [&] { again->encode("a\xff"); });
  options.separator = "<|eot|>";
  expect_error(ExitCode::kUsage, {"<|eot|>"},
               [&] { import_text({golden("text.txt")}, folder / "no.h5", TextLevel::kBpe, options); });
}

TEST(ValidTextTest, InvalidBytesAreRefusedOrReplaced) {
  const auto read = [](const std::string& bytes, InvalidBytes invalid, size_t step) {
    ValidText valid(invalid, "t", "; advice");
    std::string text;
    for (size_t at = 0; at < bytes.size(); at += step) valid.add(std::string_view(bytes).substr(at, step), text);
    valid.finish(text);
    return text;
  };
  // What Python's bytes.decode("utf-8", "replace") gives; R stands for U+FFFD.
  const std::pair<std::string, std::string> cases[] = {
      {"plain text of more than 8 bytes", "plain text of more than 8 bytes"},
      {"é漢🙂", "é漢🙂"},
      {"a\xff", "aR"},
      {"\xc0\xaf", "RR"},
      {"\xed\xa0\x80", "RRR"},
      {"\xf4\x90\x80\x80", "RRRR"},
      {"\xe6\xbc", "R"},
      {"\xe6\xbc(", "R("},
      {"\xf0\x9f\x98", "R"},
      {"\xf0\x9f\x98\xf0\x9f\x98\x80", "R\xf0\x9f\x98\x80"},
      {"\xe0\x80\x80x", "RRRx"},
      {"\xf1\x80\x80\xe1\x80\x41", "RRA"},
      {"12345678\x80"
       "12345678",
       "12345678R12345678"}};
  for (auto [bytes, expected] : cases) {
    for (size_t at; (at = expected.find('R')) != expected.npos;) expected.replace(at, 1, "\xef\xbf\xbd");
    for (size_t step : {1, 2, 3, 100}) EXPECT_EQ(read(bytes, InvalidBytes::kReplace, step), expected) << bytes;
  }
  expect_error(ExitCode::kBadData, {"t: invalid UTF-8 at byte 10; advice"},
               [&] { read("0123456789\x80", InvalidBytes::kRefuse, 4); });
  expect_error(ExitCode::kBadData, {"byte 3;"}, [&] { read("abc\xe6\xbc", InvalidBytes::kRefuse, 4); });
}

}  // namespace
}  // namespace lockstep::tokenizer_test
