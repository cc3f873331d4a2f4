// The objects of a JSON input, in lines or in one list: of a list that is JSON the elements are those of the parser,
// and a reading that goes on behind a record gives the rest.
#include "core/io/json.h"
#include "data/import/record_reader.h"
#include "tests/fuzz/fuzz.h"

using namespace lockstep;

namespace {

struct Read {
  std::vector<std::string> records;
  int64_t byte = 0, lines = 0;  // behind the first record
};

Read read_all(const std::string& path, int64_t byte, int64_t lines) {
  Read out;
  RecordReader reader(path, byte, lines);
  for (std::string_view record; reader.next(record);) {
    fuzz::expect(!reader.too_long() && reader.number() > lines, "record ", out.records.size(), " in line ",
                 reader.number());
    out.records.emplace_back(record);
    if (out.records.size() == 1) out.byte = reader.taken(), out.lines = reader.lines();
  }
  return out;
}

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t capacity, unsigned seed) {
  static const std::vector<std::string_view> words = {"[",  "]",    "{\"a\":1}",    ",", "\n",   "\r\n",        "\"",
                                                      "\\", "\\\"", "\xEF\xBB\xBF", " ", "[[]]", "\"]\",\"[\"", "null"};
  return fuzz::mutate_with_words(data, size, capacity, seed, words);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::string path = fuzz::scratch("in.json");
  const std::string_view text = fuzz::text_of(data, size);
  if (text.starts_with("\x1f\x8b") || text.starts_with("\x28\xb5\x2f\xfd")) return 0;  // compressed
  fuzz::write_file(path, text);
  Read whole;
  const bool accepted = fuzz::is_accepted({ExitCode::kBadData}, [&] { whole = read_all(path, 0, 0); });
  const auto list = parse_json_array(text);
  // The parser takes a byte of zero for the end of a text.
  if (list && text.find('\0') == text.npos) {
    fuzz::expect(accepted && whole.records.size() == list->size(), "a list of ", list->size(), " has ",
                 whole.records.size(), " records");
    for (size_t i = 0; i < list->size(); ++i)
      fuzz::expect(parse_json_array(str("[", whole.records[i], "]")) == std::vector<JsonValue>{(*list)[i]}, "record ",
                   i, " is another one: ", whole.records[i]);
  }
  if (!accepted || whole.records.empty()) return 0;
  fuzz::is_accepted({}, [&] {
    const Read rest = read_all(path, whole.byte, whole.lines);
    fuzz::expect(std::equal(rest.records.begin(), rest.records.end(), whole.records.begin() + 1, whole.records.end()),
                 "another rest behind the first record");
  });
  return 0;
}
