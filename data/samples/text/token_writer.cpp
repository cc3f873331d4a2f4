#include "data/samples/text/token_writer.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "data/samples/dataset_file.h"
#include "data/samples/label_index.h"

namespace lockstep {
namespace {

constexpr size_t kOnesAtOnce = 1 << 20, kEndsAtOnce = 1 << 16;

template <class Id>
void append_as(Spool& spool, std::span<const int32_t> ids) {
  const std::vector<Id> narrow(ids.begin(), ids.end());
  spool.append(narrow.data(), narrow.size() * sizeof(Id));
}

}  // namespace

TokenWriter::TokenWriter(const std::string& output, bool replace, std::unique_ptr<Vocabulary> vocabulary,
                         int64_t vocabulary_size, std::string made_of)
    : output_(output),
      output_file_(output, replace, std::move(made_of)),
      vocabulary_(std::move(vocabulary)),
      vocabulary_size_(vocabulary_ ? vocabulary_->size() : vocabulary_size),
      type_(token_type(vocabulary_size_)),
      ids_(output_file_.spool("tokens")),
      targets_(output_file_.spool("targets")),
      ends_(output_file_.spool("record_ends")),
      label_names_(output_file_.spool("label_names")),
      record_labels_(output_file_.spool("labels")),
      record_weights_(output_file_.spool(std::string(kSampleWeights))) {
  if (output_file_.found()) restore(*output_file_.found());
}

void TokenWriter::save(const JsonObject& position) {
  check(records_ == 0 || record_begin_ == tokens_, "a position within a record");
  output_file_.save({{"tokens", tokens_},
                     {"records", records_},
                     {"all_targets", all_targets_},
                     {"position", JsonText{json_line(position)}}});
}

void TokenWriter::restore(const JsonObject& state) {
  const auto rows = [](const Spool& spool, StoredType type) { return spool.size() / size_of(type); };
  tokens_ = output_file_.found_integer(state, "tokens", 0, rows(ids_, type_));
  records_ = output_file_.found_integer(state, "records", 0, tokens_);
  record_begin_ = records_ > 0 ? tokens_ : 0;
  all_targets_ = json_bool(state, "all_targets").value_or(true);
  found_ = parse_json_object(text_of(state, "position"));
  const bool fits = ids_.size() == tokens_ * size_of(type_) && ends_.size() == records_ * size_of(StoredType::kInt64) &&
                    targets_.size() == (all_targets_ ? 0 : tokens_) && found_ && has_record_ends();
  if (!fits) output_file_.refuse_found("does not fit what was written");
  std::string names(static_cast<size_t>(label_names_.size()), '\0');
  label_names_.read(0, names.data(), names.size());
  int64_t count = 0;
  for (size_t at = 0, end; at < names.size(); at = end + 1, ++count) {
    end = std::min(names.find('\n', at), names.size());
    label_numbers_.emplace(names.substr(at, end - at), static_cast<int32_t>(count));
  }
  labels_.resize(static_cast<size_t>(record_labels_.size()) / sizeof(int32_t));
  record_labels_.read(0, labels_.data(), labels_.size() * sizeof(int32_t));
  const bool numbered = std::all_of(labels_.begin(), labels_.end(), [&](int32_t n) { return n >= 0 && n < count; });
  if (!numbered || static_cast<int64_t>(label_numbers_.size()) != count || count > kMostClasses ||
      record_labels_.size() != (labels_.empty() ? 0 : records_ * static_cast<int64_t>(sizeof(int32_t))))
    output_file_.refuse_found("does not fit the labels that were written");
  weights_.resize(labels_.size());
  if (record_weights_.size() != std::ssize(weights_) * static_cast<int64_t>(sizeof(float)))
    output_file_.refuse_found("does not fit the weights that were written");
  record_weights_.read(0, weights_.data(), weights_.size() * sizeof(float));
}

// Whether what was found are the ends of records that follow each other up to the last token.
bool TokenWriter::has_record_ends() const {
  std::vector<int64_t> some(kEndsAtOnce);
  int64_t before = 0;
  for (int64_t at = 0; at < records_; at += static_cast<int64_t>(some.size())) {
    some.resize(static_cast<size_t>(std::min<int64_t>(records_ - at, static_cast<int64_t>(kEndsAtOnce))));
    ends_.read(at * size_of(StoredType::kInt64), some.data(), some.size() * sizeof some[0]);
    for (int64_t end : some)
      if (end <= std::exchange(before, end)) return false;
  }
  return records_ == 0 || before == tokens_;
}

void TokenWriter::add(std::span<const int32_t> ids, std::span<const uint8_t> targets) {
  check(targets.empty() || targets.size() == ids.size(), "marks for ", targets.size(), " of ", ids.size(), " tokens");
  if (type_ == StoredType::kUInt8) append_as<uint8_t>(ids_, ids);
  else if (type_ == StoredType::kUInt16) append_as<uint16_t>(ids_, ids);
  else append_as<uint32_t>(ids_, ids);
  if (all_targets_ && std::find(targets.begin(), targets.end(), 0) != targets.end()) {
    all_targets_ = false;
    append_ones(tokens_);
  }
  if (!all_targets_ && targets.empty()) append_ones(static_cast<int64_t>(ids.size()));
  else if (!all_targets_) targets_.append(targets.data(), targets.size());
  tokens_ += static_cast<int64_t>(ids.size());
}

void TokenWriter::append_ones(int64_t count) {
  const std::vector<uint8_t> ones(kOnesAtOnce, 1);
  for (int64_t left = count; left > 0; left -= static_cast<int64_t>(kOnesAtOnce))
    targets_.append(ones.data(), std::min(ones.size(), static_cast<size_t>(left)));
}

void TokenWriter::end_record() {
  check(tokens_ > record_begin_, "an empty record");
  record_begin_ = tokens_;
  ++records_;
  ends_.append(&tokens_, sizeof tokens_);
}

void TokenWriter::end_record(const std::string& label, float weight) {
  const auto [named, is_new] = label_numbers_.emplace(label, static_cast<int32_t>(label_numbers_.size()));
  if (is_new) label_names_.append((label + "\n").data(), label.size() + 1);
  const int32_t number = named->second;
  require(static_cast<int64_t>(label_numbers_.size()) <= kMostClasses, ExitCode::kBadData, "there are more than ",
          kMostClasses, " different labels");
  labels_.push_back(number);
  record_labels_.append(&number, sizeof number);
  weights_.push_back(weight);
  record_weights_.append(&weight, sizeof weight);
  end_record();
}

void TokenWriter::require_few_labels(const std::string& where, bool many_are_meant) const {
  const auto labels = static_cast<int64_t>(label_numbers_.size());
  require(many_are_meant || labels <= kManyLabels, ExitCode::kBadData, where, " has ", labels, " different labels in ",
          records_, " records; --many-labels makes a class of each");
}

void TokenWriter::set_classes(int64_t classes, std::vector<std::string> names) {
  check(records_ == 0 && classes > 0, "labels below ", classes, " after ", records_, " records");
  classes_ = classes;
  class_names_ = std::move(names);
}

void TokenWriter::end_record(int32_t label, float weight) {
  check(label >= 0 && label < classes_, "label ", label, " of ", classes_);
  labels_.push_back(label);
  weights_.push_back(weight);
  end_record();
}

void TokenWriter::write_labels_of(Hdf5File& file, DatasetHeader& header) {
  check(static_cast<int64_t>(labels_.size()) == records_, labels_.size(), " labels of ", records_, " records");
  header.records.labelled = true;
  if (classes_ > 0) {
    header.classes = classes_;
    header.class_names = class_names_;
    return write_labels(file, labels_, header);
  }
  std::set<std::string> names;
  for (const auto& [name, number] : label_numbers_) names.insert(name);
  const auto index = index_of_labels(names, output_, header.class_names);
  std::vector<int32_t> final_of(label_numbers_.size());
  for (const auto& [name, number] : label_numbers_) final_of[static_cast<size_t>(number)] = index.at(name);
  for (int32_t& label : labels_) label = final_of[static_cast<size_t>(label)];
  header.classes = static_cast<int64_t>(names.size());
  if (like_) fit_to(header, labels_, *like_, output_);
  write_labels(file, labels_, header);
  if (!like_) warn_of_label_order(output_, labels_, header.classes);  // what is like other data is seldom split
}

void TokenWriter::close(const ProgressCallback& progress) {
  check(tokens_ > 0 && (records_ == 0 || record_begin_ == tokens_), "a dataset of ", tokens_, " tokens, of which ",
        tokens_ - record_begin_, " are in no record");
  Hdf5File file = Hdf5File::create(output_file_.dataset());
  DatasetHeader header;
  header.kind = DataKind::kTokens;
  header.tokens = tokens_;
  header.vocabulary_size = vocabulary_size_;
  header.vocabulary = std::move(vocabulary_);
  const auto copy = [&](const char* name, StoredType type, int64_t rows, Spool& spool, const ProgressCallback& p = {}) {
    return copy_rows(file, name, type, {rows}, tokens_per_chunk(), spool, p);
  };
  header.hashes = copy("tokens", type_, tokens_, ids_, progress);
  header.records.count = records_;
  header.records.paired = paired_;
  check(!paired_ || records_ % 2 == 0, "pairs of ", records_, " records");
  if (records_ > 0) header.records.end_hashes = copy("record_ends", StoredType::kInt64, records_, ends_);
  if (records_ > 0 && !all_targets_)
    header.records.target_hashes = copy("targets", StoredType::kUInt8, tokens_, targets_);
  if (!labels_.empty()) write_labels_of(file, header), write_weights(file, weights_, header);
  write_dataset_header(file, header);
  file.close();
}

}  // namespace lockstep
