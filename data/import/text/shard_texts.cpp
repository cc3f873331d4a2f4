#include <algorithm>
#include <memory>
#include <optional>

#include "core/base/error.h"
#include "core/base/plain_file.h"
#include "core/io/pending_file.h"
#include "data/import/import.h"
#include "data/import/line_reader.h"
#include "data/import/shard_samples.h"
#include "data/import/tables/table_import.h"

namespace lockstep {
namespace {

struct ShardText {
  std::shared_ptr<const std::string> path;  // of the file that holds it
  std::string name;                         // for messages
  TarMember member;
  std::string label;
};

// The texts of shards as a table of two columns. The texts are read when their rows are.
class ShardTexts final : public TableReader {
 public:
  ShardTexts(const std::vector<ShardText>& texts, std::vector<std::string> names) : texts_(texts) {
    names_ = std::move(names);
    for (const ShardText& t : texts) size_ += t.member.size;
  }

  bool next(std::vector<std::string>& cells) override {
    if (row_ == std::ssize(texts_)) return false;
    const ShardText& t = texts_[static_cast<size_t>(row_++)];
    if (!file_ || file_->path != *t.path) file_.emplace(*t.path);
    std::string text(static_cast<size_t>(t.member.size), '\0');
    file_->read(t.member.begin, text.data(), t.member.size);
    const int64_t bad = first_invalid(text, TextEncoding::kUtf8);
    require(bad < 0, ExitCode::kBadData, t.name, ": byte ", bad, " is invalid UTF-8");
    hasher_.update(text.data(), text.size());
    taken_ += t.member.size;
    cells = {std::move(text), t.label};
    return true;
  }
  int64_t line() const override { return row_; }
  std::string names_place() const override { return ""; }
  JsonValue value(const std::vector<std::string>& cells, size_t column) const override { return cells[column]; }
  int64_t bytes_read() const override { return taken_; }
  int64_t size() const override { return size_; }
  Hash128 hash() const override { return hasher_.digest(); }
  Position place() const override { return {row_, row_}; }
  void skip_to(const Position& place) override {
    require(place.line <= std::ssize(texts_), ExitCode::kBadData, "the shards end before the place where their import ",
            "is to go on");
    for (; row_ < place.line; ++row_) taken_ += texts_[static_cast<size_t>(row_)].member.size;
  }

 private:
  const std::vector<ShardText>& texts_;
  std::optional<InputFile> file_;
  int64_t row_ = 0, taken_ = 0, size_ = 0;
  Hasher128 hasher_;
};

// `labelled`: whether texts have labels, which the first sample tells without how.label.
std::vector<ShardText> texts_in(const Shards& shards, const std::string& where, const ShardTextOptions& how,
                                bool& labelled) {
  std::vector<ShardText> out;
  labelled = !how.label.empty();
  std::shared_ptr<const std::string> path;
  shards.each_sample([&](const ShardSample& sample, const TarPlace& place) {
    const TarMember* text = sample.find(how.text);
    require(text, ExitCode::kBadData, sample.name(), ": has no text: no member .", how.text, " among ",
            sample.extensions());
    require(text->size <= static_cast<int64_t>(LineReader::kLongestLine), ExitCode::kBadData, sample.name(), ": its .",
            how.text, " has ", text->size, " bytes, more than ", LineReader::kLongestLine);
    const bool has_class = sample.find("cls") != nullptr;
    if (how.label.empty() && out.empty()) labelled = has_class;
    require(!how.label.empty() || labelled == has_class, ExitCode::kBadData, sample.name(), ": has ",
            has_class ? "a" : "no", " member .cls, but the first sample has ", has_class ? "none" : "one");
    if (!path || *path != place.path) path = std::make_shared<std::string>(place.path);
    out.push_back({path, str(sample.shard, ": ", text->name), *text, ""});
    if (labelled) try {
        out.back().label = label_of_sample(sample, place, how.label);
      } catch (const Error& e) {
        throw e.with_message(str(sample.name(), ": ", e.what()));
      }
  });
  require(!out.empty(), ExitCode::kBadData, where, ": holds no sample");
  return out;
}

}  // namespace

void import_shard_texts(const std::vector<std::string>& paths, const std::string& output, const ShardTextOptions& how,
                        const ImportOptions& options) {
  PendingFile::check_place(output, options.force);
  const Shards shards(paths, output);
  const std::string where = name_of_shards(paths);
  bool labelled = false;
  const std::vector<ShardText> texts = texts_in(shards, where, how, labelled);
  const std::vector<std::string> names = {how.text, how.label.empty() ? ".cls" : ".json, " + how.label};
  import_table_texts({[&] { return std::make_unique<ShardTexts>(texts, names); }, where, paths}, output,
                     {.text = names[0], .label = labelled ? names[1] : "", .many_labels = how.many_labels}, options);
}

}  // namespace lockstep
