// JSON lines, plain or compressed: the first byte of the input says which fields make a record, by which template, and
// whether tokens are bytes or byte pairs. What was imported is whole, and every record holds a target.
#include <filesystem>

#include "data/import/import.h"
#include "data/samples/dataset_file.h"
#include "data/samples/inspect.h"
#include "data/text/tokenizer/bpe.h"
#include "tests/fuzz/fuzz.h"

using namespace lockstep;

namespace {

// A tokenizer of bytes and the templates' special tokens.
std::shared_ptr<const Vocabulary> pairs() {
  BpeTables tables;
  for (int b = 0; b < 256; ++b) tables.tokens.emplace_back(1, static_cast<char>(b));
  for (const char* text :
       {"<|im_start|>", "<|im_end|>", "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"}) {
    AddedToken token;
    token.id = static_cast<int32_t>(tables.tokens.size());
    token.text = text;
    tables.added.push_back(token);
    tables.tokens.emplace_back(text);
  }
  return std::make_shared<Vocabulary>(
      Vocabulary::byte_pairs(std::make_shared<const BytePairs>(std::move(tables), "the fuzz target's tokenizer")));
}

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t capacity, unsigned seed) {
  using namespace std::string_view_literals;
  static const std::vector<std::string_view> words = {"{\"text\":\"a\"}\n"sv,
                                                      "\"label\":1,"sv,
                                                      "\"messages\":["sv,
                                                      "{\"role\":\"assistant\",\"content\":\"b\"}"sv,
                                                      "{\"role\":\"user\",\"content\":\"\"}"sv,
                                                      "\"weight\":0,"sv,
                                                      "\"prompt\":\"x\""sv,
                                                      "\"completion\":\"y\""sv,
                                                      "\"chosen\":\"y\""sv,
                                                      "\"rejected\":["sv,
                                                      "<|im_end|>"sv,
                                                      "\\ud83d\\ude00"sv,
                                                      "\\ud800"sv,
                                                      "\\u0000"sv,
                                                      "\xef\xbb\xbf"sv,
                                                      "\x1f\x8b\x08"sv,
                                                      "\x28\xb5\x2f\xfd"sv,
                                                      "[[[[[[[["sv,
                                                      "\r\n\n"sv};
  return fuzz::mutate_with_words(data, size, capacity, seed, words);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::string input = fuzz::scratch("in.jsonl"), output = fuzz::scratch("out.h5");
  static const std::shared_ptr<const Vocabulary> tokenizer = pairs();
  if (size == 0) return 0;
  const int choice = data[0];
  fuzz::write_file(input, fuzz::text_of(data + 1, size - 1));
  JsonFields fields;
  if (choice % 3 == 0) fields.text = "text";
  if (choice % 3 == 0 && choice / 36 % 2 == 1) fields.label = "label";
  const bool pairs_of_answers = choice % 3 > 0 && choice / 36 % 2 == 1;
  if (pairs_of_answers) fields.chosen = "chosen", fields.rejected = "rejected";
  if (choice % 3 == 1) fields.prompt = "prompt";
  if (choice % 3 == 1 && !pairs_of_answers) fields.completion = "completion";
  if (choice % 3 == 2 && !pairs_of_answers) fields.messages = "messages";
  static const char* const kTemplates[] = {"chatml", "llama3", "plain"};
  if (!pairs_of_answers || choice / 72 % 2 == 1) fields.chat_template = kTemplates[choice / 3 % 3];
  ImportOptions options{.force = true};
  if (choice / 9 % 2 == 1) options.vocabulary = tokenizer;
  const int64_t skip = choice / 18 % 2 == 1 ? 3 : 0;
  if (!fuzz::is_accepted({ExitCode::kBadData}, [&] { import_json({input}, output, fields, skip, options); })) return 0;
  fuzz::is_accepted({}, [&] {
    const DatasetReport report = inspect_dataset(output);
    fuzz::expect(
        report.records > 0 && report.shortest > 0 && report.targets >= report.records && report.targets <= report.count,
        "records of ", report.count, " tokens with ", report.targets, " targets");
    fuzz::expect(report.pairs == (pairs_of_answers ? report.records / 2 : 0), report.pairs, " pairs");
  });
  std::filesystem::remove(output);
  return 0;
}
