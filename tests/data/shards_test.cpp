// WebDataset's shards: tar archives of images and labels become the dataset that a folder of the same files becomes,
// in every form of tar, and what is wrong with one is named by shard, sample and byte.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "core/base/hash.h"
#include "data/import/import.h"
#include "data/samples/inspect.h"
#include "tests/data/killed_import.h"
#include "tests/data/make_files.h"
#include "tests/support/files.h"

namespace lockstep::shards_test {
namespace {

using namespace test;
using Files = std::vector<std::pair<std::string, std::string>>;  // name and bytes

std::string fixture(const std::string& name) { return content(std::string(LOCKSTEP_TEST_IMAGES) + "/" + name); }

std::string octal(size_t value, size_t digits) {
  std::string out(digits, '0');
  for (size_t i = digits; i-- > 0; value /= 8) out[i] = static_cast<char>('0' + value % 8);
  return out;
}

// A member as POSIX has it; `type`: '0' a file, '2' a link, 'x' pax's attributes, 'L' GNU's long name.
std::string tar_member(const std::string& name, const std::string& bytes, char type = '0') {
  std::string header(512, '\0');
  header.replace(0, std::min<size_t>(name.size(), 100), name, 0, 100);
  header.replace(100, 7, "0000644");
  header.replace(124, 11, octal(bytes.size(), 11));
  header.replace(136, 11, octal(0, 11));
  header.replace(148, 8, "        ");
  header[156] = type;
  if (type == '2') header.replace(157, 6, "target");
  header.replace(257, 8, std::string("ustar\00000", 8));
  size_t sum = 0;
  for (unsigned char c : header) sum += c;
  header.replace(148, 7, octal(sum, 6) + '\0');
  return header + bytes + std::string((512 - bytes.size() % 512) % 512, '\0');
}
const std::string kEnd(1024, '\0');

enum class LongNames { kNone, kGnu, kPax };
std::string tar_of(const Files& files, LongNames names = LongNames::kNone) {
  std::string out;
  for (const auto& [name, bytes] : files) {
    if (names == LongNames::kGnu) out += tar_member("././@LongLink", name + '\0', 'L');
    std::string line = " path=" + name + "\n";
    for (size_t size = line.size(); line[0] == ' ' && size < line.size() + 5; ++size)
      if (std::to_string(size).size() + line.size() == size) line.insert(0, std::to_string(size));
    if (names == LongNames::kPax) out += tar_member("PaxHeader", line, 'x');
    out += tar_member(name, bytes);
  }
  return out + kEnd;
}

// Images of one size, in colour; two more have other sizes.
const std::vector<std::string> kAlike = {"rgb.png", "rgb.jpg", "palette.png", "rgba.png", "progressive.jpg"};

class ShardsTest : public testing::Test {
 protected:
  // A folder for each label, and the same files in the order in which the import of a folder puts them.
  Files with_folder(std::vector<std::string> images, const std::string& folder) {
    std::vector<std::pair<uint64_t, Files>> samples;
    for (size_t i = 0; i < images.size(); ++i) {
      const std::string label = i % 3 == 0 ? "cat" : "dog", name = label + "/" + images[i];
      std::filesystem::create_directories(folder + "/" + label);
      write_file(folder + "/" + name, fixture(images[i]));
      const std::string key = "n/" + std::to_string(i), end = images[i].substr(images[i].find('.'));
      samples.push_back({hash64(name), {{key + ".cls", label + "\n"}, {key + end, fixture(images[i])}}});
    }
    std::sort(samples.begin(), samples.end());
    Files out;
    for (const auto& sample : samples) out.insert(out.end(), sample.second.begin(), sample.second.end());
    return out;
  }
  std::string shard(const std::string& name, const std::string& bytes) {
    write_file(dir_ / name, bytes);
    return dir_ / name;
  }
  void refuse(std::initializer_list<std::string> parts, const std::string& bytes, const ShardOptions& how = {}) {
    const std::string path = shard("bad.tar", bytes);
    expect_error(ExitCode::kBadData, parts, [&] { import_shards({path}, dir_ / "no.h5", how); });
    EXPECT_FALSE(std::filesystem::exists(dir_ / "no.h5"));
  }
  TemporaryFolder dir_;
};

TEST_F(ShardsTest, AreTheDatasetOfTheSameFilesInAFolder) {
  for (const bool mixed : {false, true})
    for (const bool keep_encoded : {false, true}) {
      std::vector<std::string> images = kAlike;
      if (mixed) images.insert(images.end(), {"turned6.jpg", "grey.png"});
      const std::string folder = dir_ / ("folder" + std::to_string(mixed));
      const Files files = with_folder(images, folder);
      import_images(folder, dir_ / "folder.h5", {.keep_encoded = keep_encoded}, {.force = true});
      const std::string wanted = content(dir_ / "folder.h5");
      const size_t half = files.size() / 4 * 2;
      const std::vector<std::string> two = {shard("0.tar", tar_of({files.begin(), files.begin() + half})),
                                            shard("1.tar", tar_of({files.begin() + half, files.end()}))};
      for (const int threads : {1, 3}) {
        import_shards(two, dir_ / "shards.h5", {.keep_encoded = keep_encoded}, {.force = true, .threads = threads});
        EXPECT_EQ(content(dir_ / "shards.h5"), wanted) << mixed << keep_encoded;
      }
      EXPECT_EQ(inspect_dataset(dir_ / "shards.h5").count, static_cast<int64_t>(images.size()));
    }
}

TEST_F(ShardsTest, EveryFormOfTarIsTheSame) {
  Files files = with_folder(kAlike, dir_ / "folder");
  import_shards({shard("plain.tar", tar_of(files))}, dir_ / "plain.h5");
  const std::string wanted = content(dir_ / "plain.h5");
  const auto is_wanted = [&](const std::string& path) {
    import_shards({path}, dir_ / "other.h5", {}, {.force = true});
    EXPECT_EQ(content(dir_ / "other.h5"), wanted) << path;
  };
  write_gzip(dir_ / "packed.tar.gz", tar_of(files));
  is_wanted(dir_ / "packed.tar.gz");
  for (auto& [name, bytes] : files) name = std::string(200, 'x') + "/\xC3\xBC/" + name;
  is_wanted(shard("gnu.tar", tar_of(files, LongNames::kGnu)));
  is_wanted(shard("pax.tar", tar_of(files, LongNames::kPax)));
  // Names are never paths: they lead nowhere.
  for (auto& [name, bytes] : files) name = "/../../" + name.substr(name.size() - 5);
  is_wanted(shard("outside.tar", tar_of(files)));
}

TEST_F(ShardsTest, LabelsOfJsonAndNamesAsWebDatasetHasThem) {
  const std::string image = fixture("rgb.png"), path = shard("json.tar", tar_of({{"./b.PNG", image},
                                                                                 {"./b.json", R"({"y": 10})"},
                                                                                 {"./b.seg.png", "other"},
                                                                                 {"./._b.png", "of macOS"},
                                                                                 {"README", "no sample"},
                                                                                 {"./a.png", image},
                                                                                 {"./a.json", R"({"y": 9})"}}));
  import_shards({path}, dir_ / "json.h5", {.label = "y"});
  const DatasetReport report = inspect_dataset(dir_ / "json.h5");
  EXPECT_EQ(report.count, 2);
  EXPECT_EQ(report.class_names, (std::vector<std::string>{"9", "10"}));
  expect_error(ExitCode::kBadData, {"json.tar: sample './b': has no label", "among .png, .json, .seg.png", "--label"},
               [&] { import_shards({path}, dir_ / "no.h5"); });
}

TEST_F(ShardsTest, NameWhatASampleLacks) {
  const std::string image = fixture("rgb.png");
  const std::pair<std::string, std::string> png{"b.png", image}, cls{"b.cls", "1"};
  refuse({"bad.tar: sample 'b': has no image", "among .cls"}, tar_of({cls}));
  refuse({"bad.tar: sample 'b': has no label"}, tar_of({{"a.png", image}, {"a.cls", "0"}, png}));
  refuse({"bad.tar: sample 'b': has two images, .png and .jpg"}, tar_of({png, {"b.jpg", image}, cls}));
  refuse({"bad.tar: sample 'b' has two members .cls"}, tar_of({png, cls, cls}));
  refuse({"bad.tar: sample 'b': its .cls is empty"}, tar_of({png, {"b.cls", " \n"}}));
  refuse({"bad.tar: sample 'b': its .cls is no label"}, tar_of({png, {"b.cls", "a\nb"}}));
  refuse({"bad.tar: sample 'b': its .cls is no label"}, tar_of({png, {"b.cls", "\xFF"}}));
  refuse({"bad.tar: sample 'b': its .json: has no field \"y\""}, tar_of({png, {"b.json", "{}"}}), {.label = "y"});
  refuse({"bad.tar: sample 'b': its .json is no JSON object"}, tar_of({png, {"b.json", "[]"}}), {.label = "y"});
  refuse({"bad.tar: b.png: "}, tar_of({{"b.png", "no image"}, cls}));
  refuse({"bad.tar: holds no sample"}, kEnd);
}

TEST_F(ShardsTest, SkipBadLeavesOutSamples) {
  const Files files = {{"a.png", fixture("rgb.png")}, {"a.cls", "0"}, {"b.png", "no image"},         {"b.cls", "0"},
                       {"c.png", fixture("rgb.png")}, {"d.cls", "1"}, {"e.png", fixture("rgb.png")}, {"e.cls", "1"}};
  refuse({"bad.tar: sample 'd'", "2 bad images before it were left out"}, tar_of(files), {.skip_bad = 2});
  import_shards({shard("ok.tar", tar_of(files))}, dir_ / "ok.h5", {.skip_bad = 3});
  import_shards({shard("two.tar", tar_of({files[0], files[1], files[6], files[7]}))}, dir_ / "two.h5");
  EXPECT_EQ(content(dir_ / "ok.h5"), content(dir_ / "two.h5"));
}

TEST_F(ShardsTest, TextsAreTheRecordsOfATable) {
  const auto word = [](int i) {
    return std::string(static_cast<size_t>(i % 50), 'a') + " \xC3\xBC " + std::to_string(i);
  };
  Files classes, fields;
  std::string table = "t,y\n";
  for (int i = 0; i < 12000; ++i) {
    const std::string key = std::to_string(i), label = i % 3 ? "no" : "yes";
    classes.insert(classes.end(), {{key + ".txt", word(i)}, {key + ".cls", label + "\n"}});
    if (i < 50) fields.insert(fields.end(), {{key + ".json", R"({"y": ")" + label + "\"}"}, {key + ".txt", word(i)}});
    table += word(i) + "," + label + "\n";
  }
  write_file(dir_ / "t.csv", table);
  const std::string path = shard("t.tar", tar_of(classes)), output = dir_ / "t.h5", wanted = dir_ / "csv.h5";
  import_csv_text(dir_ / "t.csv", wanted, {.text = "t", .label = "y"});
  EXPECT_GE(kill_until_complete(output, [&](const ImportOptions& o) { import_shard_texts({path}, output, {}, o); }), 1);
  EXPECT_TRUE(content(output) == content(wanted));

  write_file(dir_ / "t.csv", table.substr(0, table.find("\n" + word(50) + ",") + 1));
  const std::string few = shard("few.tar", tar_of(fields));
  for (const char* label : {"", "y"}) {
    import_csv_text(dir_ / "t.csv", wanted, {.text = "t", .label = label}, {.force = true});
    import_shard_texts({few}, output, {.label = label}, {.force = true});
    EXPECT_TRUE(content(output) == content(wanted)) << label;
  }
}

TEST_F(ShardsTest, NameWhatATextLacks) {
  const auto refuse_texts = [&](std::initializer_list<std::string> parts, const Files& files,
                                ShardTextOptions how = {}) {
    const std::string path = shard("bad.tar", tar_of(files));
    expect_error(ExitCode::kBadData, parts, [&] { import_shard_texts({path}, dir_ / "no.h5", how); });
  };
  refuse_texts({"bad.tar: sample 'b': has no text: no member .txt among .md"}, {{"a.txt", "t"}, {"b.md", "t"}});
  refuse_texts({"bad.tar: sample 'b': has no member .cls"}, {{"a.txt", "t"}, {"a.cls", "0"}, {"b.txt", "t"}});
  refuse_texts({"bad.tar: sample 'b': has a member .cls"}, {{"a.txt", "t"}, {"b.txt", "t"}, {"b.cls", "0"}});
  refuse_texts({"bad.tar: sample 'a': has no label: no member .json among"}, {{"a.txt", "t"}}, {.label = "y"});
  refuse_texts({"bad.tar: b.txt: byte 1 is invalid UTF-8"}, {{"a.txt", "t"}, {"b.txt", "t\xFF"}});
  refuse_texts({"bad.tar: holds no sample"}, {});
}

TEST_F(ShardsTest, EveryTruncationIsNamed) {
  const std::string whole = tar_of({{"a.png", fixture("rgb.png")}, {"a.cls", "0"}, {"b.png", fixture("palette.png")}});
  const size_t size = whole.size() - kEnd.size();
  for (size_t at = 512; at <= size; at += at % 512 == 0 ? 1 : at % 512 == 1 ? 510 : 1)
    refuse({"bad.tar: is ", "truncated", "member '", "byte"}, whole.substr(0, at), {.skip_bad = 9});
  refuse({"bad.tar: is no tar archive"}, whole.substr(0, 100));
  refuse({"bad.tar: is no tar archive"}, "");
  write_gzip(dir_ / "packed.tar.gz", whole);
  const std::string packed = content(dir_ / "packed.tar.gz");
  refuse({"bad.tar: gzip data is truncated"}, packed.substr(0, packed.size() - 3));
}

TEST_F(ShardsTest, RefusesWhatIsNoFileAndDamage) {
  const std::string a = tar_member("a.png", fixture("rgb.png")) + tar_member("a.cls", "0");
  refuse({"bad.tar: the member 'b.png' at byte ", "is a link"}, a + tar_member("b.png", "", '2') + kEnd);
  refuse({"bad.tar: the member 'b.png' at byte ", "is a device"}, a + tar_member("b.png", "", '6') + kEnd);
  refuse({"bad.tar: has data after its end-of-archive marker, from byte "}, a + kEnd + a + kEnd);
  std::string damaged = a + tar_member("b.png", "x") + kEnd;
  damaged[a.size() + 1] = 'y';
  refuse({"bad.tar: is damaged or truncated at byte ", "behind the member 'a.cls'"}, damaged);
  expect_error(ExitCode::kMissingInput, {"none.tar"}, [&] { import_shards({dir_ / "none.tar"}, dir_ / "no.h5"); });
}

TEST_F(ShardsTest, AnImportThatIsKilledGoesOn) {
  const Files files = with_folder(kAlike, dir_ / "folder");
  shard("plain.tar", tar_of(files));
  write_gzip(dir_ / "packed.tar.gz", tar_of(files));
  for (const char* name : {"plain.tar", "packed.tar.gz"}) {
    const std::string path = dir_ / name, output = dir_ / "killed.h5";
    import_shards({path}, dir_ / "whole.h5", {}, {.force = true});
    EXPECT_GE(kill_until_complete(output, [&](const ImportOptions& o) { import_shards({path}, output, {}, o); }), 2);
    EXPECT_EQ(content(output), content(dir_ / "whole.h5")) << name;
    std::filesystem::remove(output);
  }
}

TEST_F(ShardsTest, RefusesAnArchiveThatChanges) {
  const std::string first = tar_of({{"a.png", fixture("rgb.png")}, {"a.cls", "0"}}), path = shard("a.tar", first);
  write_file(dir_ / "b.png", "");
  const std::string second =
      tar_of({{"a.png", fixture("rgb.png")}, {"a.cls", "0"}, {"c.png", fixture("palette.png")}, {"c.cls", "1"}});
  write_file(path, second);
  std::string other = second;
  std::fill(other.begin() + static_cast<std::ptrdiff_t>(first.size()) - 1024, other.end(), '\1');
  ImportOptions options{.threads = 1};
  options.progress = replaces_once(path, other);
  expect_error(ExitCode::kBadData, {"a.tar: c.png", "changed during the import"},
               [&] { import_shards({path}, dir_ / "no.h5", {}, options); });
}

}  // namespace
}  // namespace lockstep::shards_test
