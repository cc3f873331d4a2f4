#include "data/import/tables/columnar_table.h"

#include <arrow/buffer.h>
#include <arrow/io/file.h>
#include <arrow/ipc/reader.h>
#include <arrow/record_batch.h>
#include <parquet/arrow/reader.h>
#include <parquet/arrow/schema.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <string_view>
#include <utility>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/base/plain_file.h"
#include "data/import/tables/columnar_cells.h"

namespace lockstep {
namespace {

constexpr int64_t kRowsAtOnce = 4096;

// What an open file gives: batches of the columns that were asked for.
using Batches = std::function<std::shared_ptr<arrow::RecordBatch>()>;  // null at the end

// One file. Every error of Arrow's library becomes one that names it.
class ColumnarFile {
 public:
  explicit ColumnarFile(const std::string& path) : path_(path) {
    const InputFile there(path);  // what is missing or no file is told as for any input
    size_ = there.size;
    std::string head(8, '\0');
    head.resize(static_cast<size_t>(std::min<int64_t>(there.size, 8)));
    there.read(0, head.data(), static_cast<int64_t>(head.size()));
    guarded([&] {
      file_ = of(arrow::io::ReadableFile::Open(path));
      if (head.starts_with("PAR1")) open_parquet();
      else if (head.starts_with("ARROW1")) open_arrow();
      else if (head.starts_with("\xFF\xFF\xFF\xFF")) open_stream(there);
      else
        throw Error(ExitCode::kBadData,
                    str(path, ": is neither Parquet nor Arrow",
                        head.starts_with("FEA1")
                            ? ", but Feather's first "
                              "version, which is not read: python3 -c \"import pandas; pandas.read_feather('" +
                                  path + "').to_parquet('" + path + ".parquet')\" makes a file of it that is read"
                            : ""));
    });
  }
  const arrow::Schema& schema() const { return *schema_; }

  // Of these columns, by their numbers in the schema, in rising order; to be called once.
  void choose(const std::vector<int>& columns) {
    guarded([&] { batches_ = open_batches_(columns); });
  }
  int64_t size() const { return size_; }                                                            // bytes
  int64_t bytes_read() const { return static_cast<int64_t>(static_cast<double>(size_) * share_); }  // about
  // The next rows; null at the end.
  std::shared_ptr<arrow::RecordBatch> next() {
    std::shared_ptr<arrow::RecordBatch> out;
    guarded([&] {
      out = batches_();
      if (out) done(out->ValidateFull());
    });
    return out;
  }

 private:
  template <class Body>
  void guarded(const Body& body) const {
    try {
      body();
    } catch (const Error&) {
      throw;
    } catch (const std::exception& e) {
      fail(e.what());
    }
  }
  [[noreturn]] void fail(std::string why) const {
    std::replace(why.begin(), why.end(), '\n', ' ');
    throw Error(ExitCode::kBadData, str(path_, ": cannot be read: ", why));
  }
  void done(const arrow::Status& status) const {
    if (!status.ok()) fail(status.ToString());
  }
  template <class Value>
  Value of(arrow::Result<Value> result) const {
    done(result.status());
    return std::move(result).ValueUnsafe();
  }

  void open_parquet() {
    parquet::ReaderProperties pages;
    pages.enable_buffered_stream();              // page by page: a row group may be as large as the file
    pages.set_page_checksum_verification(true);  // of pages that have one
    parquet::ArrowReaderProperties batches;
    batches.set_batch_size(kRowsAtOnce);
    batches.set_pre_buffer(false);
    parquet::arrow::FileReaderBuilder builder;
    done(builder.Open(file_, pages));
    const std::shared_ptr<parquet::arrow::FileReader> reader = of(builder.properties(batches)->Build());
    done(reader->GetSchema(&schema_));
    open_batches_ = [this, reader](const std::vector<int>& columns) -> Batches {
      std::vector<int> leaves, groups;
      for (int c : columns) leaves.push_back(reader->manifest().schema_fields.at(static_cast<size_t>(c)).column_index);
      for (int g = 0; g < reader->num_row_groups(); ++g) groups.push_back(g);
      const std::shared_ptr<arrow::RecordBatchReader> rows = of(reader->GetRecordBatchReader(groups, leaves));
      const auto total = static_cast<double>(reader->parquet_reader()->metadata()->num_rows());
      return [this, reader, rows, total, taken = 0.0]() mutable {
        const std::shared_ptr<arrow::RecordBatch> batch = of(rows->Next());
        taken += batch ? static_cast<double>(batch->num_rows()) : 0;
        share_ = total > 0 ? taken / total : 1;
        return batch;
      };
    };
  }

  void open_arrow() {
    schema_ = of(arrow::ipc::RecordBatchFileReader::Open(file_))->schema();
    open_batches_ = [this](const std::vector<int>& columns) -> Batches {
      arrow::ipc::IpcReadOptions options;
      options.included_fields = columns;
      options.use_threads = false;
      const auto reader = of(arrow::ipc::RecordBatchFileReader::Open(file_, options));
      return [this, reader, at = 0]() mutable -> std::shared_ptr<arrow::RecordBatch> {
        if (at == reader->num_record_batches()) return nullptr;
        share_ = (at + 1.0) / reader->num_record_batches();
        return of(reader->ReadRecordBatch(at++));
      };
    };
  }

  void open_stream(const InputFile& there) {
    // The library takes a stream that ends behind any batch for whole.
    constexpr std::string_view kEnd("\xFF\xFF\xFF\xFF\0\0\0\0", 8);
    std::string end(kEnd.size(), '\0');
    there.read(std::max<int64_t>(0, size_ - 8), end.data(), 8);
    require(end == kEnd, ExitCode::kBadData, path_, ": is truncated: it ends without the mark of a stream's end");
    schema_ = of(arrow::ipc::RecordBatchStreamReader::Open(file_.get()))->schema();
    open_batches_ = [this](const std::vector<int>& columns) -> Batches {
      arrow::ipc::IpcReadOptions options;
      options.included_fields = columns;
      options.use_threads = false;
      done(file_->Seek(0));
      const auto reader = of(arrow::ipc::RecordBatchStreamReader::Open(file_.get(), options));
      return [this, reader] {
        const std::shared_ptr<arrow::RecordBatch> batch = of(reader->Next());
        share_ = static_cast<double>(of(file_->Tell())) / static_cast<double>(size_);
        return batch;
      };
    };
  }

  const std::string path_;
  std::shared_ptr<arrow::io::ReadableFile> file_;
  int64_t size_ = 0;
  double share_ = 0;  // of the file that was read
  std::shared_ptr<arrow::Schema> schema_;
  std::function<Batches(const std::vector<int>& columns)> open_batches_;
  Batches batches_;
};

class ColumnarTable final : public TableReader {
 public:
  explicit ColumnarTable(std::vector<std::string> files) : files_(std::move(files)) {
    file_ = std::make_unique<ColumnarFile>(files_.at(0));
    std::string index;
    for (int i = 0; i < file_->schema().num_fields(); ++i) {
      const std::string& name = file_->schema().field(i)->name();
      if (name.starts_with("__index_level_")) index = name;
      else fields_.push_back(i), names_.push_back(name);
    }
    require(!names_.empty(), ExitCode::kBadData, files_[0], ": has no column");
    if (!index.empty()) log_warning(str(files_[0], ": column '", index, "' is an index of pandas, and left out"));
    for (const std::string& path : files_) bytes_ += InputFile(path).size;
    types_ = file_->schema().ToString();
  }

  void need(size_t column) override {
    check(!begun_, "columns are asked for before the first row");
    const arrow::Field& field = *file_->schema().field(fields_[column]);
    require(has_cells(*field.type()), ExitCode::kBadData, files_[0], ": column '", field.name(), "' holds ",
            field.type()->ToString(), ", which no cell is made of: leave the column out, or store numbers or texts ",
            "in its place");
    needed_.push_back(column);
  }

  bool next(std::vector<std::string>& cells) override {
    if (!find_row()) return false;
    cells.assign(names_.size(), "");
    for (size_t i = 0; i < needed_.size(); ++i) {
      std::string& cell = cells[needed_[i]];
      cell = cell_text(*columns_[i], in_batch_);
      const auto size = static_cast<uint64_t>(cell.size());
      hasher_.update(&size, sizeof size);
      hasher_.update(cell.data(), cell.size());
    }
    ++in_batch_, ++row_;
    return true;
  }

  int64_t line() const override { return row_; }
  std::string names_place() const override { return ""; }
  JsonValue value(const std::vector<std::string>& cells, size_t column) const override { return cells[column]; }
  bool is_number(size_t column) const override { return has_numbers(*file_->schema().field(fields_[column])->type()); }
  int64_t bytes_read() const override { return bytes_done_ + file_->bytes_read(); }
  int64_t size() const override { return bytes_; }
  Hash128 hash() const override { return hasher_.digest(); }
  Position place() const override { return {row_, row_}; }
  void skip_to(const Position& place) override {
    for (; row_ < place.line && find_row();) {
      const int64_t count = std::min(place.line - row_, batch_->num_rows() - in_batch_);
      in_batch_ += count, row_ += count;
    }
    require(row_ == place.line, ExitCode::kBadData, files_[0], ": ends before the place where its import is to go on");
  }

 private:
  // Makes batch_ one that holds the next row; false behind the last one.
  bool find_row() {
    if (!std::exchange(begun_, true)) begin_file();
    while (!batch_ || in_batch_ == batch_->num_rows()) {
      batch_ = file_->next();
      in_batch_ = 0;
      if (batch_) {
        columns_.clear();
        for (size_t column : needed_)
          columns_.push_back(
              batch_->column(static_cast<int>(std::find(read_.begin(), read_.end(), fields_[column]) - read_.begin())));
        continue;
      }
      if (at_ + 1 == files_.size()) return false;
      ++at_;
      bytes_done_ += file_->size();
      file_ = std::make_unique<ColumnarFile>(files_[at_]);
      require(file_->schema().ToString() == types_, ExitCode::kBadData, files_[at_],
              ": has other columns or types than ", files_[0]);
      begin_file();
    }
    return true;
  }
  void begin_file() {
    read_.clear();
    for (size_t column : needed_) read_.push_back(fields_[column]);
    std::sort(read_.begin(), read_.end());
    read_.erase(std::unique(read_.begin(), read_.end()), read_.end());
    file_->choose(read_);
  }

  const std::vector<std::string> files_;
  size_t at_ = 0;  // of the open file
  std::unique_ptr<ColumnarFile> file_;
  std::string types_;
  std::vector<int> fields_;     // of each column, its number in the schema
  std::vector<size_t> needed_;  // columns
  std::vector<int> read_;       // the fields of these, in rising order: the columns of a batch
  std::shared_ptr<arrow::RecordBatch> batch_;
  std::vector<std::shared_ptr<arrow::Array>> columns_;  // of the batch, as needed_
  int64_t in_batch_ = 0, row_ = 0, bytes_ = 0, bytes_done_ = 0;
  bool begun_ = false;
  Hasher128 hasher_;
};

}  // namespace

bool reads_columnar() { return true; }

std::unique_ptr<TableReader> open_columnar(const std::vector<std::string>& files) {
  return std::make_unique<ColumnarTable>(files);
}

}  // namespace lockstep
