// Importing: what went in comes out, and what is wrong with an input is named.
#include "data/import/import.h"

#include <gtest/gtest.h>

#include "core/io/hdf5/hdf5_file.h"
#include "data/samples/dataset_file.h"
#include "data/samples/inspect.h"
#include "data/samples/text/token_dataset.h"
#include "data/streams/open_dataset.h"
#include "tests/data/make_files.h"

namespace lockstep::import_test {
namespace {

using namespace test;

class ImportTest : public ::testing::Test {
 protected:
  std::string put(const std::string& name, const std::string& bytes) {
    write_file(folder_ / name, bytes);
    return folder_ / name;
  }
  // An earlier output, which every failure must leave alone.
  void expect_refused(ExitCode code, std::initializer_list<std::string> parts, const std::function<void()>& action) {
    write_file(out_, "earlier");
    int64_t files = folder_.files();
    expect_error(code, parts, action);
    EXPECT_EQ(content(out_), "earlier");
    EXPECT_EQ(folder_.files(), files) << "a temporary file was left behind";
  }
  void refuse_text(ExitCode code, std::initializer_list<std::string> parts, const std::vector<std::string>& inputs) {
    expect_refused(code, parts, [&] { import_text(inputs, out_, TextLevel::kChar, {.force = true}); });
  }
  void refuse_idx(ExitCode code, std::initializer_list<std::string> parts, const std::string& images,
                  const std::string& labels, int64_t classes = 0) {
    expect_refused(code, parts, [&] { import_idx(images, labels, out_, classes, {.force = true}); });
  }
  std::vector<int32_t> all_tokens() {
    auto file = open_dataset_file(out_, 1 << 30);
    std::vector<int32_t> ids(static_cast<size_t>(file->header.tokens));
    FileTokens(file).read({0, file->header.tokens}, ids.data());
    return ids;
  }

  TemporaryFolder folder_;
  std::string out_ = folder_ / "out.h5";
};

TEST_F(ImportTest, TextComesBackAtBothLevels) {
  // 1 to 4 bytes a character, a NUL, and characters across the inputs' blocks.
  std::string first = "grüße\n 漢字 🙂" + std::string(1, '\0') + "a", second;
  for (int i = 0; i < 400000; ++i) second += i % 3 ? "é" : "🙂";
  auto a = put("a.txt", first), b = put("b.txt", second);
  for (TextLevel level : {TextLevel::kChar, TextLevel::kByte}) {
    import_text({a, b}, out_, level, {.force = true});
    auto file = open_dataset_file(out_, 1 << 30);
    EXPECT_EQ(file->header.vocabulary->decode(all_tokens()), first + second);
    EXPECT_EQ(file->header.vocabulary->encode(first + second), all_tokens());
  }
}

TEST_F(ImportTest, CompressedTextIsTheSame) {
  const std::string text =
      "gr\xC3\xBC\xC3\x9F"
      "e and so on\n";
  write_gzip(folder_ / "a.gz", text);
  for (TextLevel level : {TextLevel::kChar, TextLevel::kByte}) {
    import_text({put("a.txt", text), folder_ / "a.gz"}, out_, level, {.force = true});
    EXPECT_EQ(open_dataset_file(out_, 1 << 30)->header.vocabulary->decode(all_tokens()), text + text);
  }
  const std::string zipped = content(folder_ / "a.gz");
  refuse_text(ExitCode::kBadData, {"cut.gz", "gzip data is truncated"}, {put("cut.gz", zipped.substr(0, 20))});
}

TEST_F(ImportTest, TokensAreStoredInTheSmallestType) {
  auto import = [&](uint32_t characters) {
    std::string text;
    for (uint32_t c = 0, code = 32; c < characters; ++c, ++code) {
      if (code == 0xD800) code = 0xE000;
      text += to_utf8(code);
    }
    import_text({put("a.txt", text)}, out_, TextLevel::kChar, {.force = true});
    auto file = open_dataset_file(out_, 1 << 30);
    EXPECT_EQ(file->header.vocabulary_size, characters);
    EXPECT_EQ(file->header.vocabulary->decode(all_tokens()), text);
    return Hdf5File::open(out_).info("tokens").type;
  };
  EXPECT_EQ(import(256), StoredType::kUInt8);
  EXPECT_EQ(import(257), StoredType::kUInt16);
  EXPECT_EQ(import(65537), StoredType::kUInt32);
}

TEST_F(ImportTest, IdentityIsOfTheContentAlone) {
  auto identity = [&](const std::string& text, TextLevel level) {
    import_text({put("a.txt", text)}, out_, level, {.force = true});
    return inspect_dataset(out_).identity;
  };
  Hash128 first = identity("hello", TextLevel::kChar);
  EXPECT_EQ(first, identity("hello", TextLevel::kChar));
  EXPECT_FALSE(first == identity("hello", TextLevel::kByte));
  EXPECT_FALSE(first == identity("hellp", TextLevel::kChar));
  EXPECT_FALSE(first == identity("ifmmp", TextLevel::kChar)) << "same ids, other vocabulary";
}

TEST_F(ImportTest, AGivenVocabularyStays) {
  auto given = [&](std::unique_ptr<Vocabulary> v) {
    return ImportOptions{.force = true, .vocabulary = std::shared_ptr<const Vocabulary>(std::move(v))};
  };
  const std::string whole = put("whole.txt", "abcdé\n"), part = put("part.txt", "cab\n\ndad"),
                    odd = put("odd.txt", "éab漢c");
  // Of a text, and of a dataset made from it: the same ids, though the text uses a part of the characters.
  import_text({whole}, folder_ / "whole.h5", TextLevel::kChar);
  EXPECT_TRUE(is_hdf5_file(folder_ / "whole.h5"));
  EXPECT_FALSE(is_hdf5_file(whole));
  for (const bool dataset : {false, true}) {
    auto made = dataset ? vocabulary_of_dataset(folder_ / "whole.h5") : vocabulary_of_text(whole);
    import_text({part}, out_, TextLevel::kChar, given(std::move(made)));
    EXPECT_EQ(all_tokens(), (std::vector<int32_t>{3, 1, 2, 0, 0, 4, 1, 4}));
    EXPECT_EQ(open_dataset_file(out_, 1 << 20)->header.vocabulary_size, 6);
  }
  expect_refused(ExitCode::kBadData, {"odd.txt", "'漢' (U+6F22) at byte 4", "vocabulary of 6 characters"}, [&] {
    import_text({part, odd}, out_, TextLevel::kChar, given(vocabulary_of_text(whole)));
  });
  const std::string bell = put("bell.txt", "ab\a");
  expect_refused(ExitCode::kBadData, {"bell.txt", "character U+0007 at byte 2"},
                 [&] { import_text({bell}, out_, TextLevel::kChar, given(vocabulary_of_text(whole))); });
}

TEST(VocabularyTest, TheFirstDifferenceIsNamed) {
  const auto of = [](std::vector<uint32_t> points) { return Vocabulary::chars(std::move(points)); };
  EXPECT_EQ(first_difference(of({'a', 'b'}), of({'a', 'b'})), "");
  EXPECT_EQ(first_difference(Vocabulary::bytes(), Vocabulary::bytes()), "");
  EXPECT_EQ(first_difference(of({'\n', 'b', 'c'}), of({'\n', 'b', 'd'})),
            "token 2 is 'c' (U+0063) there and 'd' (U+0064) here (vocabularies of 3 and 3 characters)");
  EXPECT_EQ(first_difference(of({'a'}), of({'a', '\n' + 250})),
            "token 1 is nothing there and 'Ą' (U+0104) here (vocabularies of 1 and 2 characters)");
  EXPECT_EQ(first_difference(of({'a'}), Vocabulary::bytes()), "tokens are characters there and bytes here");
}

TEST_F(ImportTest, WrongTextIsNamed) {
  refuse_text(ExitCode::kMissingInput, {folder_ / "no.txt", "No such file"}, {folder_ / "no.txt"});
  refuse_text(ExitCode::kBadData, {"empty.txt", "no text at all"}, {put("empty.txt", "")});
  refuse_text(ExitCode::kBadData, {"is not a file"}, {folder_ / ""});
  auto bad = [&](const std::string& bytes, int64_t at) {
    refuse_text(ExitCode::kBadData, {"bad.txt", str("invalid UTF-8 at byte ", at, ";")}, {put("bad.txt", bytes)});
  };
  bad("abc\xff", 3);
  bad("ab\xc0\xaf", 2);        // overlong
  bad("é\xed\xa0\x80", 2);     // a surrogate
  bad("\xf4\x90\x80\x80", 0);  // past U+10FFFF
  bad("abé\xe6\xbc", 4);       // cut within a character
  bad("\xe6\xbcx", 0);
  bad(str(std::string((1 << 20) - 1, 'x'), "\xc3("), (1 << 20) - 1);  // across a block
  expect_refused(ExitCode::kOutputLocked, {out_, "already there"},
                 [&] { import_text({put("bad.txt", "fine")}, out_, TextLevel::kChar); });
  expect_error(ExitCode::kUsage, {"name at least one"}, [&] { import_text({}, out_, TextLevel::kChar); });
}

TEST_F(ImportTest, AnInputThatIsReplacedBetweenThePassesIsRefused) {
  const std::string path = put("a.txt", "one text"), other = "eno text";  // of the same characters
  expect_error(ExitCode::kBadData, {"a.txt: changed during the import"},
               [&] { import_text({path}, out_, TextLevel::kChar, {.progress = replaces_once(path, other)}); });
  EXPECT_FALSE(std::filesystem::exists(out_));
  import_text({path}, out_, TextLevel::kByte, {.progress = replaces_once(path, "x")});  // is read once
  EXPECT_EQ(inspect_dataset(out_).count, 8);
}

TEST_F(ImportTest, AFullDiskLeavesTheEarlierOutput) {
  auto input = put("a.txt", noise(3 << 20, 1));
  for (uint64_t limit : {0, 1000, 100000, 3145000}) {
    expect_refused(ExitCode::kStorage, {out_}, [&] {
      FileSizeLimit full(limit);
      import_text({input}, out_, TextLevel::kByte, {.force = true});
    });
  }
  import_text({input}, out_, TextLevel::kByte, {.force = true});
  EXPECT_EQ(inspect_dataset(out_).count, 3 << 20);
}

TEST_F(ImportTest, ProgressEndsAtItsTotal) {
  for (TextLevel level : {TextLevel::kChar, TextLevel::kByte}) {
    int64_t last = -1, goal = 0;
    import_text({put("a.txt", std::string(3 << 20, 'x'))}, out_, level,
                {.force = true, .progress = [&](int64_t done, int64_t total) {
                   EXPECT_GE(done, last);
                   last = done, goal = total;
                 }});
    EXPECT_EQ(last, goal);
    EXPECT_GT(goal, 0);
  }
}

TEST_F(ImportTest, ImagesComeBackNormalised) {
  std::string pixels = noise(50 * 7 * 5 * 3, 9), labels = cycling_labels(50, 4);
  write_gzip(folder_ / "i.gz", idx({50, 7, 5, 3}, pixels));
  auto plain = put("l", idx({50}, labels));
  import_idx(folder_ / "i.gz", plain, out_);
  Datasets data = open_datasets({.path = out_, .validation = 0}, 0);
  EXPECT_EQ(data.train->size(), 50);
  EXPECT_EQ(data.train->spec().input().shape, Shape({7, 5, 3}));
  EXPECT_EQ(data.train->spec().find(kLabels)->shape, Shape());
  EXPECT_EQ(data.train->spec().classes, 4);
  EXPECT_EQ(data.validation, nullptr);
  DatasetReport report = inspect_dataset(out_);
  EXPECT_EQ(report.per_class, (std::vector<int64_t>{13, 13, 12, 12}));
  double sum[3] = {}, square[3] = {};
  std::vector<float> sample(105);
  for (int64_t i = 0; i < 50; ++i) {
    int32_t label = -1;
    data.train->read(0, i, {data.train->spec().tensors, std::array<void*, 2>{sample.data(), &label}});
    EXPECT_EQ(label, i % 4);
    for (size_t j = 0; j < 105; ++j) {
      size_t c = j % 3;
      double byte = static_cast<uint8_t>(pixels[static_cast<size_t>(i) * 105 + j]);
      EXPECT_EQ(sample[j], static_cast<float>((byte / 255.0 - report.mean[c]) / report.stddev[c]));
      sum[c] += sample[j], square[c] += sample[j] * sample[j];
    }
  }
  for (int c = 0; c < 3; ++c) {
    EXPECT_NEAR(sum[c] / (50 * 35), 0, 1e-5);
    EXPECT_NEAR(square[c] / (50 * 35), 1, 1e-5);
  }
}

TEST_F(ImportTest, ClassesWithoutAnImageAreNamed) {
  std::string labels = cycling_labels(10, 5);
  for (char& label : labels) ++label;
  put("i", idx({10, 4, 4}, noise(160, 2))), put("l", idx({10}, labels));
  for (const int64_t classes : {0, 6}) {
    ::testing::internal::CaptureStderr();
    import_idx(folder_ / "i", folder_ / "l", out_, classes, {.force = true});
    const std::string said = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(said.find("class 0 has no sample") != said.npos, classes == 0) << said;
    EXPECT_EQ(said.find("--classes 6 says that there are so many") != said.npos, classes == 0) << said;
  }
}

TEST_F(ImportTest, WrongImagesAreNamed) {
  auto images = put("i", idx({10, 4, 4}, noise(160, 2))), labels = put("l", idx({10}, cycling_labels(10, 10)));
  refuse_idx(ExitCode::kMissingInput, {folder_ / "no", "No such file"}, folder_ / "no", labels);
  refuse_idx(ExitCode::kBadData, {"holds 10 images, but", "holds 9 labels"}, images,
             put("l9", idx({9}, cycling_labels(9, 10))));
  refuse_idx(ExitCode::kBadData, {"/l:", "label 7 is 7, not in [0, 7)"}, images, labels, 7);
  refuse_idx(ExitCode::kBadData, {"/l:", "[10]", "images are"}, labels, labels);
  refuse_idx(ExitCode::kBadData, {"/i:", "labels are [count]"}, images, images);
  refuse_idx(ExitCode::kBadData, {"short", "truncated", "after 175 of 176 bytes"},
             put("short", idx({10, 4, 4}, noise(159, 2))), labels);
  refuse_idx(ExitCode::kBadData, {"first", "[10, 3, 4, 5]", "channels first"},
             put("first", idx({10, 3, 4, 5}, noise(600, 2))), labels);
  refuse_idx(ExitCode::kBadData, {"long", "holds more than"}, put("long", idx({10, 4, 4}, noise(161, 2))), labels);
  refuse_idx(ExitCode::kBadData, {"head", "truncated", "after 6 of 16 bytes"},
             put("head", idx({10, 4, 4}, "").substr(0, 6)), labels);
  refuse_idx(ExitCode::kBadData, {"none", "truncated", "after 0 of 4 bytes"}, put("none", ""), labels);
  refuse_idx(ExitCode::kBadData, {"text", "not an IDX file"}, put("text", "hello, world"), labels);
  std::string doubles = idx({10, 4, 4}, noise(160, 2));
  doubles[2] = 14;
  refuse_idx(ExitCode::kBadData, {"type 14"}, put("doubles", doubles), labels);
  refuse_idx(ExitCode::kBadData, {"huge", "truncated"}, put("huge", idx({4294967295u, 200, 200}, "x")),
             put("hugel", idx({4294967295u}, "x")));
  // One image of 256 MB, which would be allocated at once.
  refuse_idx(ExitCode::kBadData, {"wide", "truncated", "more values than its 17 bytes can hold"},
             put("wide", idx({1, 65536, 4096}, "x")), put("one_label", idx({1}, std::string(1, '\0'))));
  refuse_idx(ExitCode::kBadData, {"vast", "more values than any file holds"},
             put("vast", idx({4294967295u, 65536, 65536, 65536}, "x")), labels);
  refuse_idx(ExitCode::kBadData, {"size 0 in dimension 0"}, put("zero", idx({0, 4, 4}, "")), put("z", idx({0}, "")));
  refuse_idx(ExitCode::kBadData, {"wide", "in dimension 2"}, put("wide", idx({10, 4, 70000}, "")), labels);
  write_gzip(folder_ / "i.gz", idx({10, 4, 4}, noise(160, 2)));
  std::string zipped = content(folder_ / "i.gz");
  for (size_t size : {zipped.size() - 1, zipped.size() - 8, zipped.size() / 2, size_t{20}})
    refuse_idx(ExitCode::kBadData, {"cut.gz", "truncated"}, put("cut.gz", zipped.substr(0, size)), labels);
  zipped[zipped.size() / 2] = static_cast<char>(zipped[zipped.size() / 2] ^ 1);
  refuse_idx(ExitCode::kBadData, {"flip.gz", "damaged"}, put("flip.gz", zipped), labels);
}

TEST_F(ImportTest, InspectSaysWhatIsThere) {
  import_text({put("a.txt", "to be\tor not\n")}, out_, TextLevel::kChar);
  DatasetReport report = inspect_dataset(out_);
  EXPECT_EQ(report.count, 13);
  EXPECT_EQ(report.vocabulary, 9);
  std::string text = to_text(report);
  for (std::string part : {"kind: tokens\n", "level: char\n", "tokens: 13\n", "vocabulary: 9\n",
                           "characters: \\t\\n benort\n", "all whole\n"})
    EXPECT_NE(text.find(part), text.npos) << text;
  EXPECT_NE(text.find("identity: " + to_hex(report.identity)), text.npos);
}

}  // namespace
}  // namespace lockstep::import_test
