#include "data/import/tables/table_column.h"

#include <algorithm>
#include <string_view>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/io/json.h"
#include "data/import/tables/cell_advice.h"
#include "data/import/tables/date_cell.h"
#include "data/import/tables/table_cells.h"
#include "data/samples/dataset_file.h"
#include "data/samples/schema.h"

namespace lockstep {
namespace {

std::string quoted(const std::vector<std::string>& texts) {
  std::string out;
  for (const std::string& text : texts) out += str(out.empty() ? "'" : ", '", text, "'");
  return out;
}

std::string named_texts(uint64_t bits, const NumberForm& form) {
  std::vector<std::string> out;
  for (size_t i = 0; i < form.strip.size(); ++i)
    if (bits >> i & 1) out.push_back(form.strip[i]);
  return out.empty() ? "none" : quoted(out);
}

}  // namespace

std::string ImportedColumn::add_date(const std::string& cell) {
  const std::optional<DateCell> found = date_in(cell, date->order);
  if (!found) {
    const bool ordered = date_in(cell, DateOrder::kDayFirst) || date_in(cell, DateOrder::kMonthFirst);
    return str("holds '", cell, "', which is no date or time",
               ordered && date->order == DateOrder::kYearFirst
                   ? ": --date-order dmy or mdy says whether days or months come first"
               : ordered              ? str(" in the order ", kDateOrders[static_cast<size_t>(date->order)])
               : has_short_year(cell) ? ": its year has two digits, which do not name the century"
               : given                ? ""
                                      : "; --missing names texts that stand for no value");
  }
  const std::optional<DateKind> both = joined(date->kind.value_or(found->kind), found->kind);
  if (!both)
    return str("holds '", cell, "', one of ", kDateKinds[static_cast<size_t>(found->kind)], " among ",
               kDateKinds[static_cast<size_t>(*date->kind)], ": write all of them alike");
  date->kind = both;
  return "";
}

void ImportedColumn::add_text(std::string text, int64_t line) {
  constexpr size_t kKept = 100;
  const auto [at, is_new] = texts.insert(std::move(text));
  if (is_new && line > 0 && first_others.size() < kKept) first_others.emplace_back(*at, line);
}

void ImportedColumn::add_stripped(uint64_t those, int64_t line) {
  if (!stripped) stripped = those;
  if (*stripped == those || otherwise_line > 0) return;
  otherwise_stripped = those, otherwise_line = line;
}

void require_meant(const ImportedColumn& c, const std::string& path, const NumberForm& form) {
  if (!c.categories || c.given) return;
  const std::string column = str(": column '", c.name, "' ");
  if (!c.named) {
    std::vector<std::string_view> texts;
    for (const std::string& text : c.texts) texts.emplace_back(text);
    const CellAdvice advice = advice_on(texts, c.name, form);
    if (!advice.how.empty()) {
      std::vector<std::string> more;
      std::pair<std::string, int64_t> shown{c.other, c.other_line};
      for (const auto& other : c.first_others)
        if (advice_on({std::string_view(other.first)}, c.name, form).how.empty()) continue;
        else if (more.empty()) shown = other, more.emplace_back();
        else if (more.size() < 3) more.push_back(other.first);
      if (!more.empty()) more.erase(more.begin());
      throw Error(ExitCode::kBadData, str(path, ":", shown.second, column, "holds '", shown.first, "': ", advice.how,
                                          more.empty() ? "" : str(" (also ", quoted(more), ")"),
                                          "; where they are categories, name the column in --categories (--categories ",
                                          shell_word(c.name), ")"));
    }
    const bool mostly = c.numbers > c.others;
    require(!mostly && advice.numbers * 2 <= advice.texts, ExitCode::kBadData, path, ":", c.other_line, column,
            "holds '", c.other, "', but ", mostly ? c.numbers : advice.numbers, " of its ",
            mostly ? c.numbers + c.others : advice.texts, mostly ? "" : " different",
            " values are numbers: correct such cells, name their texts in --missing where they stand for no value (",
            "--missing ", shell_word(c.other), "), or the column in --categories where each of its values is a ",
            "category");
  }
  require(c.too_many_line == 0, ExitCode::kBadData, path, ":", c.too_many_line, column, "has more than ", kMostFeatures,
          " different values",
          c.other_line > 0 ? str(" and is no column of numbers because of line ", c.other_line) : "",
          "; --leave-out leaves it out");
}

std::string how_to_read(const std::string& cell, const ImportedColumn& c, const NumberForm& form,
                        const std::string& like, const std::string& otherwise) {
  if (like.empty()) {
    const std::string how = advice_on({std::string_view(cell)}, c.name, form).how;
    return how.empty() ? otherwise : "; " + how;
  }
  if ((form.decimal_comma || form.thousands != 0) && number_in(cell))
    return str("; --thousands none reads numbers with a decimal point and no thousands separator, unlike those of ",
               like);
  return number_in(cell, {true}) ? "; --decimal-comma reads it" : otherwise;
}

void warn_of_values(const ImportedColumn& c, const std::string& path, int64_t rows, const std::string& like) {
  constexpr int64_t kFew = 20;
  if (c.categories && !c.given && c.features() >= kFew && c.features() * 10 >= rows * 9)
    log_warning(str(path, ": column '", c.name, "' has ", c.features(), " different values in ", rows,
                    " rows, each of which becomes a feature; where they only name the rows, leave it out: "
                    "--leave-out ",
                    c.name));
  if (c.unknown > 0)
    log_warning(str(path, ": column '", c.name, "': ", c.unknown, " of ", rows, " values, such as '", c.other,
                    "' in line ", c.unknown_line, ", are no category in ", like, " and become ",
                    c.texts.contains("") ? "missing values" : "none of its categories"));
  if (c.missing > 0)
    log_warning(str(path, ": column '", c.name, "': ", c.missing, " of ", rows, " values are missing and become ",
                    c.categories ? std::string("a category of their own") : str("the mean, ", c.mean)));
}

std::string stands_for_none(const std::string& cell) {
  return cell.empty() ? "" : str(" ('", cell, "' stands for none; --missing names the texts that do)");
}

std::string description(const std::vector<ImportedColumn>& columns, const std::vector<size_t>& order,
                        const ImportedColumn* target, const std::vector<std::string>& missing, const NumberForm& form) {
  const auto list = [](const auto& texts) { return json_array(std::vector<JsonValue>(texts.begin(), texts.end())); };
  std::vector<JsonObject> out;
  for (size_t i : order) {
    const ImportedColumn& c = columns[i];
    JsonObject o{{"name", c.name}, {"type", c.categories ? "category" : "number"}, {"missing", c.missing}};
    if (c.categories) o.emplace_back("values", list(c.texts));
    if (!missing.empty()) o.emplace_back(kMissingTexts, list(missing));
    describe_cells(form, c.date, o);
    out.push_back(std::move(o));
  }
  if (target) {
    out.push_back({{"name", target->name}, {"type", "target"}, {"missing", 0}});
    describe_cells({}, target->date, out.back());
  }
  std::string text = json_array(out).text;
  std::erase(text, '\n');  // those between values; within a text they are escaped
  return text;
}

void warn_of_units(const ImportedColumn& c, const std::string& path, const NumberForm& form) {
  if (c.otherwise_line == 0) return;
  log_warning(str(path, ": column '", c.name, "': not all of its numbers have the same text of --strip, first in line ",
                  c.otherwise_line, ": ", named_texts(c.otherwise_stripped, form), " there, ",
                  named_texts(*c.stripped, form), " before: make sure that they have one unit"));
}

}  // namespace lockstep
