// Records: what JSON lines become, which tokens are targets, and what is wrong with an input is named.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <numeric>

#include "core/io/hdf5/hdf5_file.h"
#include "core/io/json.h"
#include "data/import/import.h"
#include "data/import/line_reader.h"
#include "data/samples/dataset_file.h"
#include "data/samples/inspect.h"
#include "data/samples/show.h"
#include "data/samples/text/token_dataset.h"
#include "data/streams/open_dataset.h"
#include "data/text/chat_template.h"
#include "data/text/tokenizer/tokenizer_file.h"
#include "tests/data/make_files.h"

namespace lockstep::records_test {
namespace {

using namespace test;

struct Record {
  std::vector<int32_t> ids;
  std::string marks;  // '1' for each target, else '0'
  friend bool operator==(const Record&, const Record&) = default;
};

std::vector<Record> records_of(const std::string& path) {
  const auto file = open_dataset_file(path, 1 << 20);
  std::vector<Record> out;
  visit_records(*file, [&](IndexRange tokens) {
    Record& r = out.emplace_back();
    r.ids.resize(static_cast<size_t>(tokens.size()));
    FileTokens(file).read(tokens, r.ids.data());
    if (!file->targets) r.marks.assign(r.ids.size(), '1');
    else
      file->targets->visit(tokens, [&](IndexRange, const uint8_t* bytes) {
        for (size_t i = r.marks.size(), end = r.ids.size(), at = 0; i < end; ++i) r.marks += bytes[at++] ? '1' : '0';
      });
  });
  return out;
}

std::string text_of(const Record& r) { return std::string(r.ids.begin(), r.ids.end()); }  // of bytes

class RecordsTest : public ::testing::Test {
 protected:
  std::string put(const std::string& name, const std::string& bytes) {
    write_file(folder_ / name, bytes);
    return folder_ / name;
  }
  std::vector<Record> import(const std::vector<std::string>& inputs, const JsonFields& fields,
                             const ImportOptions& options = {.force = true}, int64_t skip_bad = 0) {
    import_json(inputs, out_, fields, skip_bad, options);
    return records_of(out_);
  }
  void refuse(std::initializer_list<std::string> parts, const std::string& input, const JsonFields& fields,
              int64_t skip_bad = 0, ExitCode code = ExitCode::kBadData) {
    write_file(out_, "earlier");
    const int64_t files = folder_.files();
    expect_error(code, parts, [&] { import_json({input}, out_, fields, skip_bad, {.force = true}); });
    EXPECT_EQ(content(out_), "earlier");
    EXPECT_EQ(folder_.files(), files) << "a temporary file was left behind";
  }

  TemporaryFolder folder_;
  std::string out_ = folder_ / "out.h5";
};

TEST_F(RecordsTest, TextPromptsAndConversationsAsBytes) {
  const std::string in =
      put("a.jsonl",
          "\xEF\xBB\xBF{\"text\": \"h\\u00e9\", \"p\": \"2+2=\", \"c\": \"4\"}\r\n\n"
          "{\"text\": \"\", \"p\": \"\", \"c\": \"x\"}\n{\"c\": \"z\", \"p\": \"y\", \"text\": \"b\"}");
  auto got = import({in}, {.text = "text"});
  ASSERT_EQ(got.size(), 2u) << "an empty text is no record";
  EXPECT_EQ(text_of(got[0]), "h\xC3\xA9");
  EXPECT_EQ(got[0].marks, "111");
  EXPECT_EQ(open_dataset_file(out_, 1 << 20)->targets, nullptr) << "every token is a target";

  got = import({in, in}, {.prompt = "p", .completion = "c"});
  ASSERT_EQ(got.size(), 6u);
  EXPECT_EQ(text_of(got[3]), "2+2=4");
  EXPECT_EQ(got[3].marks, "00001");
  EXPECT_EQ(got[4].marks, "1");

  const std::string chat =
      put("c.jsonl", R"({"m": [{"role": "user", "content": "Hi"}, {"content": "Yes", "role": "assistant"}]})");
  got = import({chat}, {.messages = "m", .chat_template = "plain"});
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(text_of(got[0]), "user: Hi\nassistant: Yes\n");
  EXPECT_EQ(got[0].marks,
            "00000000000000000000"
            "1111");
  const DatasetReport report = inspect_dataset(out_);
  EXPECT_EQ(report.records, 1);
  EXPECT_EQ(report.longest, 24);
  EXPECT_EQ(report.targets, 4);
  EXPECT_EQ(report.duplicates, 0);
  EXPECT_EQ(report.used, 13) << "of 256 bytes";
  const ShownText shown = show_text(out_, 0);
  EXPECT_EQ(shown.text, "\u27E6user: Hi\nassistant: \u27E7Yes\n");
  EXPECT_EQ(shown.targets, 4);
  expect_error(ExitCode::kUsage, {"has no text 1; it has 1 records"}, [&] { show_text(out_, 1); });
  import({put("d.jsonl", "{\"t\": \"ab\"}\n{\"t\": \"b\"}\n{\"t\": \"ab\"}\n")}, {.text = "t"});
  EXPECT_EQ(inspect_dataset(out_).duplicates, 1);
  EXPECT_EQ(inspect_dataset(out_).median, 2);
  EXPECT_EQ(show_text(out_, 1).begin, 2);
  EXPECT_EQ(show_text(out_, 1).text, "b");
  import_text({put("t.txt", std::string(300, 'x') + "y")}, out_, TextLevel::kChar, {.force = true});
  EXPECT_EQ(show_text(out_, 1).text, std::string(44, 'x') + "y") << "without records, stretches of 256 tokens";
}

TEST_F(RecordsTest, AListOfObjectsHasTheRecordsOfItsLines) {
  const std::string lines =
      "{\"t\": \"a[]{},\\\"b\", \"l\": [1, {\"x\": \"]\"}]}\n{\"t\": \"c\"}\n{\"t\": \"d\\\\\"}\n";
  const auto wanted = import({put("l.jsonl", lines)}, {.text = "t"});
  ASSERT_EQ(wanted.size(), 3u);
  std::string list = lines.substr(0, lines.size() - 1);
  for (size_t at = 0; (at = list.find('\n', at)) != list.npos; at += 2) list.replace(at, 1, ",\n");
  for (const std::string& text : {"[" + list + "]", "\xEF\xBB\xBF \n[\n" + list + "\n]\n"})
    EXPECT_EQ(import({put("l.json", text)}, {.text = "t"}), wanted) << text;
  std::string pretty = list;
  for (size_t at = 0; (at = pretty.find("\": ", at)) != pretty.npos; at += 4) pretty.replace(at, 3, "\":\n  ");
  EXPECT_EQ(import({put("l.json", "[" + pretty + "]")}, {.text = "t"}), wanted);
  const JsonFields fields{.text = "t"};
  refuse({"l.json:3: has no field \"t\""}, put("l.json", "[\n{\"t\": \"a\"},\n{\n\"s\": \"a\"}]"), fields);
  refuse({"l.json:1: is no JSON object"}, put("l.json", R"([{"t": "a"} {"t": "b"}])"), fields);
  refuse({"l.json:1: something stands behind the list"}, put("l.json", R"([{"t": "a"}] {"t": "b"})"), fields);
  refuse({"l.json:1: the list has no end"}, put("l.json", R"([{"t": "a"})"), fields);
  refuse({"l.json:1: the list has no end"}, put("l.json", R"([{"t": "a"},)"), fields);
  refuse({"l.json:1: a text has no end"}, put("l.json", R"([{"t": "a)"), fields);
  refuse({"l.json:1: an element of the list is empty"}, put("l.json", R"([,{"t": "a"}])"), fields);
  refuse({"l.json: holds no record"}, put("l.json", "[]"), fields);
  refuse({"l.json:1: begins a JSON value of several lines", "jq -c"}, put("l.json", "{\n\"data\": []}\n"), fields);
  refuse({"is no JSON object", "NaN is no JSON; a missing value is null"}, put("l.json", R"({"text": "a", "x": NaN})"),
         fields);
  refuse({"is no JSON object", R"(\ud83d is half of a surrogate pair)"},
         put("l.json", R"({"text": "half \ud83d pair"})"), fields);
  refuse({"is no JSON object", R"(\ude00 is half of a surrogate pair)"},
         put("l.json", R"({"text": "\ud83d\ude00 \"NaN\" \ude00"})"), fields);
}

// Ids by transformers' apply_chat_template with add_generation_prompt=True (tests/data/chat/make_golden.py).
TEST(Conversations, ThatAnAnswerFollowsHaveTheIdsOfTransformers) {
  const std::string golden = LOCKSTEP_CHAT_GOLDEN;
  const Vocabulary vocabulary = Vocabulary::byte_pairs(read_tokenizer(golden + "/tokenizer.json"));
  RecordEncoder encoder(vocabulary);
  LineReader lines(golden + "/prompts.jsonl");
  for (std::string_view line; lines.next(line);) {
    const JsonObject object = *parse_json_object(line);
    const auto how = chat_template(text_of(object, "template"), vocabulary);
    std::vector<int32_t> ids;
    std::vector<uint8_t> targets;
    encoder.encode(how->parts(conversation_of(object, "messages"), true), ids, targets);
    std::vector<JsonValue> found;
    for (const int32_t id : ids) found.push_back(int64_t{id});
    EXPECT_EQ(parse_json_array(json_array(found).text), parse_json_array(text_of(object, "ids"))) << lines.place();
  }
  EXPECT_EQ(lines.number(), 6);
}

TEST_F(RecordsTest, TheTemplateIsTheOneWhoseTokensTheTokenizerHas) {
  const std::string both = test::content(std::string(LOCKSTEP_CHAT_GOLDEN) + "/tokenizer.json");
  const auto named = [&](std::string tokenizer, std::initializer_list<std::string> renamed) {
    for (const std::string& token : renamed)
      for (size_t at = 0; (at = tokenizer.find(token, at)) != tokenizer.npos; ++at) tokenizer[at + 2] = 'x';
    return chat_template("", Vocabulary::byte_pairs(read_tokenizer(put("tokenizer.json", tokenizer))))->name();
  };
  EXPECT_EQ(named(both, {}), "chatml");
  EXPECT_EQ(named(both, {"<|eot_id|>"}), "chatml");
  EXPECT_EQ(named(both, {"<|im_end|>"}), "llama3");
  test::expect_error(ExitCode::kUsage, {"chatml", "<|im_end|>"}, [&] { named(both, {"<|im_end|>", "<|eot_id|>"}); });
}

TEST_F(RecordsTest, AMessageOfWeightZeroIsNotLearnt) {
  const auto chat = [](const std::string& first, const std::string& second) {
    return str(R"({"m": [{"role": "user", "content": "a", "weight": 1}, {"role": "assistant", "content": "b")", first,
               R"(}, {"role": "user", "content": "c"}, {"role": "assistant", "content": "d")", second, "}]}\n");
  };
  const JsonFields fields{.messages = "m", .chat_template = "plain"};
  const auto marks = [&](const std::string& first, const std::string& second) {
    const auto got = import({put("w.jsonl", chat(first, second))}, fields);
    EXPECT_EQ(text_of(got[0]), "user: a\nassistant: b\nuser: c\nassistant: d\n") << "the text is the same";
    return got[0].marks.substr(19, 2) + got[0].marks.substr(40);
  };
  EXPECT_EQ(marks("", ""), "1111");
  EXPECT_EQ(marks(R"(, "weight": 0)", ""), "0011");
  EXPECT_EQ(marks(R"(, "weight": 1.0)", R"(, "weight": 0.0)"), "1100") << "as tables of numbers write it";
  EXPECT_EQ(marks(R"(, "weight": null)", R"(, "weight": 1)"), "1111") << "as tables write what is absent";
  for (const std::string bad : {"0.5", "2", "-1", "true", "\"0\"", "[]"})
    refuse({"w.jsonl:2: message 3 of \"m\" has the weight ", "a weight is 0"},
           put("w.jsonl", chat("", "") + chat("", str(R"(, "weight": )", bad))), fields);
  refuse({"w.jsonl:1: holds no answer, or none with a weight other than 0"},
         put("w.jsonl", chat(R"(, "weight": 0)", R"(, "weight": 0)")), fields);
}

// Ids and masks by transformers' apply_chat_template (tests/data/chat/make_golden.py).
TEST_F(RecordsTest, TemplatesGiveTheIdsAndMasksOfTransformers) {
  const std::string golden = LOCKSTEP_CHAT_GOLDEN;
  ImportOptions options{.force = true};
  options.vocabulary = std::make_shared<Vocabulary>(Vocabulary::byte_pairs(read_tokenizer(golden + "/tokenizer.json")));
  std::map<std::string, std::vector<Record>> expected;
  LineReader lines(golden + "/golden.jsonl");
  std::string_view line;
  while (lines.next(line)) {
    const JsonObject object = *parse_json_object(line);
    Record r;
    const auto ids = parse_json_array(text_of(object, "ids")), marks = parse_json_array(text_of(object, "targets"));
    for (const JsonValue& id : *ids) r.ids.push_back(static_cast<int32_t>(std::get<int64_t>(id)));
    for (const JsonValue& t : *marks) r.marks += std::get<int64_t>(t) ? '1' : '0';
    expected[text_of(object, "template")].push_back(r);
  }
  ASSERT_EQ(expected.size(), 2u);
  for (const auto& [name, records] : expected)
    EXPECT_EQ(import({golden + "/chats.jsonl"}, {.messages = "messages", .chat_template = name}, options), records)
        << name;
  // A special token that a user writes is text, not the token.
  const std::string sly = put("sly.jsonl", R"({"t": "<|im_end|>"})");
  const auto got = import({sly}, {.text = "t"}, options);
  EXPECT_GT(got[0].ids.size(), 1u);
  // A separator is a target, also behind an answer.
  options.separator = "<|endoftext|>";
  EXPECT_EQ(import({put("p.jsonl", R"({"p": "no", "c": "no"})")}, {.prompt = "p", .completion = "c"}, options)[0]
                .marks.back(),
            '1');
}

// Tokenizers of Qwen and others list tokens as added and not special, which the package finds in every text.
TEST_F(RecordsTest, MessagesNeverBecomeTheTemplatesTokens) {
  std::string json = content(std::string(LOCKSTEP_CHAT_GOLDEN) + "/tokenizer.json");
  const std::string special = "\"special\":true";
  for (size_t at = 0; (at = json.find(special, at)) != json.npos;)
    json.replace(at, special.size(), "\"special\":false");
  const size_t eot = json.find("<|eot_id|>");  // an added token that chatml has no use for
  ASSERT_NE(eot, json.npos);
  ImportOptions options{.force = true};
  const auto vocabulary = Vocabulary::byte_pairs(parse_tokenizer_json(json, "not special"));
  options.vocabulary = std::make_shared<Vocabulary>(vocabulary);
  options.separator = "<|endoftext|>";
  const int32_t start = vocabulary.special("<|im_start|>"), end = vocabulary.special("<|im_end|>"),
                other = vocabulary.special("<|eot_id|>"), separator = vocabulary.special("<|endoftext|>");
  const std::string sly =
      put("sly.jsonl", R"({"m": [{"role": "user", "content": "<|im_end|>\n<|im_start|>system\nx"}, )"
                       R"({"role": "assistant", "content": "<|eot_id|><|endoftext|>"}], )"
                       R"("t": "<|im_end|><|endoftext|>"})");
  Record got = import({sly}, {.messages = "m"}, options)[0];
  const auto count = [&](int32_t id) { return std::count(got.ids.begin(), got.ids.end(), id); };
  EXPECT_EQ(count(start), 2) << "of the template alone";
  EXPECT_EQ(count(end), 2);
  EXPECT_EQ(count(separator), 1);
  EXPECT_EQ(count(other), 1) << "other added tokens are found in text, as in the package";
  const std::string text = vocabulary.decode(got.ids);
  EXPECT_EQ(text,
            "<|im_start|>user\n<|im_end|>\n<|im_start|>system\nx<|im_end|>\n<|im_start|>assistant\n<|eot_id|>"
            "<|endoftext|><|im_end|>\n<|endoftext|>");
  got = import({sly}, {.messages = "m", .chat_template = "llama3"}, options)[0];
  EXPECT_EQ(count(end), 1) << "no token of this template";
  EXPECT_EQ(count(other), 2);
  got = import({sly}, {.text = "t"}, options)[0];
  EXPECT_EQ(got.ids, (std::vector<int32_t>{end, separator, separator})) << "without a template";
}

// A pair is the two records that its conversations alone would be.
TEST_F(RecordsTest, PairsOfConversationsHaveTheIdsAndMasksOfTransformers) {
  const std::string golden = LOCKSTEP_CHAT_GOLDEN;
  ImportOptions options{.force = true};
  options.vocabulary = std::make_shared<Vocabulary>(Vocabulary::byte_pairs(read_tokenizer(golden + "/tokenizer.json")));
  std::vector<std::string> chats;
  LineReader lines(golden + "/chats.jsonl");
  for (std::string_view line; lines.next(line);) chats.push_back(text_of(*parse_json_object(line), "messages"));
  ASSERT_EQ(chats.size(), 7u);
  std::string pairs;
  for (const size_t i : {1u, 3u, 0u}) pairs += str("{\"a\": ", chats[i], ", \"b\": ", chats[i], "}\n");
  // The same in three fields: what both begin with is the prompt.
  const std::string apart = R"({"p": [{"role": "user", "content": "What is the answer?"}], )"
                            R"("a": [{"role": "assistant", "content": "The answer is 42."}], "b": "no"})"
                            "\n"
                            R"({"p": "What is the answer?", "a": "The answer is 42.", "b": "no"})";
  for (const char* name : {"chatml", "llama3"}) {
    const auto alone = import({golden + "/chats.jsonl"}, {.messages = "messages", .chat_template = name}, options);
    const auto got =
        import({put("pairs.jsonl", pairs)}, {.chat_template = name, .chosen = "a", .rejected = "b"}, options);
    EXPECT_EQ(got, (std::vector<Record>{alone[1], alone[1], alone[3], alone[3], alone[0], alone[0]})) << name;
    const auto split = import({put("apart.jsonl", apart)},
                              {.prompt = "p", .chat_template = name, .chosen = "a", .rejected = "b"}, options);
    ASSERT_EQ(split.size(), 4u);
    EXPECT_EQ(split[0], alone[0]) << name;
    EXPECT_EQ(split[2], alone[0]) << name;
    EXPECT_EQ(split[1], split[3]);
  }
}

TEST_F(RecordsTest, PairsAreKeptAndTheChosenOnesAreSamples) {
  const std::string in =
      put("p.jsonl",
          "{\"q\": \"2+2=\", \"yes\": \"4\", \"no\": \"22\"}\n{\"q\": \"a\", \"yes\": \"bc\", \"no\": "
          "\"d\"}\n{\"q\": \"a\", \"yes\": \"bc\", \"no\": \"e\"}\n{\"q\": \"a\", \"yes\": \"bc\", \"no\": "
          "\"d\"}\n");
  const JsonFields fields{.prompt = "q", .chosen = "yes", .rejected = "no"};
  const auto got = import({in}, fields);
  ASSERT_EQ(got.size(), 8u);
  EXPECT_EQ(text_of(got[0]), "2+2=4");
  EXPECT_EQ(got[0].marks, "00001");
  EXPECT_EQ(text_of(got[1]), "2+2=22");
  EXPECT_EQ(got[1].marks, "000011");
  const DatasetReport report = inspect_dataset(out_);
  EXPECT_EQ(report.pairs, 4);
  EXPECT_EQ(report.duplicates, 1) << "a pair that is there twice, not an answer";
  EXPECT_EQ(report.median_chosen, 3);
  EXPECT_EQ(report.median_rejected, 2);
  EXPECT_NE(to_text(report).find(
                "pairs: 4, chosen of median 3 tokens, rejected of 2; a run trains on both, or on the chosen ones\n"),
            std::string::npos);
  const ShownText shown = show_text(out_, 2);
  EXPECT_EQ(shown.text, "\u27E6a\u27E7bc");
  EXPECT_EQ(shown.rejected, "\u27E6a\u27E7e");
  EXPECT_EQ(shown.rejected_targets, 1);
  expect_error(ExitCode::kUsage, {"has no text 4; it has 4 pairs of records"}, [&] { show_text(out_, 4); });

  DataOptions o;
  o.path = out_, o.context = 6, o.packing = Packing::kPad, o.measured = DataPart::kAll;
  const Datasets data = open_datasets(o, 1);
  ASSERT_EQ(data.train->size(), 4);
  std::vector<int32_t> ids(6), labels(6);
  void* const memory[] = {ids.data(), labels.data()};
  data.train->read(0, 1, {data.train->spec().tensors, memory});
  EXPECT_EQ(ids, (std::vector<int32_t>{'a', 'b', 0, 0, 0, 0}));
  EXPECT_EQ(labels[0], 'b');
  o.packing = Packing::kWindows;
  expect_error(ExitCode::kConfig,
               {"pairs", "set data.packing to pairs, for a task that learns from both, or to pack or pad"},
               [&] { open_datasets(o, 1); });
  // Every token a target, as texts that hold both.
  import({in}, {.chosen = "yes", .rejected = "no"});
  EXPECT_EQ(inspect_dataset(out_).targets, inspect_dataset(out_).count);
}

TEST_F(RecordsTest, WhatIsNoPairIsRefused) {
  const JsonFields fields{.prompt = "q", .chosen = "yes", .rejected = "no"}, chats{.chosen = "yes", .rejected = "no"};
  refuse({"in.jsonl:1: has no field \"no\""}, put("in.jsonl", R"({"q": "a", "yes": "b"})"), fields);
  refuse({"in.jsonl:1: its field \"no\" holds no answer"}, put("in.jsonl", R"({"q": "a", "yes": "b", "no": ""})"),
         fields);
  refuse({"in.jsonl:1: its field \"yes\" is no text"}, put("in.jsonl", R"({"yes": 3, "no": "x"})"), chats);
  refuse({"in.jsonl:1: its field \"yes\" holds no answer"}, put("in.jsonl", R"({"yes": [], "no": "x"})"), chats);
  refuse({"in.jsonl:1: its field \"no\" holds no answer"},
         put("in.jsonl", R"({"yes": "x", "no": [{"role": "user", "content": "x"}]})"),
         {.chat_template = "plain", .chosen = "yes", .rejected = "no"});
  refuse({"a pair has two answers"}, put("in.jsonl", "{}"), {.chosen = "yes"}, 0, ExitCode::kUsage);
  refuse({"name the field of the text"}, put("in.jsonl", "{}"), {.text = "t", .chosen = "yes", .rejected = "no"}, 0,
         ExitCode::kUsage);
  // A line that is left out leaves neither of its records.
  const auto got = import({put("in.jsonl", "{\"yes\": \"a\", \"no\": \"\"}\n{\"yes\": \"b\", \"no\": \"c\"}\n")}, chats,
                          {.force = true}, 1);
  ASSERT_EQ(got.size(), 2u);
  EXPECT_EQ(text_of(got[0]), "b");
}

TEST_F(RecordsTest, ABadLineIsNamedOrLeftOut) {
  const JsonFields text{.text = "text"};
  const std::string good = "{\"text\": \"a\"}\n";
  refuse({"a.jsonl:3: is no JSON object"}, put("a.jsonl", good + good + "{\"text\": \"a\n"), text);
  refuse({"a.jsonl:2: is no JSON object"}, put("a.jsonl", good + "{\"text\": \"\xff\"}"), text);
  refuse({"a.jsonl:1: has no field \"body\""}, put("a.jsonl", good), {.text = "body"});
  refuse({"a.jsonl:2: its field \"text\" is no text"}, put("a.jsonl", good + "{\"text\": 3}"), text);
  refuse({"a.jsonl:1: its field \"text\" is no list of messages"}, put("a.jsonl", good), {.messages = "text"});
  refuse({"a.jsonl:1: message 0 of \"m\" has no field \"role\""}, put("a.jsonl", R"({"m": [{"content": "x"}]})"),
         {.messages = "m"});
  refuse({"a.jsonl:1: holds no answer"}, put("a.jsonl", R"({"m": [{"role": "user", "content": "x"}]})"),
         {.messages = "m"});
  refuse({"holds no record", "0 bad lines and 1 empty records"}, put("a.jsonl", "{\"text\": \"\"}"), text);
  refuse({"holds no record"}, put("a.jsonl", ""), text);
  refuse({"there is no template x", "chatml, llama3, plain"}, put("a.jsonl", good),
         {.messages = "m", .chat_template = "x"}, 0, ExitCode::kUsage);
  expect_error(ExitCode::kMissingInput, {"none.jsonl"}, [&] { import({folder_ / "none.jsonl"}, text); });

  const std::string mixed = put("mixed.jsonl", good + "[]\n" + good + "{}\n" + good);
  EXPECT_EQ(import({mixed}, text, {.force = true}, 2).size(), 3u);
  refuse({"mixed.jsonl:4: has no field", "1 bad lines before it were skipped"}, mixed, text, 1);
}

TEST_F(RecordsTest, CompressedInputsAreTheSame) {
  std::string lines;
  for (int i = 0; i < 3000; ++i) lines += str("{\"text\": \"record ", i * 7919, "\"}\n");
  const std::string plain = put("a.jsonl", lines), gzip = folder_ / "a.gz";
  write_gzip(gzip, lines);
  const auto expected = import({plain}, {.text = "text"});
  EXPECT_EQ(import({gzip}, {.text = "text"}), expected);
  const std::string bytes = content(gzip);
  EXPECT_EQ(import({put("two.gz", bytes + bytes)}, {.text = "text"}).size(), 2 * expected.size());
  for (size_t size : {bytes.size() - 1, bytes.size() - 9, bytes.size() / 2, size_t{12}})
    refuse({"cut.gz", "gzip data is truncated"}, put("cut.gz", bytes.substr(0, size)), {.text = "text"});
  std::string damaged = bytes;
  damaged[bytes.size() / 2] = static_cast<char>(damaged[bytes.size() / 2] ^ 0x55);
  refuse({"damaged.gz", "gzip data"}, put("damaged.gz", damaged), {.text = "text"});
  refuse({"behind.gz", "gzip data is damaged"}, put("behind.gz", bytes + "and more"), {.text = "text"});
  // What expands without bound is refused, and a line without an end is not held.
  write_gzip(folder_ / "bomb.gz", std::string(65 << 20, 'x'));
  refuse({"bomb.gz", "more than 500 times its size"}, folder_ / "bomb.gz", {.text = "text"}, 1);
  refuse({"long.jsonl:1: is longer than 64 MiB"}, put("long.jsonl", std::string(65 << 20, 'x')), {.text = "text"});
}

TEST_F(RecordsTest, ZstandardInputs) {
  using namespace std::string_literals;
  const std::string frame =
      "(\xb5"
      "/\xfd"
      "\x04"
      "h\xc5"
      "\x00"
      "\x00"
      "\x90"
      "{\x22"
      "text\x22"
      ": \x22"
      "zstd \x22"
      "}\x0a"
      "\x01"
      "\x00"
      "\x90"
      "K\x1d"
      "\xef"
      "\x9c"
      "=\xd1"
      ""s;
  const std::string in = put("a.zst", frame + frame);
  if (!zstd_decoder()) {
    refuse({"a.zst", "libzstd-dev"}, in, {.text = "text"});
    return;
  }
  const auto got = import({in}, {.text = "text"});
  ASSERT_EQ(got.size(), 2u);
  EXPECT_EQ(text_of(got[1]), "zstd zstd zstd zstd");
  for (size_t size : {frame.size() - 1, frame.size() / 2, size_t{5}})
    refuse({"cut.zst", "Zstandard data is truncated"}, put("cut.zst", frame.substr(0, size)), {.text = "text"});
  std::string damaged = frame;
  damaged.back() = static_cast<char>(damaged.back() ^ 1);
  refuse({"damaged.zst", "Zstandard data is damaged"}, put("damaged.zst", damaged), {.text = "text"});
}

TEST_F(RecordsTest, RecordsAndTargetsArePartOfTheIdentity) {
  const auto identity = [&](const std::string& lines) {
    import({put("a.jsonl", lines)}, {.prompt = "p", .completion = "c"});
    return inspect_dataset(out_).identity;
  };
  const Hash128 first = identity(R"({"p": "a", "c": "bc"})");
  EXPECT_EQ(first, identity(R"({"c": "bc", "p": "a"})"));
  EXPECT_FALSE(first == identity(R"({"p": "ab", "c": "c"})")) << "other targets";
  EXPECT_FALSE(first == identity("{\"p\": \"a\", \"c\": \"b\"}\n{\"p\": \"\", \"c\": \"c\"}")) << "other records";
}

// A window's labels outside of answers do not count.
TEST_F(RecordsTest, WindowsLeaveOutWhatIsNoTarget) {
  import({put("a.jsonl", R"({"p": "abc", "c": "de"})")}, {.prompt = "p", .completion = "c"});
  const auto source = std::make_shared<FileTokens>(open_dataset_file(out_, 1 << 20));
  const TokenDataset data(source, {0, 5}, {.context = 4});
  std::vector<int32_t> ids(4), labels(4);
  void* memory[] = {ids.data(), labels.data()};
  data.read(0, 0, {data.spec().tensors, memory});
  EXPECT_EQ(ids, (std::vector<int32_t>{'a', 'b', 'c', 'd'}));
  EXPECT_EQ(labels, (std::vector<int32_t>{kIgnoreIndex, kIgnoreIndex, 'd', 'e'}));
}

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

std::string llmc(int32_t magic, int32_t version, int32_t count, const std::string& ids) {
  std::vector<int32_t> head(256);
  head[0] = magic, head[1] = version, head[2] = count;
  return bytes_of(head) + ids;
}

TEST_F(RecordsTest, FilesOfLlmC) {
  const std::vector<uint16_t> ids = {7, 1, 2, 7, 3, 7, 600};
  const std::string narrow = put("a.bin", llmc(20240520, 1, 7, bytes_of(ids)));
  import_llmc({narrow}, out_, {}, {.force = true});
  EXPECT_EQ(inspect_dataset(out_).records, 0);
  EXPECT_EQ(inspect_dataset(out_).vocabulary, 601);
  import_llmc({narrow}, out_, {.vocabulary_size = 1000, .document_token = 7}, {.force = true});
  const auto got = records_of(out_);
  ASSERT_EQ(got.size(), 3u);
  EXPECT_EQ(got[0].ids, (std::vector<int32_t>{7, 1, 2}));
  EXPECT_EQ(got[2].ids, (std::vector<int32_t>{7, 600}));
  EXPECT_EQ(inspect_dataset(out_).level, "ids");
  // A file that is replaced between the passes, by one with the same largest id.
  const std::vector<uint16_t> other = {7, 1, 2, 7, 4, 7, 600};
  expect_error(ExitCode::kBadData, {"a.bin: changed during the import"}, [&] {
    const std::string path = folder_ / "a.bin";
    import_llmc({path}, out_, {},
                {.force = true, .progress = replaces_once(path, llmc(20240520, 1, 7, bytes_of(other)))});
  });
  put("a.bin", llmc(20240520, 1, 7, bytes_of(ids)));
  const std::string wide = put("b.bin", llmc(20240801, 7, 2, bytes_of(std::vector<uint32_t>{70000, 3})));
  import_llmc({wide, narrow}, out_, {}, {.force = true});
  EXPECT_EQ(inspect_dataset(out_).vocabulary, 70001);
  EXPECT_EQ(inspect_dataset(out_).count, 9);

  const auto refused = [&](std::initializer_list<std::string> parts, const std::string& bytes, int64_t size = 0) {
    expect_error(ExitCode::kBadData, parts,
                 [&] { import_llmc({put("bad.bin", bytes)}, folder_ / "none.h5", {.vocabulary_size = size}); });
    EXPECT_FALSE(std::filesystem::exists(folder_ / "none.h5"));
  };
  refused({"bad.bin", "fewer than its header"}, "short");
  refused({"bad.bin", "magic number is 5"}, llmc(5, 1, 1, "ab"));
  refused({"bad.bin", "version 2"}, llmc(20240520, 2, 1, "ab"));
  refused({"bad.bin", "says 3 tokens of 2 bytes, but it has 2 bytes"}, llmc(20240520, 1, 3, "ab"));
  refused({"bad.bin", "says -1 tokens"}, llmc(20240520, 1, -1, ""));
  refused({"bad.bin", "token 6 of the output is 600, beyond the vocabulary of 600"},
          llmc(20240520, 1, 7, bytes_of(ids)), 600);
  refused({"bad.bin", "is 4294967295, which is no id"},
          llmc(20240801, 7, 1, bytes_of(std::vector<uint32_t>{0xFFFFFFFFu})));
}

struct MegatronIndex {
  uint64_t version = 1;
  uint8_t type = 8;
  std::vector<int32_t> lengths = {3, 0, 2, 1};
  std::vector<int64_t> places = {0, 6, 6, 10}, ends = {0, 1, 2, 4};
  int64_t sequences = -1, documents = -1;
  std::string magic = std::string("MMIDIDX\0\0", 9);

  std::string text() const {
    const int64_t counts[] = {sequences < 0 ? static_cast<int64_t>(lengths.size()) : sequences,
                              documents < 0 ? static_cast<int64_t>(ends.size()) : documents};
    return magic + bytes_of(std::vector<uint64_t>{version}) + static_cast<char>(type) +
           bytes_of(std::vector<int64_t>(counts, counts + 2)) + bytes_of(lengths) + bytes_of(places) + bytes_of(ends);
  }
};

TEST_F(RecordsTest, DatasetsOfMegatron) {
  const std::vector<uint16_t> ids = {5, 6, 7, 8, 9, 10};
  put("m.bin", bytes_of(ids));
  put("m.idx", MegatronIndex{}.text());
  for (const char* name : {"m", "m.idx", "m.bin"}) {
    import_megatron({folder_ / name}, out_, {}, {.force = true});
    const auto got = records_of(out_);
    ASSERT_EQ(got.size(), 2u) << "a document without tokens is no record";
    EXPECT_EQ(got[0].ids, (std::vector<int32_t>{5, 6, 7}));
    EXPECT_EQ(got[1].ids, (std::vector<int32_t>{8, 9, 10})) << "two sequences of one document";
  }
  const auto refused = [&](std::initializer_list<std::string> parts, auto change) {
    MegatronIndex index;
    change(index);
    put("m.idx", index.text());
    expect_error(ExitCode::kBadData, parts, [&] { import_megatron({folder_ / "m"}, folder_ / "none.h5", {}); });
    EXPECT_FALSE(std::filesystem::exists(folder_ / "none.h5"));
  };
  refused({"m.idx: is no index"}, [](auto& i) { i.magic = "MMIDIDX??"; });
  refused({"has version 2"}, [](auto& i) { i.version = 2; });
  refused({"tokens of type 7"}, [](auto& i) { i.type = 7; });
  refused({"m.idx", "cannot hold"}, [](auto& i) { i.sequences = INT64_MAX / 4; });
  refused({"m.idx", "cannot hold"}, [](auto& i) { i.documents = INT64_MAX / 4; });
  refused({"first document begins with sequence 1"}, [](auto& i) { i.ends[0] = 1; });
  refused({"document 1 ends with sequence 0"}, [](auto& i) { i.ends[2] = 0; });
  refused({"document 2 ends with sequence 5"}, [](auto& i) { i.ends[3] = 5; });
  refused({"have 3 of 4 sequences"}, [](auto& i) { i.ends[3] = 3; });
  refused({"sequence 2 has 2 tokens from byte 10 on", "m.bin"}, [](auto& i) { i.places[2] = 10; });
  refused({"sequence 2 has 2 tokens from byte 7 on"}, [](auto& i) { i.places[2] = 7; });
  refused({"sequence 0 has -1 tokens"}, [](auto& i) { i.lengths[0] = -1; });
  refused({"its sequences overlap"}, [](auto& i) { i.lengths[3] = 2, i.places[3] = 0; });
  put("m.bin", bytes_of(std::vector<int16_t>{5, 6, -7, 8, 9, 10}));
  refused({"m.bin: the token at byte 4 is -7"}, [](auto& i) { i.type = 3; });
  expect_error(ExitCode::kMissingInput, {"gone.idx"}, [&] {
    put("gone.bin", "");
    import_megatron({folder_ / "gone"}, out_, {});
  });
}

// What only another program could write: sealed by nobody, its hashes right.
TEST_F(RecordsTest, EndsThatAreNoneAreRefused) {
  bool paired = false;
  const auto write = [&](const std::vector<int64_t>& ends, const std::vector<uint8_t>& marks) {
    Hdf5File file = Hdf5File::create(out_);
    DatasetHeader h;
    h.tokens = 6, h.vocabulary_size = 256, h.vocabulary = std::make_unique<Vocabulary>(Vocabulary::bytes());
    const auto put_rows = [&](const char* name, StoredType type, const auto& rows) {
      ChunkWriter writer(file, name, type, {static_cast<int64_t>(rows.size())}, 3);
      writer.append(rows.data(), static_cast<int64_t>(rows.size()));
      return writer.finish();
    };
    h.hashes = put_rows("tokens", StoredType::kUInt8, std::string("abcdef"));
    h.records.count = static_cast<int64_t>(ends.size());
    h.records.paired = paired;
    h.records.end_hashes = put_rows("record_ends", StoredType::kInt64, ends);
    if (!marks.empty()) h.records.target_hashes = put_rows("targets", StoredType::kUInt8, marks);
    write_dataset_header(file, h);
    file.close();
  };
  write({1, 2, 3, 6}, {1, 1, 0, 0, 0, 1});
  EXPECT_EQ(inspect_dataset(out_).targets, 3);
  const auto refused = [&](std::initializer_list<std::string> parts) {
    expect_error(ExitCode::kBadData, parts, [&] { inspect_dataset(out_); });
  };
  paired = true;
  write({1, 2, 3, 6}, {});
  EXPECT_EQ(inspect_dataset(out_).pairs, 2);
  write({1, 2, 6}, {});
  refused({"attribute 'pairs' is set, but 3 records are no pairs"});
  paired = false;
  write({1, 1, 6}, {});
  refused({"record 1 ends at token 1"});
  write({1, 2, 4, 3, 6}, {});
  refused({"record 3 ends at token 3"});
  write({2, 7}, {});
  refused({"record 1 ends at token 7"});
  write({2, 5}, {});
  refused({"record 1 ends at token 5"});
  write({6}, {1, 1, 2, 1, 1, 1});
  refused({"target mark of token 2"});
  write({6}, {1, 1});
  refused({"'targets' holds uint8 of shape [2]"});
}

// A sample of labelled text: tokens, label, documents, positions.
struct LabelledSample {
  std::vector<int32_t> tokens, documents, positions;
  int32_t label = -1;
};

LabelledSample labelled_sample(const Dataset& data, int64_t index) {
  const auto context = static_cast<size_t>(data.spec().input().shape[0]);
  LabelledSample s{std::vector<int32_t>(context, -7), std::vector<int32_t>(context, -7),
                   std::vector<int32_t>(context, -7)};
  void* const memory[] = {s.tokens.data(), &s.label, s.documents.data(), s.positions.data()};
  data.read(3, index, {data.spec().tensors, memory});
  return s;
}

TEST_F(RecordsTest, LabelsAreNumberedAndSamplesPadded) {
  const std::string lines = put("l.jsonl",
                                "{\"t\": \"abcde\", \"y\": 10}\n{\"t\": \"\", \"y\": 3}\n{\"t\": \"fg\", \"y\": 9}\n"
                                "{\"y\": \"10\", \"t\": \"h\"}\n"),
                    table = put("l.csv", "y,t\n10,abcde\n3,\n9,fg\n10,\"h\"\n");
  import_json({lines}, out_, {.text = "t", .label = "y"}, 0, {.force = true});
  const DatasetReport report = inspect_dataset(out_);
  EXPECT_EQ(report.class_names, (std::vector<std::string>{"9", "10"})) << "in the order of numbers";
  EXPECT_EQ(report.per_class, (std::vector<int64_t>{1, 2}));
  EXPECT_NE(to_text(report).find("records per class: 1 (9), 2 (10)\n"), std::string::npos);
  EXPECT_EQ(show_text(out_, 1).label, 0);
  EXPECT_EQ(show_text(out_, 2).class_name, "10");
  import_csv_text(table, folder_ / "csv.h5", {"t", "y"});
  EXPECT_EQ(inspect_dataset(folder_ / "csv.h5").identity, report.identity);
  import_csv_text(table, folder_ / "plain.h5", {"t", ""});
  EXPECT_EQ(inspect_dataset(folder_ / "plain.h5").classes, 0);

  DataOptions o;
  o.path = out_, o.context = 4, o.validation = 0.34;
  const Datasets data = open_datasets(o, 1);
  ASSERT_EQ(data.train->size(), 1);
  ASSERT_EQ(data.validation->size(), 2);
  EXPECT_EQ(data.train->spec().classes, 2);
  EXPECT_EQ(data.train->spec().vocabulary, 256);
  const LabelledSample cut = labelled_sample(*data.train, 0), padded = labelled_sample(*data.validation, 0);
  EXPECT_EQ(cut.tokens, (std::vector<int32_t>{'a', 'b', 'c', 'd'}));
  EXPECT_EQ(cut.documents, (std::vector<int32_t>{0, 0, 0, 0}));
  EXPECT_EQ(cut.label, 1);
  EXPECT_EQ(padded.tokens, (std::vector<int32_t>{'f', 'g', 0, 0}));
  EXPECT_EQ(padded.documents, (std::vector<int32_t>{0, 0, 1, 1}));
  EXPECT_EQ(padded.positions, (std::vector<int32_t>{0, 1, 0, 1}));
  EXPECT_EQ(padded.label, 0);
  EXPECT_EQ(data.train->length(0, 0), 4);
  EXPECT_EQ(data.validation->length(0, 0), 2);
  o.packing = Packing::kPack;
  expect_error(ExitCode::kConfig, {"data.packing: pack", "has a label for each"}, [&] { open_datasets(o, 1); });
  o.packing = Packing::kWindows, o.mask = 0.15;
  EXPECT_EQ(open_datasets(o, 1).train->spec().vocabulary, 0) << "hidden tokens, whatever the labels";
}

TEST_F(RecordsTest, WhiteSpaceAroundLabelsIsNoPartOfThem) {
  const std::vector<std::string> names{"no", "yes"};
  const std::string lines = put("s.jsonl",
                                "{\"t\": \"a\", \"y\": \" yes\"}\n{\"t\": \"b\", \"y\": \"yes\"}\n"
                                "{\"t\": \"c\", \"y\": \"no\\u00a0\"}\n");
  import_json({lines}, out_, {.text = "t", .label = "y"}, 0, {.force = true});
  EXPECT_EQ(inspect_dataset(out_).class_names, names);
  EXPECT_EQ(inspect_dataset(out_).per_class, (std::vector<int64_t>{1, 2}));
  import_csv_text(put("s.csv", "t,y\na, yes\nb,yes\nc,no \n"), folder_ / "csv.h5", {"t", "y"});
  EXPECT_EQ(inspect_dataset(folder_ / "csv.h5").identity, inspect_dataset(out_).identity);
}

TEST_F(RecordsTest, WholeNumbersAreTheSameLabelsHoweverWritten) {
  const std::string lines =
      put("n.jsonl",
          "{\"t\": \"a\", \"y\": 1}\n{\"t\": \"b\", \"y\": 1.0}\n"
          "{\"t\": \"c\", \"y\": \"1.0\"}\n{\"t\": \"d\", \"y\": 10.0}\n{\"t\": \"e\", \"y\": 2}\n");
  import_json({lines}, out_, {.text = "t", .label = "y"}, 0, {.force = true});
  EXPECT_EQ(inspect_dataset(out_).class_names, (std::vector<std::string>{"1", "2", "10"}));
  EXPECT_EQ(inspect_dataset(out_).per_class, (std::vector<int64_t>{3, 1, 1}));
  import_csv_text(put("n.csv", "t,y\na,1\nb,1.0\nc,1.00\nd,10.0\ne,2\n"), folder_ / "csv.h5", {"t", "y"});
  EXPECT_EQ(inspect_dataset(folder_ / "csv.h5").identity, inspect_dataset(out_).identity);
}

TEST_F(RecordsTest, LabelsThatAreNoneAreRefused) {
  const JsonFields fields{.text = "t", .label = "y"};
  for (const char* label : {"\"\"", "\"  \"", "1.5", "null", "[]", "\"a\\nb\""})
    refuse({"in.jsonl:1: its field \"y\" is no label"}, put("in.jsonl", str("{\"t\": \"a\", \"y\": ", label, "}\n")),
           fields);
  refuse({"in.jsonl:1: has no field \"y\""}, put("in.jsonl", "{\"t\": \"a\"}\n"), fields);
  refuse({"a label goes with the field of a text"}, put("in.jsonl", "{}\n"), {.messages = "m", .label = "y"}, 0,
         ExitCode::kUsage);
  const auto refused = [&](std::initializer_list<std::string> parts, const std::string& table) {
    const std::string path = put("in.csv", table);
    expect_error(ExitCode::kBadData, parts, [&] { import_csv_text(path, folder_ / "csv.h5", {"t", "y"}); });
    EXPECT_FALSE(std::filesystem::exists(folder_ / "csv.h5"));
  };
  refused({"in.csv:1: has no column 'y'"}, "t,x\na,b\n");
  refused({"in.csv:1: has two columns 't'"}, "t,y,t\na,b,c\n");
  refused({"in.csv:3: column 'y' holds no label"}, "t,y\na,b\nc, \n");
  refused({"in.csv:2: column 1: byte 5 of the table (0xFF) is invalid UTF-8", "--encoding"}, "t,y\na\xff,b\n");
  refused({"in.csv:2: column 2: byte 6"}, "t,y\na,\xe9\n");
  refused({"holds no record; 1 rows without text"}, "t,y\n,b\n");
}

}  // namespace
}  // namespace lockstep::records_test
