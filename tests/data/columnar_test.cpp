// Parquet and Arrow files become the dataset that the CSV file of the same table becomes (tests/data/columnar/
// make_columnar.py), and what is wrong with one is named.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "data/import/import.h"
#include "data/samples/inspect.h"
#include "data/samples/schema.h"
#include "tests/data/killed_import.h"
#include "tests/support/files.h"

namespace lockstep::columnar_test {
namespace {

using namespace test;
using Names = std::vector<std::string>;

std::string fixture(const std::string& name) { return std::string(LOCKSTEP_COLUMNAR) + "/" + name; }
const std::vector<Names> kForms = {{fixture("table.parquet")},
                                   {fixture("part-0.parquet"), fixture("part-1.parquet")},
                                   {fixture("table.feather")},
                                   {fixture("table.arrows")}};
// Only table.parquet has these columns, of types of which no cell is made.
Names left_out(const Names& files, Names names) {
  if (files[0].ends_with("table.parquet")) names.insert(names.end(), {"when", "list"});
  return names;
}

class ColumnarTest : public testing::Test {
 protected:
  std::string refused(const Names& files, const TableOptions& how) {
    try {
      import_columnar(files, out_, how, {.force = true});
    } catch (const Error& e) {
      EXPECT_EQ(static_cast<int>(e.code()), static_cast<int>(ExitCode::kBadData)) << e.what();
      return e.what();
    }
    ADD_FAILURE() << "accepted: " << files[0];
    return "";
  }
  void refuse(std::initializer_list<std::string> parts, const std::string& bytes) {
    write_file(dir_ / "t.parquet", bytes);
    const std::string text = refused({dir_ / "t.parquet"}, {.label = "label", .fill_missing = true});
    for (const std::string& part : parts) EXPECT_NE(text.find(part), text.npos) << text;
  }
  TemporaryFolder dir_;
  const std::string out_ = dir_ / "out.h5", csv_ = dir_ / "csv.h5";
};

TEST_F(ColumnarTest, AreTheDatasetOfTheSameTableAsCsv) {
  const std::vector<TableOptions> ways = {
      {.label = "label", .leave_out = {"review", "target"}, .fill_missing = true},
      {.target = "target", .categories = {"small", "double"}, .leave_out = {"review"}, .fill_missing = true},
      {.label = "label", .leave_out = {"review"}, .fill_missing = true, .weight = "weight"},
      {.label = "label",
       .categories = {"whole", "unsigned", "money"},
       .leave_out = {"review"},
       .fill_missing = true,
       .missing = {"NA", "7"}}};
  for (size_t w = 0; w < ways.size(); ++w)
    for (const Names& files : kForms) {
      TableOptions how = ways[w];
      import_csv(fixture("table.csv"), csv_, how, {.force = true});
      how.leave_out = left_out(files, how.leave_out);
      for (const int threads : {1, 3}) {
        import_columnar(files, out_, how, {.force = true, .threads = threads});
        EXPECT_TRUE(content(out_) == content(csv_)) << w << files[0];
      }
    }
  EXPECT_EQ(inspect_dataset(out_).count, 60);
}

TEST_F(ColumnarTest, TextsAreTheRecordsOfTheSameCsv) {
  const std::vector<CsvTextColumns> ways = {{.text = "review"},
                                            {.text = "review", .label = "label"},
                                            {.text = "review", .label = "label", .weight = "weight"}};
  for (const CsvTextColumns& how : ways) {
    import_csv_text(fixture("table.csv"), csv_, how, {.force = true});
    for (const Names& files : kForms) {
      import_columnar_texts(files, out_, how, {.force = true});
      EXPECT_TRUE(content(out_) == content(csv_)) << files[0];
    }
  }
}

TEST_F(ColumnarTest, AnImportOfTextsThatIsKilledGoesOn) {
  Names files;
  for (int i = 0; i < 900; ++i) files.push_back(fixture(i % 2 ? "table.feather" : "table.arrows"));
  const test::Import import = [&](const ImportOptions& o) {
    import_columnar_texts(files, out_, {.text = "review", .label = "label"}, o);
  };
  import({});
  const std::string whole = content(out_);
  std::filesystem::remove(out_);
  EXPECT_GE(kill_until_complete(out_, import), 1);
  EXPECT_TRUE(content(out_) == whole);
}

TEST_F(ColumnarTest, ATableLikeAnEarlierOneOfCsv) {
  const TableOptions how{.label = "label", .leave_out = {"review", "target"}, .fill_missing = true};
  import_csv(fixture("table.csv"), csv_, how);
  import_columnar({fixture("table.parquet")}, out_, {.label = "label", .fill_missing = true},
                  {.like = like_file(csv_)});
  EXPECT_EQ(inspect_dataset(out_).identity, inspect_dataset(csv_).identity);
}

TEST_F(ColumnarTest, AnIndexOfPandasIsNoColumn) {
  import_columnar({fixture("index.parquet")}, out_, {.label = "y"});
  EXPECT_EQ(inspect_dataset(out_).count, 2);
  EXPECT_EQ(inspect_dataset(out_).mean.size(), 1u);
}

TEST_F(ColumnarTest, NameFileAndColumn) {
  const TableOptions label{.label = "label", .fill_missing = true};
  EXPECT_NE(refused({fixture("table.parquet")}, label).find("table.parquet: column 'when' holds timestamp[us]"),
            std::string::npos);
  TableOptions list = label;
  list.leave_out = {"when"};
  EXPECT_NE(refused({fixture("table.parquet")}, list).find("table.parquet: column 'list' holds list"),
            std::string::npos);
  EXPECT_NE(refused({fixture("table.feather")}, {.label = "lable"}).find("table.feather: has no column 'lable'"),
            std::string::npos);
  EXPECT_NE(refused({fixture("table.feather")}, {.label = "label"}).find("table.feather:1: column 'double' has no"),
            std::string::npos);
  EXPECT_NE(refused({fixture("part-0.parquet"), fixture("index.parquet")}, label).find("index.parquet: has other"),
            std::string::npos);
  EXPECT_NE(refused({fixture("table.csv")}, label).find("table.csv: is neither Parquet nor Arrow"), std::string::npos);
  expect_error(ExitCode::kMissingInput, {"none.parquet"},
               [&] { import_columnar({dir_ / "none.parquet"}, out_, label); });
  expect_error(ExitCode::kUsage, {"standard input"}, [&] { import_columnar({"-"}, out_, label); });
  EXPECT_FALSE(std::filesystem::exists(out_));
}

TEST_F(ColumnarTest, DamageIsAnErrorThatNamesTheFile) {
  for (const char* name : {"part-0.parquet", "table.feather", "table.arrows"}) {
    const std::string whole = content(fixture(name));
    for (size_t size = 0; size < whole.size(); size += 397) refuse({"t.parquet: "}, whole.substr(0, size));
    // Neither a crash nor another exception; what is not damaged for the reader may be accepted.
    int refusals = 0;
    for (size_t at = 4; at < whole.size(); at += 101) {
      std::string bytes = whole;
      bytes[at] = static_cast<char>(bytes[at] ^ (1 << at % 8));
      write_file(dir_ / "t.parquet", bytes);
      std::filesystem::remove(out_);
      try {
        import_columnar({dir_ / "t.parquet"}, out_, {.label = "label", .leave_out = {"review"}, .fill_missing = true},
                        {.threads = 1});
        EXPECT_GT(inspect_dataset(out_).count, 0);
      } catch (const Error& e) {
        ++refusals;
        EXPECT_EQ(static_cast<int>(e.code()), static_cast<int>(ExitCode::kBadData)) << e.what();
      }
    }
    EXPECT_GT(refusals, 0) << name;
  }
}

}  // namespace
}  // namespace lockstep::columnar_test
