#include <algorithm>

#include "core/base/error.h"
#include "core/base/log.h"
#include "data/csv.h"
#include "data/import.h"
#include "data/record_encoder.h"
#include "data/token_writer.h"
#include "data/valid_text.h"

namespace lockstep {
namespace {

size_t column_named(const CsvReader& rows, const std::vector<std::string>& names, const std::string& name) {
  const auto found = std::find(names.begin(), names.end(), name);
  require(found != names.end(), ExitCode::kBadData, rows.path(), ":1: has no column '", name, "'");
  require(std::find(found + 1, names.end(), name) == names.end(), ExitCode::kBadData, rows.path(),
          ":1: has two columns '", name, "'");
  return static_cast<size_t>(found - names.begin());
}

}  // namespace

void import_csv_text(const std::string& table, const std::string& output, const CsvTextColumns& columns,
                     const ImportOptions& options) {
  const Vocabulary vocabulary = options.vocabulary ? *options.vocabulary : Vocabulary::bytes();
  RecordEncoder encoder(vocabulary);
  require(options.separator.empty() || vocabulary.pairs(), ExitCode::kUsage,
          "a separator is an added token of a tokenizer; bytes and characters have none");
  if (!options.separator.empty()) encoder.need_token(options.separator, "the separator");
  CsvReader rows(table, csv_separator(table));
  TokenWriter writer(output, options.force, std::make_unique<Vocabulary>(vocabulary));
  std::vector<std::string> cells;
  require(rows.next(cells), ExitCode::kBadData, table, ": is empty; the first row names the columns");
  const size_t text = column_named(rows, cells, columns.text);
  const bool labelled = !columns.label.empty();
  const size_t label = labelled ? column_named(rows, cells, columns.label) : 0;
  std::vector<int32_t> ids;
  std::vector<uint8_t> targets;
  int64_t empty = 0;
  for (int64_t row = 0; rows.next(cells); ++row) {
    if (row % 256 == 0 && options.progress) options.progress(rows.bytes_read(), rows.size());
    const auto place = [&](const std::string& column) {
      return cat(table, ":", rows.line(), ": column '", column, "' ");
    };
    require(!labelled || (!cells[label].empty() && cells[label].find('\n') == std::string::npos), ExitCode::kBadData,
            place(columns.label), "holds no label: a text of one line");
    if (cells[text].empty()) {
      ++empty;
      continue;
    }
    std::vector<TextPiece> pieces{{cells[text], true}};
    if (!options.separator.empty()) pieces.push_back({options.separator, true, true});
    ids.clear();
    targets.clear();
    try {
      std::string valid;
      ValidText check(InvalidBytes::kRefuse, "holds text", "; convert the file to UTF-8");
      check.add(cells[text], valid);
      check.finish(valid);
      encoder.encode(pieces, ids, targets);
      writer.add(ids);
      if (labelled) writer.end_record(cells[label]);
      else writer.end_record();
    } catch (const Error& e) {
      throw e.with_message(cat(place(columns.text), e.what()));
    }
  }
  require(writer.records() > 0, ExitCode::kBadData, table, ": holds no record",
          empty > 0 ? cat("; ", empty, " rows without text were left out") : "");
  if (empty > 0) log_warning(cat(table, ": left out: ", empty, " rows without text"));
  if (options.progress) options.progress(rows.bytes_read(), rows.size());
  writer.finish();
}

}  // namespace lockstep
