#include <algorithm>
#include <optional>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/io/json.h"
#include "data/import/import.h"
#include "data/import/import_threads.h"
#include "data/import/in_order.h"
#include "data/import/made_records.h"
#include "data/import/tables/csv.h"
#include "data/import/tables/table_cells.h"
#include "data/import/tables/table_import.h"
#include "data/import/tables/table_reader.h"
#include "data/samples/label_index.h"

namespace lockstep {
namespace {

size_t column_named(const TableReader& rows, const std::string& where, const std::string& name) {
  const std::vector<std::string>& names = rows.names();
  const auto found = std::find(names.begin(), names.end(), name);
  require(found != names.end(), ExitCode::kBadData, where, rows.names_place(), ": ", no_column_text(name, names));
  require(std::find(found + 1, names.end(), name) == names.end(), ExitCode::kBadData, where, rows.names_place(),
          ": has two columns '", name, "'");
  return static_cast<size_t>(found - names.begin());
}

struct TextRow {
  int64_t line;
  std::string text, label, weight;
};

// Some rows of the table, and the records that were made of them.
struct TextRows {
  std::vector<TextRow> rows;
  TableReader::Position behind;
  int64_t done = 0;
  MadeRecords made;
};

constexpr size_t kTextAtOnce = 256 << 10;  // bytes

class TextTableImport {
 public:
  TextTableImport(const TableSource& source, const std::string& output, const CsvTextColumns& columns,
                  const ImportOptions& options)
      : columns_(columns),
        path_(source.name),
        options_(options),
        vocabulary_(options.vocabulary ? *options.vocabulary : Vocabulary::bytes()),
        threads_(import_threads(options)),
        encoders_(record_encoders(vocabulary_, threads_)),
        rows_(source.open()),
        writer_(output, options.force, std::make_unique<Vocabulary>(vocabulary_), 0,
                made_of(str("table, names of labels, columns ", json_text_of(columns.text), " ",
                            json_text_of(columns.label), " ", json_text_of(columns.weight),
                            columns.encoding == TextEncoding::kUtf8 ? "" : str(", encoding ", int(columns.encoding))),
                        vocabulary_, options.separator, source.files)) {
    require(options.separator.empty() || vocabulary_.has_tokenizer(), ExitCode::kUsage,
            "a separator is an added token of a tokenizer; bytes and characters have none");
    if (!options.separator.empty()) encoders_[0]->need_token(options.separator, "the separator");
    text_ = column_named(*rows_, path_, columns.text);
    rows_->need(text_);
    if (labelled()) label_ = column_named(*rows_, path_, columns.label), rows_->need(label_);
    if (weighted()) weight_ = column_named(*rows_, path_, columns.weight), rows_->need(weight_);
    writer_.set_like(options.like);
    if (writer_.found()) {
      const TableReader::Position first = rows_->place();
      rows_->skip_to({writer_.found_integer("byte", first.byte), writer_.found_integer("line", first.line)});
      empty_ = writer_.found_integer("empty", 0);
    }
  }

  void run() {
    SaveTimer saves(options_.save_every);
    in_order<TextRows>(
        threads_, [&](TextRows& rows) { return next(rows); },
        [&](TextRows& rows, int thread) { make(rows, *encoders_[static_cast<size_t>(thread)]); },
        [&](TextRows& rows) {
          write(rows);
          if (options_.progress) options_.progress(rows.done, rows_->size());
          if (saves.is_due()) save(rows.behind), saves.saved();
        });
    require(writer_.records() > 0, ExitCode::kBadData, path_, ": holds no record",
            empty_ > 0 ? str("; ", empty_, " rows without text were left out") : "");
    if (empty_ > 0) log_warning(str(path_, ": left out: ", empty_, " rows without text"));
    writer_.require_few_labels(str(path_, ": column '", columns_.label, "'"), columns_.many_labels);
    if (saves.any()) save(rows_->place());
    writer_.finish(options_.writing);
  }

 private:
  bool labelled() const { return !columns_.label.empty(); }
  bool weighted() const { return !columns_.weight.empty(); }
  std::string place(int64_t line, const std::string& column) const {
    return str(path_, ":", line, ": column '", column, "' ");
  }

  int64_t next(TextRows& out) {
    size_t bytes = 0;
    while (bytes < kTextAtOnce && rows_->next(cells_)) {
      TextRow row{rows_->line(), cells_[text_], labelled() ? std::string(label_text(cells_[label_])) : "",
                  weighted() ? cells_[weight_] : ""};
      bytes += row.text.size() + row.label.size() + 1;
      out.rows.push_back(std::move(row));
    }
    out.behind = rows_->place();
    out.done = rows_->bytes_read();
    return static_cast<int64_t>(bytes);
  }

  void make(TextRows& rows, RecordEncoder& encoder) const {
    for (TextRow& row : rows.rows) {
      require(!labelled() || (!row.label.empty() && row.label.find('\n') == std::string::npos), ExitCode::kBadData,
              place(row.line, columns_.label), "holds no label: a text of one line");
      const std::optional<double> weight = weighted() ? number_in(row.weight) : 1.0;
      require(is_weight(weight), ExitCode::kBadData, place(row.line, columns_.weight), "holds '", row.weight, "', ",
              kNoWeight);
      if (row.text.empty()) {
        rows.made.records.push_back({.line = row.line});
        continue;
      }
      try {
        std::vector<TextPart> parts{{std::move(row.text), true}};
        if (!options_.separator.empty()) parts.push_back({options_.separator, true, true});
        rows.made.add(encoder, parts, {.label = row.label, .weight = static_cast<float>(*weight), .line = row.line});
      } catch (const Error& e) {
        throw e.with_message(str(place(row.line, columns_.text), e.what()));
      }
    }
    rows.rows.clear();
  }

  void write(const TextRows& rows) {
    RecordsOut out(rows.made, writer_);
    for (const MadeRecord& record : rows.made.records) {
      if (record.tokens == 0) ++empty_;
      else out.write(record);
    }
  }

  void save(const TableReader::Position& at) {
    writer_.save({{"byte", at.byte}, {"line", at.line}, {"empty", empty_}});
  }

  const CsvTextColumns& columns_;
  const std::string path_;
  const ImportOptions& options_;
  const Vocabulary vocabulary_;
  const int threads_;
  std::vector<std::unique_ptr<RecordEncoder>> encoders_;  // one for each thread
  std::unique_ptr<TableReader> rows_;
  TokenWriter writer_;
  std::vector<std::string> cells_;
  size_t text_ = 0, label_ = 0, weight_ = 0;  // columns
  int64_t empty_ = 0;
};

}  // namespace

void import_table_texts(const TableSource& source, const std::string& output, const CsvTextColumns& columns,
                        const ImportOptions& options) {
  TextTableImport(source, output, columns, options).run();
}

}  // namespace lockstep
