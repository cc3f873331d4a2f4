// The special tokens that transformers puts around a text, by the files of a folder: each case as transformers 5.24
// encodes with it (AutoTokenizer.from_pretrained(folder).encode(text)).
#include "data/text/tokenizer/special_tokens.h"

#include <gtest/gtest.h>

#include "core/io/json.h"
#include "data/text/tokenizer/tokenizer_file.h"
#include "tests/support/files.h"

namespace lockstep::special_tokens_test {
namespace {

using Ids = std::vector<int32_t>;

class SpecialTokensTest : public ::testing::Test {
 protected:
  // The vocabulary has all bytes, <s> (256) and </s> (257).
  Surround around(const std::string& post_processor, const std::string& config) {
    std::string vocabulary;
    for (int i = 0; i < 256; ++i)
      vocabulary += str(i ? "," : "", json_text_of(to_alphabet(std::string(1, static_cast<char>(i)))), ":", i);
    const std::string json =
        str("{\"model\":{\"type\":\"BPE\",\"vocab\":{", vocabulary, "},\"merges\":[]},",
            R"("added_tokens":[{"id":256,"content":"<s>","special":true},{"id":257,"content":"</s>","special":true}],)",
            R"("pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false},"decoder":{"type":"ByteLevel"},)",
            "\"post_processor\":", post_processor, "}");
    test::write_file(folder_ / "tokenizer.json", json);
    test::write_file(folder_ / "tokenizer_config.json", config);
    return special_tokens_around(folder_ / "", vocabulary_of_tokenizer(folder_ / ""));
  }
  static std::string templated(const std::string& before, const std::string& after) {
    const auto part = [](const std::string& token) {
      return str("{\"SpecialToken\":{\"id\":\"", token, "\",\"type_id\":0}}");
    };
    return str(R"({"type":"TemplateProcessing","single":[)", before.empty() ? "" : part(before) + ",",
               R"({"Sequence":{"id":"A","type_id":0}})", after.empty() ? "" : "," + part(after),
               R"(],"pair":[],"special_tokens":{"<s>":{"id":"<s>","ids":[256],"tokens":["<s>"]},)",
               R"("</s>":{"id":"</s>","ids":[257],"tokens":["</s>"]}}})");
  }

  test::TemporaryFolder folder_;
};

constexpr const char* kNamed = R"({"bos_token": "<s>", "eos_token": "</s>"})";

TEST_F(SpecialTokensTest, AreThoseOfThePostProcessor) {
  const std::string bytes = R"({"type":"ByteLevel","trim_offsets":true})";
  const Surround none{}, begins{{256}, {}}, both{{256}, {257}}, ends{{}, {257}};
  EXPECT_EQ(around("null", kNamed), none);
  EXPECT_EQ(around(bytes, kNamed), none);
  EXPECT_EQ(around(templated("<s>", ""), kNamed), begins);
  EXPECT_EQ(around(templated("", "</s>"), kNamed), ends);
  EXPECT_EQ(around(templated("<s>", "</s>"), kNamed), both);
  EXPECT_EQ(around(str(R"({"type":"Sequence","processors":[)", bytes, ",", templated("<s>", ""), "]}"), kNamed),
            begins);
  EXPECT_EQ(around(R"({"type":"RobertaProcessing","sep":["</s>",257],"cls":["<s>",256]})", kNamed), both);
  // Whatever tokenizer_config.json says.
  EXPECT_EQ(around("null", R"({"bos_token": "<s>", "add_bos_token": true})"), none);
  EXPECT_EQ(around(templated("<s>", ""), R"({"bos_token": "<s>", "add_bos_token": false})"), begins);
  test::expect_error(
      ExitCode::kBadData, {"tokenizer.json", "has two post-processors that put tokens around a text"}, [&] {
        around(str(R"({"type":"Sequence","processors":[)", templated("<s>", ""), ",", templated("<s>", ""), "]}"),
               kNamed);
      });
  test::expect_error(ExitCode::kBadData, {"tokenizer.json", "has the post-processor 'Other'"},
                     [&] { around(R"({"type":"Other"})", kNamed); });
}

TEST_F(SpecialTokensTest, AreThoseThatTheConfigurationAddsWithoutOne) {
  const auto merged = [&](const std::string& config) {
    std::string vocabulary;
    for (int i = 0; i < 256; ++i)
      vocabulary += str(json_text_of(to_alphabet(std::string(1, static_cast<char>(i)))), ":", i, ",");
    test::write_file(folder_ / "vocab.json", "{" + vocabulary + "\"<s>\":256,\"</s>\":257}");
    test::write_file(folder_ / "merges.txt", "#version: 0.2\n");
    test::write_file(folder_ / "tokenizer_config.json", config);
    return special_tokens_around(folder_ / "", vocabulary_of_tokenizer(folder_ / ""));
  };
  EXPECT_EQ(merged(kNamed), Surround{});
  EXPECT_EQ(merged(R"({"bos_token": "<s>", "eos_token": "</s>", "add_bos_token": true})"), (Surround{{256}, {}}));
  EXPECT_EQ(merged(R"({"bos_token": "<s>", "eos_token": "</s>", "add_bos_token": false, "add_eos_token": true})"),
            (Surround{{}, {257}}));
  EXPECT_EQ(merged(R"({"add_bos_token": true})"), Surround{}) << "there is no bos_token";
}

}  // namespace
}  // namespace lockstep::special_tokens_test
