#include "data/token_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>
#include <vector>

#include "core/base/error.h"
#include "data/dataset_file.h"
#include "data/label_index.h"

namespace lockstep {
namespace {

constexpr size_t kSpoolBlock = 1 << 20;
constexpr int64_t kRowsAtOnce = 1 << 18;

// Copies `rows` values out of a spool into a dataset of the file. Returns the chunk hashes.
std::vector<uint64_t> copy_rows(Hdf5File& file, const std::string& name, StoredType type, const Spool& spool,
                                int64_t rows) {
  ChunkWriter writer(file, name, type, {rows}, tokens_per_chunk());
  std::vector<uint8_t> bytes;
  for (int64_t at = 0; at < rows; at += kRowsAtOnce) {
    const int64_t count = std::min(kRowsAtOnce, rows - at);
    bytes.resize(static_cast<size_t>(count * size_of(type)));
    spool.read(at * size_of(type), bytes.data(), bytes.size());
    writer.append(bytes.data(), count);
  }
  return writer.finish();
}

template <class Id>
void append_as(Spool& spool, std::span<const int32_t> ids) {
  const std::vector<Id> narrow(ids.begin(), ids.end());
  spool.append(narrow.data(), narrow.size() * sizeof(Id));
}

}  // namespace

Spool::Spool(const std::string& beside) : beside_(beside) {
  const std::string name = temporary_name(beside, "spool");
  file_ = Descriptor(::open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  require(bool{file_}, ExitCode::kStorage, name, ": cannot be made: ", std::strerror(errno));
  ::unlink(name.c_str());
}

void Spool::append(const void* bytes, size_t count) {
  pending_.append(static_cast<const char*>(bytes), count);
  if (pending_.size() >= kSpoolBlock) flush();
}

void Spool::flush() {
  require(write_all(file_, pending_), ExitCode::kStorage, beside_, ": cannot be written: ", std::strerror(errno));
  pending_.clear();
}

void Spool::read(int64_t offset, void* to, size_t count) const {
  char* out = static_cast<char*>(to);
  while (count > 0) {
    const ssize_t got = ::pread(file_.number(), out, count, offset);
    if (got < 0 && errno == EINTR) continue;
    require(got > 0, ExitCode::kStorage, beside_,
            ": what was written for it cannot be read back: ", got < 0 ? std::strerror(errno) : "it is shorter");
    out += got;
    offset += got;
    count -= static_cast<size_t>(got);
  }
}

TokenWriter::TokenWriter(const std::string& output, bool replace, std::unique_ptr<Vocabulary> vocabulary,
                         int64_t vocabulary_size)
    : output_(output),
      pending_(output, replace),
      vocabulary_(std::move(vocabulary)),
      vocabulary_size_(vocabulary_ ? vocabulary_->size() : vocabulary_size),
      type_(token_type(vocabulary_size_)),
      ids_(output),
      targets_(output),
      ends_(output) {}

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
  const std::vector<uint8_t> ones(kSpoolBlock, 1);
  for (int64_t left = count; left > 0; left -= static_cast<int64_t>(kSpoolBlock))
    targets_.append(ones.data(), std::min(ones.size(), static_cast<size_t>(left)));
}

void TokenWriter::end_record() {
  check(tokens_ > record_begin_, "an empty record");
  record_begin_ = tokens_;
  ++records_;
  ends_.append(&tokens_, sizeof tokens_);
}

void TokenWriter::end_record(const std::string& label) {
  const auto number = label_numbers_.emplace(label, static_cast<int32_t>(label_numbers_.size())).first->second;
  require(static_cast<int64_t>(label_numbers_.size()) <= kMostClasses, ExitCode::kBadData, "there are more than ",
          kMostClasses, " different labels");
  labels_.push_back(number);
  end_record();
}

void TokenWriter::set_classes(int64_t classes, std::vector<std::string> names) {
  check(records_ == 0 && classes > 0, "labels below ", classes, " after ", records_, " records");
  classes_ = classes;
  class_names_ = std::move(names);
}

void TokenWriter::end_record(int32_t label) {
  check(label >= 0 && label < classes_, "label ", label, " of ", classes_);
  labels_.push_back(label);
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
  write_labels(file, labels_, header);
  warn_of_label_order(output_, labels_, header.classes);
}

void TokenWriter::close() {
  check(tokens_ > 0 && (records_ == 0 || record_begin_ == tokens_), "a dataset of ", tokens_, " tokens, of which ",
        tokens_ - record_begin_, " are in no record");
  for (Spool* spool : {&ids_, &targets_, &ends_}) spool->flush();
  Hdf5File file = Hdf5File::create(pending_.temporary());
  DatasetHeader header;
  header.kind = DataKind::kTokens;
  header.tokens = tokens_;
  header.vocabulary_size = vocabulary_size_;
  header.vocabulary = std::move(vocabulary_);
  header.hashes = copy_rows(file, "tokens", type_, ids_, tokens_);
  header.records.count = records_;
  header.records.paired = paired_;
  check(!paired_ || records_ % 2 == 0, "pairs of ", records_, " records");
  if (records_ > 0) header.records.end_hashes = copy_rows(file, "record_ends", StoredType::kInt64, ends_, records_);
  if (records_ > 0 && !all_targets_)
    header.records.target_hashes = copy_rows(file, "targets", StoredType::kUInt8, targets_, tokens_);
  if (!labels_.empty()) write_labels_of(file, header);
  write_dataset_header(file, header);
  file.close();
}

void TokenWriter::commit() { pending_.commit(); }

}  // namespace lockstep
