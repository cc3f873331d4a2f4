#include <algorithm>

#include "core/base/error.h"
#include "data/import/import.h"
#include "data/import/import_threads.h"
#include "data/import/in_order.h"
#include "data/import/made_records.h"
#include "data/import/tables/csv.h"
#include "data/import/tables/table_reader.h"

namespace lockstep {
namespace {

// Some texts of the table, and the records that were made of them.
struct ReadTexts {
  std::vector<std::pair<int64_t, std::string>> texts;  // by line
  int64_t done = 0;                                    // bytes of the table, as stored
  MadeRecords made;
};

constexpr size_t kTextsAtOnce = 256 << 10;  // bytes

}  // namespace

void import_texts(const TableFile& table, const std::string& column, const std::string& output,
                  const ImportOptions& options) {
  check(options.vocabulary != nullptr, "texts are encoded by a vocabulary");
  const Vocabulary& vocabulary = *options.vocabulary;
  const int threads = import_threads(options);
  const auto rows = open_table(table);
  const std::string& name = table.name.empty() ? table.path : table.name;
  const auto found = std::find(rows->names().begin(), rows->names().end(), column);
  require(found != rows->names().end(), ExitCode::kBadData, name, ":1: ", no_column_text(column, rows->names()),
          "; --text names the one that holds the texts");
  const auto place = static_cast<size_t>(found - rows->names().begin());
  const auto encoders = record_encoders(vocabulary, threads);
  if (!options.separator.empty()) {
    require(vocabulary.has_tokenizer(), ExitCode::kUsage,
            "a separator is an added token of a tokenizer; bytes and characters have none");
    encoders[0]->need_token(options.separator, "the separator");
  }
  TokenWriter writer(output, options.force, std::make_unique<Vocabulary>(vocabulary));
  std::vector<std::string> cells;
  in_order<ReadTexts>(
      threads,
      [&](ReadTexts& out) {
        size_t bytes = 0;
        while (bytes < kTextsAtOnce && rows->next(cells)) {
          bytes += cells[place].size() + 1;
          out.texts.emplace_back(rows->line(), std::move(cells[place]));
        }
        out.done = rows->bytes_read();
        return static_cast<int64_t>(bytes);
      },
      [&](ReadTexts& some, int thread) {
        for (auto& [line, text] : some.texts) try {
            require(!text.empty(), ExitCode::kBadData, "is empty: a text is needed");
            std::vector<TextPart> text_parts{{std::move(text), true}};
            if (!options.separator.empty()) text_parts.push_back({options.separator, true, true});
            some.made.add(*encoders[static_cast<size_t>(thread)], text_parts, {.line = line});
            require(some.made.records.back().tokens > 0, ExitCode::kBadData, "has no token");
          } catch (const Error& e) {
            throw e.with_message(
                str(name, ":", line, ": ", rows->names().size() > 1 ? "column '" + column + "' " : "", e.what()));
          }
      },
      [&](ReadTexts& some) {
        RecordsOut out(some.made, writer);
        for (MadeRecord& record : some.made.records) {
          if (options.like && options.like->schema.classes > 0) record.label = "0";
          out.write(record);
        }
        if (options.progress) options.progress(some.done, rows->size());
      });
  require(writer.records() > 0, ExitCode::kBadData, name, ": holds no text");
  writer.finish(options.writing);
}

}  // namespace lockstep
