// Tables: what a CSV file becomes, and what is refused.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>

#include "core/io/zip.h"
#include "data/import/import.h"
#include "data/import/rearrange.h"
#include "data/import/tables/columnar_table.h"
#include "data/samples/dataset_file.h"
#include "data/samples/inspect.h"
#include "data/samples/label_index.h"
#include "data/streams/open_dataset.h"
#include "tests/support/files.h"

namespace lockstep::table_test {
namespace {

using namespace test;

class TableTest : public ::testing::Test {
 protected:
  void import(const std::string& text, const TableOptions& columns = {.label = "y"}, const std::string& like = "") {
    write_file(folder_ / "t.csv", text);
    ImportOptions options{.force = true};
    if (!like.empty()) options.like = like_file(like);
    import_csv(folder_ / "t.csv", out_, columns, options);
  }
  void refuse(std::initializer_list<std::string> parts, const std::string& text,
              const TableOptions& columns = {.label = "y"}) {
    expect_error(ExitCode::kBadData, parts, [&] { import(text, columns); });
    EXPECT_FALSE(std::filesystem::exists(out_));
    EXPECT_EQ(folder_.files(), 1) << "a temporary file was left behind";
  }
  // The samples of the whole file.
  std::vector<std::vector<float>> samples(const std::string& like = "") {
    DataOptions o;
    o.path = out_;
    if (!like.empty()) o.like = like_file(like);
    o.measured = DataPart::kAll;
    const Datasets data = open_datasets(o, 1);
    std::vector<std::vector<float>> out;
    labels_.clear();
    for (int64_t i = 0; i < data.train->size(); ++i) {
      out.emplace_back(static_cast<size_t>(data.train->spec().input().shape.numel()));
      data.train->read(0, i,
                       {data.train->spec().tensors, std::array<void*, 2>{out.back().data(), &labels_.emplace_back()}});
    }
    return out;
  }

  TemporaryFolder folder_;
  std::string out_ = folder_ / "out.h5";
  std::vector<int32_t> labels_;
};

TEST_F(TableTest, NumbersAreNormalisedAndTextsBecomeCategories) {
  import("size,colour,y\n1,red,no\n 2.5 ,blue,yes\n-1e0,red,no\n+4.5,green,yes\n");
  const auto rows = samples();
  // pandas: (size - mean) / std(ddof=0), then get_dummies(colour)
  const std::vector<std::vector<float>> expected = {
      {-0.3721042f, 0, 0, 1}, {0.3721042f, 1, 0, 0}, {-1.3643821f, 0, 0, 1}, {1.3643821f, 0, 1, 0}};
  ASSERT_EQ(rows.size(), expected.size());
  for (size_t r = 0; r < rows.size(); ++r) {
    ASSERT_EQ(rows[r].size(), 4u);
    for (size_t c = 0; c < 4; ++c) EXPECT_NEAR(rows[r][c], expected[r][c], 1e-6) << r << ", " << c;
  }
  EXPECT_EQ(labels_, (std::vector<int32_t>{0, 1, 0, 1}));
  const DatasetReport report = inspect_dataset(out_);
  EXPECT_EQ(report.kind, DataKind::kTable);
  EXPECT_EQ(report.class_names, (std::vector<std::string>{"no", "yes"}));
  EXPECT_EQ(report.columns, R"([ {"name":"size","type":"number","missing":0},)"
                            R"( {"name":"colour","type":"category","missing":0,"values":["blue","green","red"]}])");
}

TEST_F(TableTest, ColumnsCanBeCategoriesOrLeftOut) {
  import("id,zone,x,y\n17,1,5,10\n18,2,5,9\n", {.label = "y", .categories = {"zone"}, .leave_out = { "id" }});
  EXPECT_EQ(samples(), (std::vector<std::vector<float>>{{1, 0, 0}, {0, 1, 0}})) << "a constant column is only shifted";
  EXPECT_EQ(labels_, (std::vector<int32_t>{1, 0})) << "labels that are numbers are in their order";
}

TEST_F(TableTest, WhiteSpaceAroundNamesIsNoPartOfThem) {
  const std::string text = "c,y\nred, yes\n red,yes\n\"red\t\",yes \nblue,no\n\u00a0blue\u3000,\u00a0no\n";
  import(text);
  EXPECT_EQ(inspect_dataset(out_).class_names, (std::vector<std::string>{"no", "yes"}));
  const auto rows = samples();
  EXPECT_EQ(rows, (std::vector<std::vector<float>>{{0, 1}, {0, 1}, {0, 1}, {1, 0}, {1, 0}}));
  EXPECT_EQ(labels_, (std::vector<int32_t>{1, 1, 1, 0, 0}));
  const std::string first = folder_ / "first.h5";
  std::filesystem::rename(out_, first);
  import("c,y\nblue ,\tyes\n", {.label = "y"}, first);
  EXPECT_EQ(samples(), (std::vector<std::vector<float>>{rows[3]}));
  EXPECT_EQ(labels_, (std::vector<int32_t>{1}));
  EXPECT_EQ(LabelNumbers(std::vector<std::string>{" a", "b", "a"}).find("a"), 2) << "the name itself";
  EXPECT_EQ(LabelNumbers(std::vector<std::string>{" a", "b"}).find("a "), 0) << "a file of before";
  EXPECT_EQ(LabelNumbers(std::vector<std::string>{" a", "b"}).find("c"), -1);
}

TEST_F(TableTest, WholeNumbersThatAreWrittenAsFloatsAreTheSameNames) {
  const std::string integers = "c,y\n10,0\n2,1\n1,1\n", floats = "c,y\n10.0,0.0\n2.00,1.0\n1.0, 1\n";
  const TableOptions columns{.label = "y", .categories = {"c"}};
  import(integers, columns);
  const auto rows = samples();
  const std::vector<int32_t> labels = labels_;
  const Hash128 identity = inspect_dataset(out_).identity;
  const std::string first = folder_ / "first.h5";
  std::filesystem::copy_file(out_, first);
  import(floats, columns);
  EXPECT_EQ(inspect_dataset(out_).identity, identity);
  EXPECT_EQ(inspect_dataset(out_).class_names, (std::vector<std::string>{"0", "1"}));
  import(floats, {.label = "y"}, first);
  EXPECT_EQ(samples(), rows);
  EXPECT_EQ(labels_, labels);
  import("c;y\n10,0;0,0\n2,00;1,0\n1;1\n", {.label = "y", .categories = {"c"}, .decimal_comma = true});
  EXPECT_EQ(samples(), rows);
  EXPECT_EQ(labels_, labels);
  for (const char* name : {"1.5", "1.", ".0", "1.0.0", "v1.0", "-.0", "1.0e3"}) EXPECT_EQ(label_text(name), name);
  EXPECT_EQ(label_text(" -12.000 "), "-12");
  EXPECT_EQ(LabelNumbers(std::vector<std::string>{"1.0", "10.0", "2.0"}).find("2"), 2) << "a file of before";
}

TEST_F(TableTest, MissingValuesAreRefusedOrFilled) {
  const std::string text = "x,c,y\n1,a,0\nNA,b,1\n3,,0\n";
  refuse({"t.csv:3", "'x'", "--fill-missing"}, text);
  import(text, {.label = "y", .fill_missing = true});
  const auto rows = samples();
  EXPECT_EQ(rows[1][0], 0) << "the mean";
  EXPECT_EQ(std::vector<float>(rows[2].begin() + 1, rows[2].end()), (std::vector<float>{1, 0, 0}));
  EXPECT_NE(inspect_dataset(out_).columns.find(R"("missing":1)"), std::string::npos);
  std::filesystem::remove(out_);
  refuse({"t.csv:2", "'y'", "no label"}, "x,y\n1,\n", {.label = "y", .fill_missing = true});
  refuse({"'x'", "no value in any row"}, "x,z,y\n,1,0\n", {.label = "y", .fill_missing = true});
}

TEST_F(TableTest, TheUsualTextsStandForMissingValues) {
  // Those that pandas.read_csv takes for missing ones (pandas._libs.parsers.STR_NA_VALUES), and "?".
  const std::vector<std::string> usual = {"",     "#N/A", "#N/A N/A", "#NA",     "-1.#IND", "-1.#QNAN", "-NaN",
                                          "-nan", "<NA>", "1.#IND",   "1.#QNAN", "N/A",     "NA",       "NULL",
                                          "NaN",  "None", "n/a",      "nan",     "null",    "?",        " ? "};
  std::string text = "x,c,y\n1,a,0\n3,b,1\n";
  for (const std::string& missing : usual) {
    text += missing + "," + missing + ",0\n";
    refuse({"t.csv:3", "'x'", "has no value", "--fill-missing"}, "x,y\n1,0\n" + missing + ",0\n");
    refuse({"t.csv:3", "'y'", "has no label"}, "x,y\n1,0\n1," + missing + "\n");
  }
  import(text, {.label = "y", .fill_missing = true});
  const auto rows = samples();
  ASSERT_EQ(rows.size(), 2 + usual.size());
  for (size_t r = 0; r < rows.size(); ++r)  // the mean, and a category of its own
    EXPECT_EQ(rows[r], r == 0   ? (std::vector<float>{-1, 0, 1, 0})
                       : r == 1 ? (std::vector<float>{1, 0, 0, 1})
                                : (std::vector<float>{0, 1, 0, 0}));
  // Others in their place; a number in any spelling. They are the file's, so that --like knows them.
  const std::string first = folder_ / "first.h5", coded = "x,c,y\n1,None,0\n3,b,1\n-999,b,0\n-999.0,none,0\n";
  import(coded, {.label = "y", .fill_missing = true, .missing = { "-999", "none" }});
  EXPECT_EQ(samples(), (std::vector<std::vector<float>>{{-1, 0, 1, 0}, {1, 0, 0, 1}, {0, 0, 0, 1}, {0, 1, 0, 0}}));
  std::filesystem::rename(out_, first);
  import("x,c,y\n-999,None,0\n", {.label = "y", .fill_missing = true}, first);
  EXPECT_EQ(samples(), (std::vector<std::vector<float>>{{0, 0, 1, 0}}));
}

TEST_F(TableTest, OddCellsAmongNumbersAreRefused) {
  const std::string text = "x,y\n1,0\n2,1\noops,0\n4,1\nah,0\n";
  refuse({"t.csv:4: column 'x' holds 'oops', but 3 of its 5 values are numbers", "--missing", "--categories"}, text);
  import(text, {.label = "y", .categories = { "x" }});
  EXPECT_EQ(samples()[0].size(), 5u);
  import(text, {.label = "y", .fill_missing = true, .missing = { "oops", "ah" }});
  EXPECT_NEAR(samples()[2][0], 0, 1e-6) << "the mean";
  import("x,y\nA1,0\n2,1\nB3,0\n", {.label = "y"});  // codes, some of which are numbers
  EXPECT_EQ(samples()[0].size(), 3u);
  std::filesystem::remove(out_);
  std::string many = "x,y\n";
  for (int i = 0; i < 5000; ++i) many += str(i == 4500 ? "odd" : str(i), ",0\n");
  refuse({"t.csv:4502: column 'x' holds 'odd', but 4999 of its 5000 values are numbers"}, many);
}

TEST_F(TableTest, ThousandsOfLabelsAreToBeMeant) {
  std::string text = "x,y\n";
  for (int i = 0; i < 1001; ++i) text += str(i % 3, ",", i, ".5\n");
  refuse({"column 'y' has 1001 different labels in 1001 rows", "--target y", "--many-labels"}, text);
  import(text, {.label = "y", .many_labels = true});
  EXPECT_EQ(inspect_dataset(out_).classes, 1001);
  const std::string table = folder_ / "t.csv", lines = folder_ / "t.jsonl";
  expect_error(ExitCode::kBadData, {"t.csv: column 'y' has 1001 different labels in 1001 records", "--many-labels"},
               [&] {
                 import_csv_text(table, out_, {"x", "y"}, {.force = true});
               });
  import_csv_text(table, out_, {"x", "y", true}, {.force = true});
  EXPECT_EQ(inspect_dataset(out_).classes, 1001);
  text.clear();
  for (int i = 0; i < 1001; ++i) text += str("{\"t\": \"a\", \"y\": ", i, "}\n");
  write_file(lines, text);
  expect_error(ExitCode::kBadData, {"t.jsonl: field \"y\" has 1001 different labels", "--many-labels"},
               [&] { import_json({lines}, out_, {.text = "t", .label = "y"}, 0, {.force = true}); });
  import_json({lines}, out_, {.text = "t", .label = "y", .many_labels = true}, 0, {.force = true});
}

TEST_F(TableTest, LettersOfAnotherEncodingStayDifferent) {
  const std::string text = "x,y\n1,Caf\xe9\n2,K\xf6ln\n";
  refuse({"t.csv:2: column 2: byte 9 of the table (0xE9) is invalid UTF-8", "--encoding latin-1"}, text);
  import(text, {.label = "y", .encoding = TextEncoding::kLatin1});
  EXPECT_EQ(inspect_dataset(out_).class_names, (std::vector<std::string>{"Café", "Köln"}));
}

TEST_F(TableTest, NumbersCanBeTheTargets) {
  import("size,colour,price\n1,red,10.5\n2,blue,-3\n4,red,20\n", {.target = "price"});
  DataOptions o;
  o.path = out_;
  o.measured = DataPart::kAll;
  const Datasets data = open_datasets(o, 1);
  const DataSpec& spec = data.train->spec();
  EXPECT_EQ(spec.tensors[1], (TensorSpec{"targets", DType::kFloat32, {}}));
  EXPECT_EQ(spec.classes, 1);
  // pandas: price.mean(), price.std(ddof=0), (price - mean) / std
  EXPECT_NEAR(spec.target_mean, 9.166666666666666, 1e-12);
  EXPECT_NEAR(spec.target_std, 9.436925111261377, 1e-12);
  const std::vector<float> wanted{0.14128896f, -1.2892618f, 1.1479728f};
  std::vector<float> features(3);
  float target;
  for (int64_t i = 0; i < 3; ++i) {
    data.train->read(0, i, {data.train->spec().tensors, std::array<void*, 2>{features.data(), &target}});
    EXPECT_NEAR(target, wanted[static_cast<size_t>(i)], 1e-6);
  }
  const DatasetReport report = inspect_dataset(out_);
  EXPECT_EQ(report.target, TargetKind::kNumbers);
  EXPECT_EQ(report.target_least, -3);
  EXPECT_EQ(report.target_most, 20);
  EXPECT_NE(report.columns.find(R"({"name":"price","type":"target","missing":0})"), std::string::npos);
  EXPECT_NE(to_json(report).find(R"("target_least":-3)"), std::string::npos);
  std::filesystem::remove(out_);
  const TableOptions price{.target = "price"};
  refuse({"t.csv:3", "'price'", "has no target"}, "x,price\n1,2\n1,NA\n", price);
  refuse({"t.csv:2", "'price'", "'cheap'", "no number", "--label"}, "x,price\n1,cheap\n", price);
  refuse({"t.csv:2", "'price'", "1e39"}, "x,price\n1,1e39\n", price);
  refuse({"t.csv:1", "no column 'price'"}, "x,y\n1,2\n", price);
  refuse({"no column beside 'price'"}, "price\n1\n", price);
}

TEST_F(TableTest, ASecondTableIsNormalisedAsTheFirst) {
  const std::string first = folder_ / "first.h5";
  import("size,colour,id,y\n1,red,7,b\n3,blue,8,a\n2,green,9,a\n", {.label = "y", .leave_out = { "id" }});
  const auto rows = samples();
  std::filesystem::rename(out_, first);
  import("y,id,colour,more,size\na,1,green,x,2\na,2,blue,x,3\n", {.label = "y"}, first);
  EXPECT_EQ(samples(), (std::vector<std::vector<float>>{rows[2], rows[1]})) << "though in another order of columns";
  EXPECT_EQ(labels_, (std::vector<int32_t>{0, 0}));
  EXPECT_EQ(inspect_dataset(out_).class_names, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(inspect_dataset(out_).columns, inspect_dataset(first).columns);
  std::filesystem::remove(out_);
  const TableOptions like{.label = "y", .fill_missing = true};
  const auto refuse_like = [&](std::initializer_list<std::string> parts, const std::string& text) {
    expect_error(ExitCode::kBadData, parts, [&] { import(text, like, first); });
    EXPECT_FALSE(std::filesystem::exists(out_));
  };
  refuse_like({"t.csv:2: column 'colour'", "'pink'", "no category", "first.h5"}, "size,colour,y\n1,pink,a\n");
  refuse_like({"t.csv:2: column 'y'", "'c'", "no label of"}, "size,colour,y\n1,red,c\n");
  refuse_like({"t.csv:2: column 'size'", "'big'", "no number"}, "size,colour,y\nbig,red,a\n");
  refuse_like({"t.csv:1: has no column 'colour'"}, "size,y\n1,a\n");
  refuse_like({"column 'colour' has no value", "none is missing in", "--unknown missing"}, "size,colour,y\n1,,a\n");
  expect_error(ExitCode::kBadData, {"first.h5: has labels and no numbers as targets; give --label"},
               [&] { import("size,y\n1,2\n", {.target = "y"}, first); });
  // Numbers to predict, too.
  import("x,y\n1,10\n3,30\n", {.target = "y"});
  std::filesystem::rename(out_, first);
  import("x,y\n5,100\n,50\n", {.target = "y", .fill_missing = true}, first);
  EXPECT_EQ(samples(), (std::vector<std::vector<float>>{{3}, {0}}));
  EXPECT_EQ(inspect_dataset(out_).target_mean, 20);
  EXPECT_EQ(inspect_dataset(out_).target_std, 10);
}

TEST_F(TableTest, ATableImportedByItselfIsFittedWhenItIsOpened) {
  const std::string first = folder_ / "first.h5";
  import("size,colour,y\n1,red,b\n3,blue,a\n2,green,c\n");
  std::filesystem::rename(out_, first);
  const std::string second = "y,colour,more,size\nc,green,x,2\na,blue,x,33\n";
  import(second, {.label = "y"}, first);
  const auto expected = samples();
  const std::vector<int32_t> labels = labels_;
  EXPECT_EQ(labels, (std::vector<int32_t>{2, 0}));
  import(second);
  EXPECT_NE(samples(), expected);
  EXPECT_EQ(samples(first), expected) << "columns in another order, fewer categories, other statistics";
  EXPECT_EQ(labels_, labels) << "fewer classes";
  const auto refuse_fit = [&](std::initializer_list<std::string> parts, const std::string& text,
                              const TableOptions& columns = {.label = "y"}) {
    import(text, columns);
    expect_error(ExitCode::kBadData, parts, [&] { samples(first); });
  };
  refuse_fit({"out.h5", "first.h5", "column 'colour' holds 'pink'", "blue, green, red"}, "size,colour,y\n1,pink,a\n");
  refuse_fit({"it has no column 'size'"}, "colour,y\nred,a\n");
  refuse_fit({"class 'd' is none of its 3 classes: a, b, c"}, "size,colour,y\n1,red,d\n");
  refuse_fit({"column 'colour' holds numbers, not categories", "--like"}, "size,colour,y\n1,5,a\n");
  refuse_fit({"column 'size' holds categories, not numbers", "--like"}, "size,colour,y\n1,red,a\n",
             {.label = "y", .categories = {"size"}});
  refuse_fit({"column 'colour' has missing values"}, "size,colour,y\n1,red,a\n2,,a\n",
             {.label = "y", .fill_missing = true});
}

TEST_F(TableTest, ATableThatIsReplacedBetweenThePassesIsRefused) {
  const std::string path = folder_ / "t.csv";
  write_file(path, "x,y\n1,0\n2,1\n3,0\n");
  expect_error(ExitCode::kBadData, {"t.csv: changed during the import"}, [&] {
    import_csv(path, out_, {.label = "y"}, {.progress = replaces_once(path, "x,y\n1,0\n900000,1\n3,0\n")});
  });
  EXPECT_FALSE(std::filesystem::exists(out_));
}

TEST_F(TableTest, ADamagedTargetIsRefused) {
  import("x,y\n1,4.25\n3,1\n", {.target = "y"});
  const float value = 4.25f;
  flip_byte_of(out_, &value, sizeof value, 1);
  expect_error(ExitCode::kBadData, {out_, "targets"}, [&] { inspect_dataset(out_); });
}

TEST_F(TableTest, InspectFindsRowsThatAreThereTwice) {
  import("x,z,y\n1,2,a\n3,4,a\n1,2,b\n5,6,a\n1,2,a\n3,4,a\n");
  const DatasetReport report = inspect_dataset(out_);
  EXPECT_EQ(report.duplicates, 3);
  EXPECT_EQ(report.contradictions, 1);
  EXPECT_EQ(report.repeats, (std::vector<std::pair<int64_t, int64_t>>{{2, 0}, {4, 0}, {5, 1}}));
  EXPECT_NE(to_text(report).find("duplicates: 3, of which 1 with another target: 2 (as 0), 4 (as 0), 5 (as 1)\n"),
            std::string::npos);
  EXPECT_NE(to_json(report).find(R"("duplicates":3,"contradictions":1)"), std::string::npos) << to_json(report);
  import("x,y\n1,1\n1,2\n1,3\n1,1\n1,1\n1,1\n1,1\n", {.target = "y"});
  const DatasetReport many = inspect_dataset(out_);
  EXPECT_EQ(many.duplicates, 6);
  EXPECT_EQ(many.contradictions, 2);
  EXPECT_NE(to_text(many).find("5 (as 0), ...\n"), std::string::npos);
}

TEST_F(TableTest, SemicolonsAndDecimalCommasAreRead) {
  const auto wanted = [&] {
    import("x,c,y\n1.5,a,0\n-2.25,b,1\n1e3,a,0\n");
    return samples();
  }();
  import("x;c;y\n1,5;a;0\n-2,25;b;1\n1e3;a;0\n", {.label = "y", .decimal_comma = true});
  EXPECT_EQ(samples(), wanted);
  import("x\tc\ty\n1.5\ta\t0\n-2.25\tb\t1\n1e3\ta\t0\n");
  EXPECT_EQ(samples(), wanted) << "tabs in a .csv";
  import("x|c|y\n1.5|a|0\n-2.25|b|1\n1e3|a|0\n", {.label = "y", .delimiter = '|'});
  EXPECT_EQ(samples(), wanted);
  import("\"x;,\";c;y\n1.5;a;0\n-2.25;b;1\n1e3;a;0\n");
  EXPECT_EQ(samples(), wanted) << "what stands in quotes does not count";
  std::filesystem::remove(out_);
  refuse({"t.csv:2: column 'x' holds '1,5': --decimal-comma"}, "x;c;y\n1,5;a;0\n2,5;b;1\n");
  refuse({"t.csv:2: column 'x' holds '1.000,5': --thousands . reads"}, "x;y\n1.000,5;0\n2,5;1\n3;1\n",
         {.label = "y", .decimal_comma = true});
  import("x;y\n1,5;0\n2,5;1\n", {.label = "y", .categories = { "x" }});
  EXPECT_EQ(samples().size(), 2u);
}

TEST_F(TableTest, TheIndexOfPandasIsLeftOut) {
  import("x,y\n5,0\n7,1\n");
  const auto wanted = samples();
  import(",x,y\n0,5,0\n1,7,1\n");
  EXPECT_EQ(samples(), wanted);
  EXPECT_EQ(inspect_dataset(out_).columns, R"([ {"name":"x","type":"number","missing":0}])");
  std::filesystem::remove(out_);
  refuse({"t.csv:1: column 2 has no name"}, "x,,y\n0,5,0\n");
}

TEST_F(TableTest, CategoriesThatAreNewCanBeMissing) {
  const std::string training = folder_ / "training.h5", filled = folder_ / "filled.h5";
  import("c,x,y\na,1,0\nb,2,1\n");
  std::filesystem::rename(out_, training);
  import("c,x,y\na,1,0\nb,2,1\n,3,0\n", {.label = "y", .fill_missing = true});
  std::filesystem::rename(out_, filled);
  const std::string test = "c,x,y\nb,1,0\nz,2,1\n";
  expect_error(ExitCode::kBadData, {"t.csv:3: column 'c' holds 'z'", "--unknown missing"},
               [&] { import(test, {.label = "y"}, training); });
  import(test, {.label = "y", .unknown_is_missing = true}, training);
  EXPECT_EQ(samples()[0], (std::vector<float>{0, 1, -1}));
  EXPECT_EQ(samples()[1], (std::vector<float>{0, 0, 1})) << "none of the categories";
  import(test, {.label = "y", .unknown_is_missing = true}, filled);
  EXPECT_EQ((std::vector<float>{samples()[1][0], samples()[1][1], samples()[1][2]}), (std::vector<float>{1, 0, 0}))
      << "the category of missing values comes first";
  expect_error(ExitCode::kBadData, {"holds '2', which is no label"},
               [&] { import("c,x,y\nz,1,2\n", {.label = "y", .unknown_is_missing = true}, training); });
}

// What is not read is told with what makes something of it that is.
TEST_F(TableTest, OtherFormatsAreNamed) {
  const std::string path = folder_ / "t.csv";
  for (const auto& [bytes, name] :
       std::map<std::string, std::string>{{"PAR1....", "is Parquet"},
                                          {"ARROW1\1\1", "is Arrow"},
                                          {"PK\3\4....", "a workbook"},
                                          {"\x80\4....", "a pickle"},
                                          {"SQLite format 3" + std::string(1, '\0'), "a database of SQLite"}}) {
    write_file(path, bytes);
    for (const bool records : {false, true})
      expect_error(ExitCode::kBadData, {path, name, "python3 -c", records ? "lines=True" : "to_csv"}, [&] {
        if (records) import_json({path}, out_, {.text = "t"}, 0);
        else import_csv(path, out_, {.label = "y"});
      });
  }
  write_file(path, "PAR1....");
  if (!reads_columnar())
    for (const bool texts : {false, true})
      expect_error(ExitCode::kBadData, {path, "LOCKSTEP_PARQUET", "python3 -c", "to_csv"}, [&] {
        if (texts) import_columnar_texts({path}, out_, {.text = "t"});
        else import_columnar({path}, out_, {.label = "y"});
      });
  std::filesystem::create_directory(folder_ / "saved");
  write_file(folder_ / "saved/dataset_info.json", "{}");
  expect_error(ExitCode::kMissingInput, {"datasets.load_from_disk"},
               [&] { import_json({folder_ / "saved"}, out_, {.text = "t"}, 0); });
}

TEST_F(TableTest, RefusesWhatIsNoTable) {
  refuse({"t.csv", "empty"}, "");
  refuse({"t.csv", "no rows"}, "x,y\n");
  refuse({"t.csv:1", "no column 'y'"}, "x,z\n1,2\n");
  refuse({"t.csv:1", "two columns 'x'"}, "x,x,y\n1,2,3\n");
  refuse({"t.csv:1", "column 2 has no name"}, "x,,y\n1,2,3\n");
  refuse({"t.csv:3", "1 cells", "2"}, "x,y\n1,2\n3\n");
  refuse({"t.csv:2", "'x'", "1e300", "32 bits"}, "x,y\n1e300,2\n");
  refuse({"t.csv:2", "'x'", "inf", "32 bits"}, "x,y\ninf,2\n");
  refuse({"no column beside 'y'"}, "y\n1\n");
  std::string many = "x,y\n";
  for (int i = 0; i < 5000; ++i) many += str("id", i, ",0\n");
  refuse({"'x'", "more than 4096 different values", "--leave-out"}, many);
}

TEST_F(TableTest, ADamagedFeatureIsRefused) {
  import("x,y\n1,0\n3,1\n");
  const float value = 3;
  flip_byte_of(out_, &value, sizeof value, 1);
  expect_error(ExitCode::kBadData, {out_, "features"}, [&] { samples(); });
}

TEST_F(TableTest, AWideTableComesBack) {
  std::string head, row;
  for (int i = 0; i < 4096; ++i) head += str("c", i, ","), row += str(i % 7, ",");
  import(head + "y\n" + row + "1\n" + row + "0\n");
  EXPECT_EQ(samples()[0].size(), 4096u);
}

// 200 timestamps in milliseconds, 7 apart, as a feature and as a target. (x - x.mean()) / x.std() of NumPy in fp64.
constexpr int kTimes = 200;
int64_t time_at(int i) { return 1700000000000 + 7 * i; }
std::string times_table() {
  std::string out = "t,small,y\n";
  for (int i = 0; i < kTimes; ++i) out += str(time_at(i), ",", i % 7, ",", time_at(i), "\n");
  return out;
}
double normalised_time(int i) { return (i - (kTimes - 1) / 2.0) / std::sqrt((kTimes * kTimes - 1) / 12.0); }

TEST_F(TableTest, LargeNumbersKeepTheirDifferences) {
  import(times_table(), {.target = "y"});
  DataOptions o;
  o.path = out_;
  o.measured = DataPart::kAll;
  Datasets data = open_datasets(o, 1);
  for (int i = 0; i < kTimes; ++i) {
    std::array<float, 2> features{};
    float target = 0;
    data.train->read(0, i, {data.train->spec().tensors, std::array<void*, 2>{features.data(), &target}});
    EXPECT_NEAR(features[0], normalised_time(i), 1e-6);
    EXPECT_NEAR(target, normalised_time(i), 1e-6);
  }
  const DatasetHeader h = read_dataset_header(Hdf5File::open(out_));
  const double mean = static_cast<double>(time_at(0)) + 7 * 99.5;
  EXPECT_EQ(h.offset, (std::vector<double>{h.mean[0], 0})) << "small numbers are stored as they are";
  EXPECT_NEAR(h.mean[0], mean, 1e-3);
  EXPECT_NEAR(data.train->spec().target_mean, mean, 1e-3);
  EXPECT_NEAR(data.train->spec().target_std, 7 * std::sqrt((kTimes * kTimes - 1) / 12.0), 1e-6);
  const DatasetReport report = inspect_dataset(out_);
  EXPECT_NEAR(report.target_least, static_cast<double>(time_at(0)), 1e-3);
  EXPECT_EQ(report.duplicates, 0);
  // A second table is normalised as the first; what is split and merged keeps its samples.
  const std::string first = folder_ / "first.h5", merged = folder_ / "merged.h5";
  std::filesystem::rename(out_, first);
  const std::string second = str("t,small,y\n", time_at(3), ",3,", time_at(3), "\n");
  import(second, {.target = "y"}, first);
  EXPECT_NEAR(samples()[0][0], normalised_time(3), 1e-6);
  import(second, {.target = "y"});
  EXPECT_NEAR(samples(first)[0][0], normalised_time(3), 1e-6) << "imported by itself, less another offset";
  std::vector<SplitPart> parts{{folder_ / "a.h5", 0.5}, {folder_ / "b.h5", 0.5}};
  split_dataset(first, parts, {});
  merge_datasets({parts[1].path, parts[0].path}, merged, {});
  EXPECT_NEAR(read_dataset_header(Hdf5File::open(merged)).stddev[0], h.stddev[0], 1e-5);
  EXPECT_EQ(inspect_dataset(merged).duplicates, 0);
  // One that is stored less another number.
  import(str("t,small,y\n", time_at(1000), ",3,", time_at(1000), "\n", time_at(1001), ",3,", time_at(0), "\n"),
         {.target = "y"});
  std::filesystem::remove(merged);
  merge_datasets({first, out_}, merged, {.keep_normalization = true});
  std::filesystem::rename(merged, out_);
  EXPECT_NEAR(samples()[200][0], normalised_time(1000), 1e-5);
  EXPECT_NEAR(samples()[201][0], normalised_time(1001), 1e-5);
}

// Ten million deviations from the mean of the data that they are read as, numbers keep their eighths.
TEST_F(TableTest, TargetsFarFromAnotherMeanKeepTheirDifferences) {
  std::string near = "x,y\n", far = "x,y\n";
  for (int i = 0; i < 8; ++i) near += str("1,", i, "\n"), far += str("1,", 10000000 + i / 8, ".", 125 * (i % 8), "\n");
  import(near, {.target = "y"});
  const std::string first = folder_ / "first.h5";
  std::filesystem::rename(out_, first);
  for (const std::string& imported_like : {std::string(), first}) {
    import(far, {.target = "y"}, imported_like);
    DataOptions o;
    o.path = out_;
    o.like = like_file(first);
    o.measured = DataPart::kAll;
    const Datasets data = open_datasets(o, 1);
    const double deviation = std::sqrt(63 / 12.0);  // of 0 to 7, whose mean is 3.5
    for (int i = 0; i < 8; ++i) {
      ASSERT_TRUE(data.train->target_number(0, i).has_value());
      EXPECT_NEAR(*data.train->target_number(0, i) * deviation, 1e7 - 3.5 + i / 8.0, 1e-6) << imported_like;
    }
  }
}

TEST_F(TableTest, FeaturesAndTargetsAreThoseOfPandas) {  // tests/data/tables/make_golden.py
  import(content(std::string(LOCKSTEP_TABLES) + "/table.csv"), {.target = "until", .fill_missing = true});
  DataOptions o;
  o.path = out_;
  o.measured = DataPart::kAll;
  const Datasets data = open_datasets(o, 1);
  std::istringstream golden(content(std::string(LOCKSTEP_TABLES) + "/golden.txt"));
  ASSERT_EQ(data.train->size(), 60);
  for (int64_t i = 0; i < 60; ++i) {
    std::array<float, 8> row{};  // seven features, and the target
    data.train->read(0, i, {data.train->spec().tensors, std::array<void*, 2>{row.data(), &row[7]}});
    for (float value : row) {
      double wanted = NAN;
      golden >> wanted;
      EXPECT_NEAR(value, wanted, 1e-6) << "row " << i;
    }
  }
}

TEST_F(TableTest, AFileOfBeforeThatHasLostBitsSaysSo) {
  const auto warnings = [&](const std::function<void()>& action) {
    ::testing::internal::CaptureStderr();
    action();
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(warnings([&] { import(times_table()); }), "") << "a file of now";
  Hdf5File file = Hdf5File::create(out_);
  DatasetHeader h;
  h.kind = DataKind::kTable, h.images = {2, 1}, h.classes = 1, h.mean = {1.7e12}, h.stddev = {404};
  ChunkWriter writer(file, "features", StoredType::kFloat32, h.images, 2);
  const std::array<float, 2> rows{1.7e12f, 1.7e12f};
  writer.append(rows.data(), 2);
  h.hashes = writer.finish();
  write_labels(file, {0, 0}, h);
  write_dataset_header(file, h);
  file.close();
  const std::string said = warnings([&] { samples(); });
  EXPECT_NE(said.find("out.h5: feature 0 has a mean of 1.7e+12 and is stored in 32 bits"), said.npos) << said;
  EXPECT_NE(said.find("import the data again"), said.npos) << said;
  // Nanoseconds, 7 apart, are more than 64 bits of a floating-point number tell apart.
  std::string text = "t,y\n";
  for (int i = 0; i < 50; ++i) text += str(1700000000000000000 + 7 * i, ",", i % 2, "\n");
  const std::string of_import = warnings([&] { import(text); });
  EXPECT_NE(of_import.find("column 't': numbers up to 17000000000000"), said.npos) << of_import;
  EXPECT_NE(of_import.find("are read in 64 bits"), said.npos) << of_import;
}

std::string npy(const std::string& type, const std::string& shape, const std::string& values) {
  std::string head = "{'descr': '" + type + "', 'fortran_order': False, 'shape': (" + shape + "), }";
  while ((10 + head.size() + 1) % 64 != 0) head += ' ';
  head += '\n';
  return std::string("\x93NUMPY\1\0", 8) + static_cast<char>(head.size() & 255) + static_cast<char>(head.size() >> 8) +
         head + values;
}

template <class T>
std::string bytes_of(std::initializer_list<T> values) {
  return {reinterpret_cast<const char*>(values.begin()), values.size() * sizeof(T)};
}

TEST_F(TableTest, ArraysOfNumPyBecomeImagesOrFeatures) {
  const std::string x = folder_ / "x.npy", y = folder_ / "y.npy";
  const auto import = [&](const std::string& samples, const std::string& labels) {
    write_file(x, samples);
    write_file(y, labels);
    import_npy(x, y, out_, {.force = true});
  };
  const std::string two = npy("<i8", "2,", bytes_of<int64_t>({1, 0}));
  import(npy("<f8", "2, 3", bytes_of<double>({1, 5, -2, 3, 5, 2})), two);
  EXPECT_EQ(samples(), (std::vector<std::vector<float>>{{-1, 0, -1}, {1, 0, 1}}));
  EXPECT_EQ(labels_, (std::vector<int32_t>{1, 0}));
  import(npy("|u1", "2, 2, 1", bytes_of<uint8_t>({0, 255, 255, 0})), two);
  EXPECT_EQ(samples(), (std::vector<std::vector<float>>{{-1, 1}, {1, -1}}));
  EXPECT_EQ(inspect_dataset(out_).image_shape, (Shape{2, 1, 1}));
  import(npy("<f8", "2, 3", bytes_of<double>({1, 5, -2, 3, 5, 2})), npy("<f4", "2,", bytes_of<float>({0.5f, -1.5f})));
  EXPECT_EQ(inspect_dataset(out_).target_mean, -0.5);
  EXPECT_EQ(inspect_dataset(out_).target_std, 1);
  const std::string w = folder_ / "w.npy";
  write_file(x, npy("<f4", "2, 1", bytes_of<float>({1, 2}))), write_file(y, two);
  write_file(w, npy("<f8", "2, 1", bytes_of<double>({0.5, 3})));
  import_npy(x, y, out_, {.force = true}, ImageLayout::kByShape, w);
  EXPECT_EQ(open_dataset_file(out_, 0)->weights, (std::vector<float>{0.5f, 3}));
  for (const auto& [bad, why] :
       {std::pair(npy("<f8", "2,", bytes_of<double>({1, -3})), "weight 1 is -3, which is no weight"),
        std::pair(npy("<f8", "1,", bytes_of<double>({1})), "one for each of 2 samples")}) {
    write_file(w, bad);
    expect_error(ExitCode::kBadData, {"w.npy", why},
                 [&] { import_npy(x, y, out_, {.force = true}, ImageLayout::kByShape, w); });
  }
  std::filesystem::remove(w);
  // Large numbers keep their differences, of integers and of floating-point numbers.
  for (const bool integers : {true, false}) {
    std::vector<int64_t> whole;
    std::vector<double> real;
    for (int i = 0; i < kTimes; ++i) whole.push_back(time_at(i)), real.push_back(static_cast<double>(time_at(i)));
    const std::string values(reinterpret_cast<const char*>(whole.data()), whole.size() * 8),
        doubles(reinterpret_cast<const char*>(real.data()), real.size() * 8);
    import(npy(integers ? "<i8" : "<f8", str(kTimes, ", 1"), integers ? values : doubles),
           npy("<i8", str(kTimes, ","), std::string(kTimes * 8, '\0')));
    const auto rows = samples();
    for (int i = 0; i < kTimes; ++i) EXPECT_NEAR(rows[static_cast<size_t>(i)][0], normalised_time(i), 1e-6);
  }
  // Features are read twice; an array that is replaced in between is refused.
  write_file(x, npy("<f8", "2, 1", bytes_of<double>({1, 2})));
  write_file(y, two);
  expect_error(ExitCode::kBadData, {"x.npy: changed during the import"}, [&] {
    import_npy(x, y, out_, {.force = true, .progress = [&](int64_t, int64_t) {
                              std::ofstream(x, std::ios::in | std::ios::binary).seekp(-8, std::ios::end) << "9";
                            }});
  });
  std::filesystem::remove(out_);
  const auto refuse_array = [&](std::initializer_list<std::string> parts, const std::string& samples,
                                const std::string& labels) {
    expect_error(ExitCode::kBadData, parts, [&] { import(samples, labels); });
    EXPECT_EQ(folder_.files(), 2) << "a temporary file was left behind";
  };
  const std::string good = npy("<f4", "2, 1", bytes_of<float>({1, 2}));
  refuse_array({"x.npy", "shape is [2, 1]", "4 bytes follow"}, good.substr(0, good.size() - 4), two);
  refuse_array({"x.npy", "bytes follow"}, npy("<f4", "4611686018427387904, 4", "1234"), two);
  refuse_array({"x.npy", "its shape is not valid"}, npy("<f4", "2, -1", ""), two);
  refuse_array({"x.npy", "type O8"}, npy("|O8", "2,", std::string(16, 'x')), two);
  refuse_array({"x.npy", "\\x93NUMPY"}, "PK\3\4 and some more", two);
  refuse_array({"x.npy", "feature 0 of row 1 is nan"}, npy("<f4", "2, 1", bytes_of<float>({1, NAN})), two);
  refuse_array({"y.npy", "target 1 is nan"}, good, npy("<f4", "2,", bytes_of<float>({1, NAN})));
  refuse_array({"y.npy", "label 1 is -1"}, good, npy("<i4", "2,", bytes_of<int32_t>({1, -1})));
  refuse_array({"x.npy", "2 samples", "1 labels"}, good, npy("<i4", "1,", bytes_of<int32_t>({1})));
  for (size_t size = 0; size < good.size(); ++size) refuse_array({"x.npy"}, good.substr(0, size), two);
}

// As NumPy writes them with dtype='>f8', order='F', of truths, and as columns.
TEST_F(TableTest, ClassesOfAnArrayThatHaveNoSampleAreNamed) {
  const std::string x = folder_ / "x.npy", y = folder_ / "y.npy";
  write_file(x, npy("<f4", "3, 1", bytes_of<float>({1, 2, 3})));
  const auto said = [&](std::initializer_list<int32_t> labels, const ImportOptions& options = {.force = true}) {
    write_file(y, npy("<i4", "3,", bytes_of<int32_t>(labels)));
    ::testing::internal::CaptureStderr();
    import_npy(x, y, out_, options);
    return ::testing::internal::GetCapturedStderr();
  };
  const auto holds = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), text.npos) << text << "\nlacks: " << part;
  };
  EXPECT_EQ(said({1, 0, 2}), "");
  const std::string from_one = said({1, 2, 1});
  holds(from_one, "y.npy: its labels are numbers of 3 classes, from 0 to the largest, and class 0 has no sample");
  holds(from_one, "where labels count from 1, subtract 1 from each");
  EXPECT_EQ(inspect_dataset(out_).per_class, (std::vector<int64_t>{0, 2, 1})) << "labels stay as they are";
  holds(said({0, 5, 3}),
        "classes 1, 2, 4 have no sample, though the model has an output for each of them; where these classes do not "
        "exist, renumber the labels from 0 without gaps");
  holds(said({20, 20, 20}), "classes 0, 1, 2, 3, 4, 5, 6, 7 and 12 more have no sample");
  const std::string training = folder_ / "training.h5";
  EXPECT_EQ(said({0, 1, 2}), "");
  std::filesystem::rename(out_, training);
  EXPECT_EQ(said({1, 2, 1}, {.like = like_file(training)}), "") << "further data has the classes of the first";
}

TEST_F(TableTest, ArraysOfNumPyInOtherFormsAreRead) {
  const std::string x = folder_ / "x.npy", y = folder_ / "y.npy";
  const auto import = [&](const std::string& samples, const std::string& labels) {
    write_file(x, samples);
    write_file(y, labels);
    import_npy(x, y, out_, {.force = true});
    return this->samples();
  };
  const auto fortran = [](std::string array) {
    const size_t at = array.find("False");
    return array.replace(at, 5, "True ");
  };
  const std::string two = npy("<i8", "2,", bytes_of<int64_t>({1, 0}));
  const auto rows = import(npy("<f8", "2, 3", bytes_of<double>({1, 5, -2, 3, 7, 2})), two);
  EXPECT_EQ(import(fortran(npy("<f8", "2, 3", bytes_of<double>({1, 3, 5, 7, -2, 2}))), two), rows);
  std::string swapped = bytes_of<double>({1, 5, -2, 3, 7, 2});
  for (size_t at = 0; at < swapped.size(); at += 8) std::reverse(swapped.begin() + at, swapped.begin() + at + 8);
  EXPECT_EQ(import(npy(">f8", "2, 3", swapped), two), rows);
  EXPECT_EQ(
      import(npy("<f8", "2, 3", bytes_of<double>({1, 5, -2, 3, 7, 2})), npy("<i8", "2, 1", bytes_of<int64_t>({1, 0}))),
      rows);
  EXPECT_EQ(import(npy("<f8", "2, 3", bytes_of<double>({1, 5, -2, 3, 7, 2})), npy("|b1", "2,", std::string("\1\0", 2))),
            rows);
  EXPECT_EQ(labels_, (std::vector<int32_t>{1, 0}));
  // Images [2, 2, 2, 1] in either order.
  const std::string bytes = bytes_of<uint8_t>({0, 10, 20, 30, 40, 50, 60, 70});
  const auto pictures = import(npy("|u1", "2, 2, 2, 1", bytes), two);
  EXPECT_EQ(import(fortran(npy("|u1", "2, 2, 2, 1", bytes_of<uint8_t>({0, 40, 20, 60, 10, 50, 30, 70}))), two),
            pictures);
  const std::string shares =
      bytes_of<float>({0, 10 / 255.f, 20 / 255.f, 30 / 255.f, 40 / 255.f, 50 / 255.f, 60 / 255.f, 70 / 255.f});
  EXPECT_EQ(import(npy("<f4", "2, 2, 2", shares), two), pictures);
  EXPECT_EQ(import(npy("<i2", "2, 2, 2", bytes_of<int16_t>({0, 10, 20, 30, 40, 50, 60, 70})), two), pictures);
  EXPECT_EQ(import(npy("<f8", "2, 2, 2", bytes_of<double>({0, 10, 20, 30, 40, 50, 60, 70})), two), pictures);
  EXPECT_EQ(import(npy("|b1", "2, 1, 2", std::string("\0\1\1\0", 4)), two),
            import(npy("|u1", "2, 1, 2", bytes_of<uint8_t>({0, 255, 255, 0})), two));
  const auto refused = [&](std::initializer_list<std::string> parts, const std::string& samples) {
    expect_error(ExitCode::kBadData, parts, [&] { import(samples, two); });
  };
  refused({"x.npy: image 1 holds -1", "undo their normalisation"}, npy("<f4", "2, 1, 1", bytes_of<float>({0, -1})));
  refused({"x.npy: image 0 holds a fraction"}, npy("<f4", "2, 1, 1", bytes_of<float>({0.5f, 7})));
  refused({"x.npy: image 1 holds 256"}, npy("<i4", "2, 1, 1", bytes_of<int32_t>({0, 256})));
  refused({"x.npy: image 0 holds nan"}, npy("<f4", "2, 1, 1", bytes_of<float>({NAN, 0})));
}

TEST_F(TableTest, ArraysOfAnArchiveAreChosenByName) {
  const std::string path = folder_ / "d.npz";
  const std::string images = npy("|u1", "2, 2, 1", bytes_of<uint8_t>({0, 255, 255, 0}));
  const std::string features = npy("<f2", "2, 1", bytes_of<uint16_t>({0x3c00, 0x4200}));  // 1, 3
  const std::string labels = npy("<i8", "2,", bytes_of<int64_t>({1, 0}));
  const auto import = [&](const std::map<std::string, std::string>& arrays, const std::string& x = "",
                          const std::string& y = "") {
    std::filesystem::remove(path);
    ZipWriter zip(path);
    for (const auto& [name, bytes] : arrays) {
      zip.begin(name, static_cast<int64_t>(bytes.size()));
      zip.write(bytes.data(), static_cast<int64_t>(bytes.size()));
    }
    zip.commit();
    import_npz(path, x, y, out_, {.force = true});
  };
  import({{"x_train.npy", images}, { "y_train.npy", labels }});
  EXPECT_EQ(samples(), (std::vector<std::vector<float>>{{-1, 1}, {1, -1}}));
  EXPECT_EQ(labels_, (std::vector<int32_t>{1, 0}));
  import({{"names.npy", "of no use"}, {"x.npy", features}, {"x_train.npy", images}, { "y.npy", labels }});
  EXPECT_EQ(samples(), (std::vector<std::vector<float>>{{-1}, {1}}));
  import({{"pixels.npy", images}, { "digit.npy", labels }}, "pixels", "digit");
  EXPECT_EQ(samples().size(), 2u);
  import({{"x.npy", features}, {"y.npy", labels}, { "w.npy", npy("<f4", "2,", bytes_of<float>({2, 0})) }});
  import_npz(path, "", "", out_, {.force = true}, ImageLayout::kByShape, "w");
  EXPECT_EQ(open_dataset_file(out_, 0)->weights, (std::vector<float>{2, 0}));
  expect_error(ExitCode::kBadData, {"d.npz: holds no array v"},
               [&] { import_npz(path, "", "", out_, {.force = true}, ImageLayout::kByShape, "v"); });
  std::filesystem::remove(out_);
  const auto refuse_archive = [&](std::initializer_list<std::string> parts,
                                  const std::map<std::string, std::string>& arrays, const std::string& x = "") {
    expect_error(ExitCode::kBadData, parts, [&] { import(arrays, x); });
    EXPECT_EQ(folder_.files(), 1) << "a temporary file was left behind";
  };
  refuse_archive({"d.npz", "none of the arrays x and x_train", "--samples", "it holds pixels, y"},
                 {{"pixels.npy", images}, {"y.npy", labels}});
  refuse_archive({"d.npz", "no array z; it holds x, y"}, {{"x.npy", images}, {"y.npy", labels}}, "z");
  refuse_archive({"d.npz: array x", "bytes follow"}, {{"x.npy", images + "0"}, {"y.npy", labels}});
  refuse_archive({"d.npz: array x", "no .npy array"}, {{"x.npy", "of no use"}, {"y.npy", labels}});
  refuse_archive({"d.npz: array y", "targets are floating-point numbers"},
                 {{"x.npy", images}, {"y.npy", npy("<f2", "1, 2", bytes_of<uint16_t>({0x3c00, 0x4200}))}});
  refuse_archive({"d.npz: array x", "at least one sample"}, {{"x.npy", npy("<f4", "", "1234")}, {"y.npy", labels}});
  refuse_archive({"d.npz", "member x.txt is no array"}, {{"x.txt", images}, {"y.npy", labels}});
  import({{"x.npy", images}, { "y.npy", labels }});
  std::filesystem::remove(out_);
  const std::string whole = content(path);
  for (const std::string& part : {std::string("\0\xff\xff\0", 4), bytes_of<int64_t>({1, 0})}) {  // pixels, labels
    write_file(path, whole);
    flip_byte_of(path, part.data(), part.size(), 0);
    expect_error(ExitCode::kBadData, {"d.npz: member ", ".npy: is damaged: its checksum differs"},
                 [&] { import_npz(path, "", "", out_); });
    EXPECT_FALSE(std::filesystem::exists(out_));
  }
  write_file(path, whole);
  write_file(out_ + ".npy", labels);
  expect_error(ExitCode::kBadData, {"d.npz: is an archive"}, [&] { import_npy(path, out_ + ".npy", out_); });
}

}  // namespace
}  // namespace lockstep::table_test
