#include <algorithm>
#include <map>

#include "core/base/error.h"
#include "core/io/json.h"
#include "data/import/rearrange.h"
#include "data/samples/sample_kind.h"

namespace lockstep {
namespace {

// What the output is, as more inputs are looked at.
class Merged {
 public:
  // keeps_first: mean, deviation and offsets are those of the first input.
  Merged(const std::string& first, bool keeps_first) : first_(first), keeps_first_(keeps_first) {}

  void add(const std::string& path) {
    const auto file = open_dataset_file(path, kCopyMemory);
    const DatasetHeader& h = file->header;
    if (inputs_++ == 0) {
      header = described_as(h);
      header.records.count = h.records.count;
    } else {
      require_alike(path, h);
      header.classes = std::max(header.classes, h.classes);
      header.columns = joined_columns(path, h.columns);
      if (!keeps_first_) join_offsets(h);
    }
    samples += sample_count(h);
    rows += file->rows->size();
    target_rows += h.target_parts.of({0, sample_count(h)}).size();
  }

  // The number here of each label of a file; empty where they are the same.
  std::vector<int32_t> labels_of(const std::string& path, const DatasetHeader& h) const {
    if (h.class_names == header.class_names) return {};
    require(!h.class_names.empty() && !header.class_names.empty(), ExitCode::kBadData, path,
            ": cannot be merged: labels have names in ", h.class_names.empty() ? first_ : path, " and none in ",
            h.class_names.empty() ? path : first_);
    std::map<std::string, int32_t> numbers;
    for (const std::string& name : header.class_names) numbers.emplace(name, static_cast<int32_t>(numbers.size()));
    std::vector<int32_t> out;
    for (const std::string& name : h.class_names) {
      const auto at = numbers.find(name);
      require(at != numbers.end(), ExitCode::kBadData, path, ": cannot be merged: its label '", name,
              "' is none of those of ", first_);
      out.push_back(at->second);
    }
    return out;
  }

  DatasetHeader header;
  int64_t samples = 0, rows = 0, target_rows = 0;

 private:
  template <class... Parts>
  void require_same(bool same, const std::string& path, const Parts&... parts) const {
    require(same, ExitCode::kBadData, path, ": cannot be merged with ", first_, ": ", parts...);
  }

  void require_alike(const std::string& path, const DatasetHeader& h) const {
    const SampleKind &kind = sample_kind(h.kind), &first = sample_kind(header.kind);
    require_same(&kind == &first, path, "one holds ", kind.words().content, ", the other ", first.words().content);
    const std::string difference = kind.difference(h, header);
    require_same(difference.empty(), path, difference);
    labels_of(path, h);
  }

  // Descriptions of the same columns, but for how many of their cells were missing.
  std::string joined_columns(const std::string& path, const std::string& other) const {
    if (other == header.columns && other.empty()) return "";
    const auto ours = parse_json_array(header.columns), theirs = parse_json_array(other);
    require_same(ours && theirs && ours->size() == theirs->size(), path, "they have different columns");
    std::vector<JsonObject> out;
    for (size_t c = 0; c < ours->size(); ++c) {
      const auto a = column(path, (*ours)[c]), b = column(path, (*theirs)[c]);
      require_same(text_of(a, "name") == text_of(b, "name"), path, "column ", c, " is '", text_of(a, "name"),
                   "' in one and '", text_of(b, "name"), "' in the other");
      require_same(without_missing(a) == without_missing(b), path, "column ", c, ", '", text_of(a, "name"),
                   "', has other categories, or another type or form of numbers");
      out.push_back(a);
      for (auto& [key, value] : out.back())
        if (key == "missing") value = integer_of(a, "missing") + integer_of(b, "missing");
    }
    std::string text = json_array(out).text;
    std::erase(text, '\n');  // those between values; within a text they are escaped
    return text;
  }
  JsonObject column(const std::string& path, const JsonValue& value) const {
    const auto* text = std::get_if<JsonText>(&value);
    const auto object = text ? parse_json_object(text->text) : std::nullopt;
    require_same(object.has_value(), path, "their columns are not described by objects");
    return *object;
  }
  static JsonObject without_missing(JsonObject o) {
    std::erase_if(o, [](const auto& member) { return member.first == "missing"; });
    return o;
  }

  // Of each feature, and of targets, the first that there is.
  void join_offsets(const DatasetHeader& h) {
    if (header.offset.empty()) header.offset = h.offset;
    for (size_t c = 0; c < h.offset.size(); ++c)
      if (header.offset[c] == 0) header.offset[c] = h.offset[c];
    if (header.target_offset == 0) header.target_offset = h.target_offset;
  }

  std::string first_;
  bool keeps_first_;
  int64_t inputs_ = 0;
};

}  // namespace

void merge_datasets(const std::vector<std::string>& inputs, const std::string& output, const MergeOptions& options) {
  Merged merged(inputs.front(), options.keep_normalization);
  for (const std::string& path : inputs) merged.add(path);
  const auto writer = make_sample_writer({output, options.force, described_as(merged.header), merged.samples,
                                          merged.rows, merged.target_rows, !options.keep_normalization});
  int64_t before = 0;
  for (const std::string& path : inputs) {
    const auto file = open_dataset_file(path, kCopyMemory);
    const IndexRange all{0, sample_count(file->header)};
    copy_samples(file, all, merged.labels_of(path, file->header), *writer, [&](int64_t end) {
      if (options.progress) options.progress(before + end, merged.samples);
    });
    before += all.end;
  }
  writer->close();
  writer->output().commit();
}

}  // namespace lockstep
