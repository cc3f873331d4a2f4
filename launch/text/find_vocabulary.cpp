#include "launch/text/find_vocabulary.h"

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

}  // namespace lockstep
