// Cells of tables that hold numbers and dates in another form than a program's, and names of any digits and bytes.
#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <optional>

#include "core/io/json_record.h"
#include "data/import/import.h"
#include "data/import/tables/date_cell.h"
#include "data/import/tables/table_cells.h"
#include "data/samples/dataset_file.h"
#include "data/samples/inspect.h"
#include "data/streams/open_dataset.h"
#include "tests/support/files.h"

namespace lockstep::cells_test {
namespace {

using namespace test;

class Cells : public ::testing::Test {
 protected:
  DatasetHeader import(const std::string& text, const TableOptions& how = {.label = "y"}, const std::string& like = "",
                       const std::string& name = "t.csv") {
    write_file(folder_ / name, text);
    ImportOptions options{.force = true};
    if (!like.empty()) options.like = like_file(like);
    ::testing::internal::CaptureStderr();
    try {
      import_csv(folder_ / name, out_, how, options);
    } catch (const Error&) {
      ::testing::internal::GetCapturedStderr();
      throw;
    }
    said_ = ::testing::internal::GetCapturedStderr();
    return read_dataset_header(Hdf5File::open(out_));
  }
  void refuse(std::initializer_list<std::string> parts, const std::string& text,
              const TableOptions& how = {.label = "y"}, const std::string& like = "",
              ExitCode code = ExitCode::kBadData) {
    expect_error(code, parts, [&] { import(text, how, like); });
  }
  // A table of one column, whose cells are quoted, and of two labels.
  static std::string table(const std::vector<std::string>& cells) {
    std::string out = "x,y\n";
    for (size_t i = 0; i < cells.size(); ++i) out += str("\"", cells[i], "\",", i % 2, "\n");
    return out;
  }
  std::vector<std::vector<float>> samples(const std::string& path) {
    DataOptions o;
    o.path = path;
    o.measured = DataPart::kAll;
    const Datasets data = open_datasets(o, 1);
    std::vector<std::vector<float>> out;
    int32_t label;
    for (int64_t i = 0; i < data.train->size(); ++i) {
      out.emplace_back(static_cast<size_t>(data.train->spec().input().shape.numel()));
      data.train->read(0, i, {data.train->spec().tensors, std::array<void*, 2>{out.back().data(), &label}});
    }
    return out;
  }

  TemporaryFolder folder_;
  std::string out_ = folder_ / "out.h5", said_;
};

TEST_F(Cells, NumbersAreReadInTheirForm) {
  struct Case {
    std::string cell;
    NumberForm form;
    double number;
  };
  const NumberForm comma{true}, english{false, ','}, german{true, '.'}, swiss{false, '\''}, spaces{true, ' '},
      money{false, ',', {"$", "USD", "()", "%", "kg", "m2"}};
  for (const auto& [cell, form, number] : std::initializer_list<Case>{{"1,234.5", english, 1234.5},
                                                                      {"998.1", english, 998.1},
                                                                      {"-12,345,678", english, -12345678},
                                                                      {"1,23,456.7", english, 123456.7},
                                                                      {"1.234.567,25", german, 1234567.25},
                                                                      {"0,5", german, 0.5},
                                                                      {"1'234.5", swiss, 1234.5},
                                                                      {"1\u2019234.5", swiss, 1234.5},
                                                                      {"1 234,5", spaces, 1234.5},
                                                                      {"1\u202f234\u00a0567,5", spaces, 1234567.5},
                                                                      {"$1,200", money, 1200},
                                                                      {"-$5", money, -5},
                                                                      {"$-5", money, -5},
                                                                      {"USD 5.25", money, 5.25},
                                                                      {"(1,234.50)", money, -1234.5},
                                                                      {"($2)", money, -2},
                                                                      {"1,234.50-", money, -1234.5},
                                                                      {"7%", money, 7},
                                                                      {" 80 kg ", money, 80},
                                                                      {"12m2", money, 12},
                                                                      {"1.5e3 kg", money, 1500},
                                                                      {"\u22125.5", NumberForm(), -5.5}}) {
    const std::optional<double> found = number_in(cell, form);
    ASSERT_TRUE(found) << cell;
    EXPECT_EQ(*found, number) << cell;
  }
  for (const auto& [cell, form] : std::initializer_list<std::pair<std::string, NumberForm>>{
           {"1,5", english},  {"12,34", english}, {"1,2345", english}, {"1234,567", english}, {"1,234,56", english},
           {",234", english}, {"1.5", german},    {"1.234.5", german}, {"5 g", money},        {"--5", money},
           {"(-5)", money},   {"$", money},       {"", money},         {"5 5", money},        {"$inf", money},
           {"m25", money},    {"-\u22125", {}},   {"\u2212", {}},      {"1,234", {}},         {"1,2,3", comma}})
    EXPECT_FALSE(number_in(cell, form)) << cell;
  for (const NumberForm& bad :
       {NumberForm{false, '.'}, NumberForm{true, ','}, NumberForm{false, 0, {"-"}}, NumberForm{false, 0, {"$", ""}},
        NumberForm{false, 0, {"5"}}, NumberForm{false, 0, {"("}}, NumberForm{false, '\'', {"'"}}})
    expect_error(ExitCode::kUsage, {"--"}, [&] { require_readable(bad); });
}

// Days by Python: (datetime(...) - datetime(1970, 1, 1)) / timedelta(days=1).
TEST_F(Cells, DatesAreDays) {
  struct Case {
    std::string cell;
    double days;
    DateOrder order = DateOrder::kYearFirst;
    DateKind kind = DateKind::kDate;
  };
  const DateOrder year = DateOrder::kYearFirst, day = DateOrder::kDayFirst, month = DateOrder::kMonthFirst;
  const DateKind local = DateKind::kLocalTime, utc = DateKind::kUtcTime, time = DateKind::kTimeOfDay;
  for (const auto& [cell, days, order, kind] :
       std::initializer_list<Case>{{"2026-03-01", 20513},
                                   {" 2026/3/1 ", 20513},
                                   {"2026.03.01", 20513, day},
                                   {"20260301", 20513},
                                   {"2026-03", 20513},
                                   {"03/2026", 20513},
                                   {"1969-12-31", -1},
                                   {"2000-02-29", 11016},
                                   {"0001-01-01", -719162},
                                   {"9999-12-31", 2932896},
                                   {"1/3/2026", 20513, day},
                                   {"01.03.2026", 20513, day},
                                   {"3/1/2026", 20513, month},
                                   {"1 Mar 2026", 20513},
                                   {"1-mar-2026", 20513},
                                   {"March 1st, 2026", 20513},
                                   {"Mar. 1, 2026", 20513},
                                   {"Mar 2026", 20513},
                                   {"2026-Mar-01", 20513},
                                   {"Sunday, 1 March 2026", 20513},
                                   {"2026-03-01 12:30", 20513.520833333332, year, local},
                                   {"2026-03-01T12:30:05.25", 20513.520894097222, year, local},
                                   {"3/1/2026 12:30 PM", 20513.520833333332, month, local},
                                   {"2026-03-01T10:30:00Z", 20513.4375, year, utc},
                                   {"2026-03-01 12:30:00+02:00", 20513.4375, year, utc},
                                   {"2026-03-01T12:30-0200", 20513.604166666668, year, utc},
                                   {"20260301T103000Z", 20513.4375, year, utc},
                                   {"Sun, 01 Mar 2026 10:30:00 GMT", 20513.4375, year, utc},
                                   {"12:30", 0.5208333333333334, year, time},
                                   {"00:00:01,5", 1.5 / 86400, year, time},
                                   {"12:05 am", 5. / 1440, year, time},
                                   {"1 PM", 13. / 24, year, time}}) {
    const std::optional<DateCell> found = date_in(cell, order);
    ASSERT_TRUE(found) << cell;
    EXPECT_DOUBLE_EQ(found->days, days) << cell;
    EXPECT_EQ(found->kind, kind) << cell;
  }
  for (const char* cell : {"",
                           "2026",
                           "1700000000",
                           "2026-02-29",
                           "2026-13-01",
                           "2026-03-00",
                           "0000-00-00",
                           "1/3/26",
                           "26-03-01",
                           "2026-03/01",
                           "1.2.3",
                           "2026-03-01T",
                           "2026-03-01 25:00",
                           "2026-03-01 12:60",
                           "24:00",
                           "12:3",
                           "13:00 PM",
                           "2026.03",
                           "2026-03-01 12:30 EST",
                           "2026-03-01x",
                           "Foo 1, 2026",
                           "1 2026",
                           "12:30Z",
                           "2026-03-01 12:30:",
                           "99999999"})
    for (const DateOrder order : {year, day, month}) EXPECT_FALSE(date_in(cell, order)) << cell;
  EXPECT_FALSE(date_in("1/3/2026", year)) << "the order is not said";
  EXPECT_FALSE(date_in("13/3/2026", month));
  for (const char* cell : {"1/3/26", "01.03.26", "26-03-01", "3/14/26 12:30"})
    EXPECT_TRUE(has_short_year(cell)) << cell;
  for (const char* cell : {"1.2.13", "1/3/2026", "1-2-3", "12/25", "10.11.12.13"})
    EXPECT_FALSE(has_short_year(cell)) << cell;
}

// What each column is refused with, and the mean of its numbers when it is imported so.
TEST_F(Cells, ColumnsOfNumbersAreNoCategories) {
  struct Case {
    std::vector<std::string> cells;
    std::string how;
    TableOptions options;
    double mean;
  };
  for (const auto& [cells, how, options, mean] : std::initializer_list<Case>{
           {{"1,000.5", "2,000.5", "3"},
            "holds '1,000.5': --thousands , reads",
            {.label = "y", .thousands = ','},
            1001 + 1. / 3},
           {{"$10", "$20", "$60"}, "--strip '$' reads", {.label = "y", .strip = {"$"}}, 30},
           {{"10%", "20%", "60%"}, "--strip % reads", {.label = "y", .strip = {"%"}}, 30},
           {{"10 \u00b0C", "20 \u00b0C", "60\u00b0C"},
            "--strip \u00b0C reads",
            {.label = "y", .strip = {"\u00b0C"}},
            30},
           {{"10 kg", "20 kg", "60 kg"}, "--strip kg reads", {.label = "y", .strip = {"kg"}}, 30},
           {{"1.000,5 \u20ac", "2.000,5 \u20ac", "3 \u20ac"},
            "--decimal-comma --thousands . --strip \u20ac reads",
            {.label = "y", .decimal_comma = true, .thousands = '.', .strip = {"\u20ac"}},
            1001 + 1. / 3},
           {{"1 000,5", "2 000,5", "3"},
            "--decimal-comma --thousands space reads",
            {.label = "y", .decimal_comma = true, .thousands = ' '},
            1001 + 1. / 3},
           {{"1'000", "2'000", "3"}, "--thousands \"'\" reads", {.label = "y", .thousands = '\''}, 1001},
           {{"(10.50)", "$20", "$60"}, "--strip '$,()' reads", {.label = "y", .strip = {"$", "()"}}, 69.5 / 3},
           {{"1,000", "2,000", "3,000"},
            "--thousands , reads such cells as numbers with signs between thousands, --decimal-comma with decimals",
            {.label = "y", .thousands = ','},
            2000},
           {{"2026-03-01", "2026-03-02", "1970-01-01"}, "--date x reads", {.label = "y", .dates = {"x"}}, 41027. / 3},
           {{"13/3/2026", "1/3/2026"},
            "--date x --date-order dmy reads",
            {.label = "y", .dates = {"x"}, .date_order = DateOrder::kDayFirst},
            20519},
           {{"3/1/2026", "3/3/2026"},
            "--date x with --date-order dmy, or --date-order mdy where the month comes first, reads",
            {.label = "y", .dates = {"x"}, .date_order = DateOrder::kMonthFirst},
            20514},
           {{"06:00", "18:00"}, "--date x reads such cells as parts of a day", {.label = "y", .dates = {"x"}}, 0.5}}) {
    const std::string text = table(cells);
    refuse({"t.csv:2: column 'x' holds '" + cells[0] + "'", how, "--categories x"}, text);
    EXPECT_EQ(said_.find("--leave-out"), said_.npos);
    const DatasetHeader h = import(text, options);
    ASSERT_EQ(h.mean.size(), 1u) << cells[0];
    EXPECT_NEAR(h.mean[0], mean, 1e-9 * mean) << cells[0];
    EXPECT_EQ(import(text, {.label = "y", .categories = {"x"}}).mean.size(), cells.size()) << "where they are meant";
  }
  // More than features are possible, too.
  std::vector<std::string> many;
  for (int i = 0; i < 5000; ++i) many.push_back(str("$", i));
  refuse({"t.csv:2: column 'x' holds '$0': --strip '$' reads such cells as numbers (also '$1', '$2')"}, table(many));
  refuse({"--strip g,kg reads", "does not convert their units"}, table({"5 kg", "300 g", "7 kg", "200 g", "1 kg"}));
  refuse({"t.csv:2: column 'x' holds '1kg': --strip kg reads"},
         table({"1kg", "2kg", "3kg", "4kg", "5kg", "6kg", "7kg", "8kg"}));
  std::vector<std::string> bounds, behind, factors, degrees;
  for (int i = 0; i < 9; ++i) {
    bounds.push_back(str("<", i, ".5")), behind.push_back(str(i + 1, i % 3 ? "" : "-"));
    factors.push_back(str(i, i % 4 ? ".5k" : ".5M")), degrees.push_back(str(i, ".125\u00b0N"));
  }
  refuse({"t.csv:2: column 'x' holds '<0.5': --strip '<' reads such cells as numbers (also '<1.5'"}, table(bounds));
  refuse({"t.csv:2: column 'x' holds '1-': --strip '()' reads"}, table(behind));
  refuse({"--strip k reads", "does not multiply by what k and M stand for"}, table(factors));
  refuse({"t.csv:2: column 'x' holds '0.125\u00b0N': --strip \u00b0N reads such cells as numbers (also"},
         table(degrees));
  refuse({"years of such dates have two digits"}, table({"3/14/26", "3/15/26"}));
  // A target is told alike.
  const std::string target = "x,y\n1,\"$1,000\"\n2,\"$3,000\"\n";
  refuse({"t.csv:2: column 'y' holds '$1,000', which is no number", "--thousands , --strip '$' reads"}, target,
         {.target = "y"});
  EXPECT_EQ(import(target, {.target = "y", .thousands = ',', .strip = {"$"}}).target_mean, 2000);
  EXPECT_EQ(import("x,y\n1,2026-03-01\n2,2026-03-03\n", {.target = "y", .dates = {"y"}}).target_mean, 20514);
}

TEST_F(Cells, NamesWithDigitsStayCategories) {
  for (const std::vector<std::string>& names : std::initializer_list<std::vector<std::string>>{
           {"class1", "class2", "class3"},
           {"A12", "A13", "B2"},
           {"1st floor", "2nd floor", "3rd floor", "4th floor", "5th floor"},
           {"0x", "1x", "2x"},
           {"720p", "1080p"},
           {"12A", "12B", "13A", "14C", "7F", "8E"},
           {"1.2.3", "1.2.13", "2.0.1"},
           {"12345-6789", "12346-1000", "12347-2000"},
           {"18-25", "26-35", "36-45"},
           {"10.0.0.1", "10.0.0.2"},
           {"12 Elm Street", "13 Oak Road", "7 Pine Lane", "8 Ash Way"},
           {"Grade 3", "Grade 4", "Grade 5"},
           {"<5", ">10", "5 to 10"},
           {"1,2", "1,2,3", "2,3,1"}})
    EXPECT_EQ(import(table(names)).mean.size(), names.size()) << names[0];
}

// At 45 and at 55 per cent alike.
TEST_F(Cells, MissingOnesAmongNumbersAreNoCategory) {
  for (const int numbers : {11, 9}) {
    std::vector<std::string> cells;
    for (int i = 0; i < 20; ++i) cells.push_back(i < numbers ? str(i, ".5") : ".");
    refuse({str("t.csv:", numbers + 2, ": column 'x' holds '.'"), "values are numbers", "--missing ."}, table(cells));
    const DatasetHeader h = import(table(cells), {.label = "y", .fill_missing = true, .missing = {"."}});
    EXPECT_DOUBLE_EQ(h.mean.at(0), (numbers - 1) / 2. + 0.5) << "of the numbers";
  }
}

TEST_F(Cells, FurtherDataIsReadAlike) {
  const std::string first = folder_ / "first.h5";
  const TableOptions how{.label = "y", .decimal_comma = true, .thousands = '.', .strip = {"\u20ac"}, .dates = {"d"}};
  import("p;d;y\n1.000,5 \u20ac;2026-03-01;0\n3.000,5 \u20ac;2026-03-03;1\n", how);
  std::filesystem::rename(out_, first);
  import("p;d;y\n2.000,5 \u20ac;2026-03-02;0\n4.000,5;2026-03-05;1\n", {.label = "y"}, first);
  EXPECT_EQ(samples(out_), (std::vector<std::vector<float>>{{0, 0}, {2, 3}})) << "(x - 2000.5) / 1000, days - 20514";
  EXPECT_NE(said_.find("column 'p': not all of its numbers have the same text of --strip, first in line 3: none there, "
                       "'\u20ac' before"),
            said_.npos)
      << said_;
  refuse({"t.csv:2: column 'p' holds '5 $', which is no number"}, "p;d;y\n5 $;2026-03-02;0\n", {.label = "y"}, first);
  refuse({"t.csv:2: column 'p' holds '2000.5'", "--thousands none"}, "p;d;y\n2000.5;2026-03-02;0\n", {.label = "y"},
         first);
  import("p,d,y\n2000.5,2026-03-02,0\n", {.label = "y", .thousands = '\0'}, first);
  EXPECT_EQ(samples(out_), (std::vector<std::vector<float>>{{0, 0}}));
  refuse({"t.csv:2: column 'd' holds 'soon', which is no date"}, "p;d;y\n5;soon;0\n", {.label = "y"}, first);
  refuse({"t.csv:2: column 'd' holds '12:30', one of times of day among dates"}, "p;d;y\n5;12:30;0\n", {.label = "y"},
         first);
  // JSON's own numbers are numbers in any case.
  import(
      "{\"p\": 2000.5, \"d\": \"2026-03-02\", \"y\": 0}\n{\"p\": \"4.000,5 \u20ac\", \"d\": \"2026-03-05\", \"y\": "
      "1}\n",
      {.label = "y"}, first, "t.jsonl");
  EXPECT_EQ(samples(out_), (std::vector<std::vector<float>>{{0, 0}, {2, 3}}));
  // A file that was imported by itself fits where its dates are dates.
  import("p,d,y\n1,2026-03-01,0\n2,2026-03-02,1\n", {.label = "y", .dates = { "d" }});
  DataOptions o;
  o.path = out_, o.like = like_file(first), o.measured = DataPart::kAll;
  open_datasets(o, 1);
  import("p,d,y\n1,20513,0\n2,20514,1\n");
  expect_error(ExitCode::kBadData, {"column 'd' holds numbers, not dates"}, [&] { open_datasets(o, 1); });
}

TEST_F(Cells, DatesOfAColumnAreOfOneKind) {
  const TableOptions how{.label = "y", .dates = {"x"}};
  EXPECT_EQ(import(table({"2026-03-01", "2026-03-01 12:00"}), how).mean[0], 20513.25);
  refuse({"t.csv:3: column 'x' holds '12:00', one of times of day among dates"}, table({"2026-03-01", "12:00"}), how);
  refuse({"t.csv:3: column 'x' holds '2026-03-01T12:00Z', one of UTC times among local times"},
         table({"2026-03-01 12:00", "2026-03-01T12:00Z"}), how);
  refuse({"t.csv:3: column 'x' holds '2026-02-30', which is no date or time; --missing"},
         table({"2026-03-01", "2026-02-30"}), how);
  refuse({"t.csv:2: column 'x' holds '1/3/2026'", "--date-order dmy or mdy"}, table({"1/3/2026"}), how);
  refuse({"t.csv:2: column 'x' holds '1/3/26'", "two digits"}, table({"1/3/26"}), how);
  refuse({"t.csv:3: column 'x' has no value", "--fill-missing"}, table({"2026-03-01", ""}), how);
  refuse({"--date y", "no feature and no target"}, table({"2026-03-01"}), {.label = "y", .dates = {"y"}}, "",
         ExitCode::kUsage);
  refuse({"--date x", "one of --categories"}, table({"2026-03-01"}),
         {.label = "y", .categories = {"x"}, .dates = {"x"}}, "", ExitCode::kUsage);
  // What is kept of it.
  const auto columns = parse_columns(
      import(table({"1/3/2026 12:00"}), {.label = "y", .dates = {"x"}, .date_order = DateOrder::kDayFirst}).columns,
      "t");
  EXPECT_EQ(columns.at(0).date, (DateForm{DateOrder::kDayFirst, DateKind::kLocalTime}));
}

TEST_F(Cells, IdsOfAnyLengthStayDifferent) {
  const std::string ids =
      "{\"x\": 1, \"c\": 12345678901234567890}\n{\"x\": 2, \"c\": 12345678901234567891}\n"
      "{\"x\": 3, \"c\": -9223372036854775809}\n{\"x\": 4, \"c\": 123456789012345678901234567890}\n";
  import(ids, {.label = "c"}, "", "t.jsonl");
  EXPECT_EQ(inspect_dataset(out_).class_names,
            (std::vector<std::string>{"-9223372036854775809", "12345678901234567890", "123456789012345678901234567890",
                                      "12345678901234567891"}));
  EXPECT_EQ(import(ids, {.target = "x", .categories = {"c"}}, "", "t.jsonl").mean.size(), 4u);
  import(ids, {.target = "c"}, "", "t.jsonl");  // as numbers they are rounded
  write_file(folder_ / "r.jsonl",
             "{\"t\": \"a\", \"y\": 12345678901234567890}\n{\"t\": \"b\", \"y\": 12345678901234567891}\n");
  import_json({folder_ / "r.jsonl"}, out_, {.text = "t", .label = "y"}, 0, {.force = true});
  EXPECT_EQ(inspect_dataset(out_).class_names,
            (std::vector<std::string>{"12345678901234567890", "12345678901234567891"}));
  const auto record =
      parse_json_record("{\"a\": 12345678901234567891, \"b\": 1.5, \"c\": [12345678901234567891], \"d\": 7}");
  EXPECT_EQ(json_line(*record), "{\"a\":12345678901234567891,\"b\":1.5,\"c\":[12345678901234567891],\"d\":7}")
      << "as predictions copy it";
  // A number that stands for no value is that number alone.
  import("x,y\n9007199254740993,0\n9007199254740992,1\n5,0\n", {.label = "y", .fill_missing = true, .missing = {
                                                                  "9007199254740992"
                                                                }});
  EXPECT_NE(inspect_dataset(out_).columns.find("\"missing\":1"), std::string::npos);
}

TEST_F(Cells, NamesOfOtherBytesStayDifferent) {
  const std::string lines = "{\"x\": 1, \"c\": \"caf\xe9\"}\n{\"x\": 2, \"c\": \"caf\xe8\"}\n";
  expect_error(ExitCode::kBadData, {"t.jsonl:1: is no JSON object: its byte 18 is invalid UTF-8", "iconv"},
               [&] { import(lines, {.label = "c"}, "", "t.jsonl"); });
  import(lines, {.label = "c", .encoding = TextEncoding::kLatin1}, "", "t.jsonl");
  EXPECT_EQ(inspect_dataset(out_).class_names, (std::vector<std::string>{"caf\u00e8", "caf\u00e9"}));
  expect_error(ExitCode::kBadData, {"t.jsonl:1: is no JSON object", "its byte 18 is invalid UTF-8", "iconv"},
               [&] { import_json({folder_ / "t.jsonl"}, out_, {.text = "c"}, 0, {.force = true}); });
}

}  // namespace
}  // namespace lockstep::cells_test
