#include "launch/arguments/find_vocabulary.h"

#include <filesystem>

#include "core/base/error.h"
#include "core/state/checkpoint.h"
#include "data/import/import.h"
#include "data/text/tokenizer/tokenizer_file.h"

namespace lockstep {

std::shared_ptr<const Vocabulary> find_vocabulary(const std::string& from, PlainFile file, LengthRules rules) {
  std::error_code error;
  std::unique_ptr<Vocabulary> found;
  const bool folder = std::filesystem::is_directory(from, error);
  if (folder && !has_tokenizer(from)) {
    found = parse_vocabulary(open_newest(from).info.vocabulary);
    require(found != nullptr, ExitCode::kBadData, from, ": was not trained on text, so it has no vocabulary");
  } else if (!folder && is_hdf5_file(from)) {
    found = vocabulary_of_dataset(from);
    require(found != nullptr, ExitCode::kBadData, from,
            ": has no vocabulary, because its ids come from another tokenizer (level ids)");
  } else if (folder || file == PlainFile::kJson) {
    found = std::make_unique<Vocabulary>(vocabulary_of_tokenizer(from, rules));
  } else {
    found = vocabulary_of_text(from);
  }
  return found;
}

Option whole_texts_option() {
  return {"whole-texts", "encode texts whole though tokenizer.json has truncation or padding, which is else refused"};
}

Option template_values_option(const std::string& readers) {
  return {"template-values",
          readers + "what the chat template may ask for, in every conversation: {\"enable_thinking\": false}", "JSON",
          ""};
}

LengthRules length_rules(const Arguments& arguments) {
  return arguments.has("whole-texts") ? LengthRules::kIgnore : LengthRules::kRefuse;
}

Option invalid_option() {
  return {"invalid", "bytes that are no UTF-8: refuse them, or replace them by U+FFFD; default: refuse", "HOW", ""};
}

InvalidBytes invalid_bytes(const Arguments& arguments) {
  const std::string& how = arguments.text("invalid");
  require(how.empty() || how == "refuse" || how == "replace", ExitCode::kUsage, "--invalid ", how,
          ": must be refuse or replace");
  return how == "replace" ? InvalidBytes::kReplace : InvalidBytes::kRefuse;
}

}  // namespace lockstep
