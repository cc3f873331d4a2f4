#include "data/samples/sample_kind.h"

#include <algorithm>

#include "core/base/error.h"

namespace lockstep {

// Each in a file of its own in data/samples/kinds.
const SampleKind& text_kind();
const SampleKind& image_kind();
const SampleKind& table_kind();

const std::vector<const SampleKind*>& sample_kinds() {
  static const std::vector<const SampleKind*> all = {&text_kind(), &image_kind(), &table_kind()};
  return all;
}

const SampleKind& sample_kind(DataKind kind) { return *sample_kinds()[static_cast<size_t>(kind)]; }

size_t kind_of_name(const std::string& name) {
  const auto& all = sample_kinds();
  const auto has_name = [&](const SampleKind* kind) { return kind->words().name == name; };
  return static_cast<size_t>(std::find_if(all.begin(), all.end(), has_name) - all.begin());
}

size_t kind_of_stored(const std::string& stored) {
  const auto& all = sample_kinds();
  const auto stores = [&](const SampleKind* kind) {
    const std::vector<std::string> names = kind->stored_names();
    return std::find(names.begin(), names.end(), stored) != names.end();
  };
  return static_cast<size_t>(std::find_if(all.begin(), all.end(), stores) - all.begin());
}

ShownSample SampleKind::show(const std::shared_ptr<const DatasetFile>& file, int64_t) const {
  throw Error(ExitCode::kBadData, str(file->path, ": holds no text"));
}

}  // namespace lockstep
