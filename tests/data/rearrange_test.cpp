// Dataset files as files: verified as a whole, split, merged.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>

#include "data/images/codecs/image_codec.h"
#include "data/import/import.h"
#include "data/import/rearrange.h"
#include "data/samples/dataset_file.h"
#include "data/samples/inspect.h"
#include "data/samples/text/token_dataset.h"
#include "data/samples/verify.h"
#include "data/streams/open_dataset.h"
#include "tests/data/make_files.h"

namespace lockstep::rearrange_test {
namespace {

using namespace test;

class RearrangeTest : public ::testing::Test {
 protected:
  // Rows of a table: a feature that tells them apart, one that is a category, and a label.
  std::string table(const std::string& name, int from, int to, const std::vector<std::string>& labels) {
    std::string text = "id,kind,y\n";
    for (int i = from; i < to; ++i)
      text += str(i, i % 2 ? ",odd," : ",even,", labels[static_cast<size_t>(i) % labels.size()], "\n");
    write_file(folder_ / "t.csv", text);
    import_csv(folder_ / "t.csv", folder_ / name, {.label = "y"}, {.force = true});
    return folder_ / name;
  }
  std::string records(const std::string& name, const std::vector<std::string>& texts, bool targets = false) {
    std::string lines;
    for (const std::string& t : texts)
      lines += targets ? str("{\"p\":\"", t.substr(0, 1), "\",\"c\":\"", t.substr(1), "\"}\n")
                       : str("{\"text\":\"", t, "\"}\n");
    write_file(folder_ / "r.jsonl", lines);
    JsonFields fields;
    if (targets) fields.prompt = "p", fields.completion = "c";
    else fields.text = "text";
    import_json({folder_ / "r.jsonl"}, folder_ / name, fields, 0, {.force = true});
    return folder_ / name;
  }
  std::string text(const std::string& name, const std::string& content, TextLevel level = TextLevel::kByte) {
    write_file(folder_ / "t.txt", content);
    import_text({folder_ / "t.txt"}, folder_ / name, level, {.force = true});
    return folder_ / name;
  }
  std::string images(const std::string& name, size_t count, uint32_t seed, int classes = 3) {
    const auto n = static_cast<uint32_t>(count);
    write_file(folder_ / "i.idx", idx({n, 4, 5}, noise(count * 20, seed)));
    write_file(folder_ / "l.idx", idx({n}, cycling_labels(count, classes)));
    import_idx(folder_ / "i.idx", folder_ / "l.idx", folder_ / name, 0, {.force = true});
    return folder_ / name;
  }
  // The records of a file, or its whole text, as text; a target in capitals.
  static std::vector<std::string> texts_in(const std::string& path) {
    const auto file = open_dataset_file(path, 0);
    const FileTokens source(file);
    std::vector<std::string> out;
    const auto add = [&](IndexRange tokens) {
      std::vector<int32_t> ids(static_cast<size_t>(tokens.size()));
      std::vector<uint8_t> marks(ids.size(), 0);
      source.read(tokens, ids.data());
      if (source.has_targets()) source.read_targets(tokens, marks.data());
      std::string t = source.vocabulary()->decode(ids);
      for (size_t i = 0; i < t.size(); ++i)
        if (marks[i]) t[i] = static_cast<char>(std::toupper(t[i]));
      out.push_back(t);
    };
    if (source.records() > 0) source.visit_records(add);
    else add({0, source.size()});
    return out;
  }
  struct Sample {
    std::vector<float> values;
    int32_t label = 0;
    friend bool operator==(const Sample&, const Sample&) = default;
  };
  static std::vector<Sample> samples_in(const std::string& path) {
    DataOptions o;
    o.path = path;
    o.measured = DataPart::kAll;
    const Datasets data = open_datasets(o, 1);
    std::vector<Sample> out;
    for (int64_t i = 0; i < data.train->size(); ++i) {
      Sample& s = out.emplace_back();
      s.values.resize(static_cast<size_t>(data.train->spec().input().shape.numel()));
      data.train->read(0, i, {data.train->spec().tensors, std::array<void*, 2>{s.values.data(), &s.label}});
    }
    return out;
  }
  std::vector<SplitPart> split(const std::string& path, std::vector<double> shares, const SplitOptions& o = {}) {
    std::vector<SplitPart> parts;
    for (size_t i = 0; i < shares.size(); ++i) parts.push_back({folder_ / str("part", i, ".h5"), shares[i]});
    SplitOptions options = o;
    options.force = true;
    split_dataset(path, parts, options);
    return parts;
  }

  TemporaryFolder folder_;
};

// --- verify

TEST_F(RearrangeTest, AWholeFileIsWholeAndEveryDamagedChunkIsNamed) {
  const std::string content = noise(200000, 1), path = text("t.h5", content);
  const DatasetCheck whole = verify_dataset(path);
  EXPECT_TRUE(whole.whole()) << whole.error;
  EXPECT_EQ(whole.chunks, 4);
  EXPECT_EQ(whole.identity, inspect_dataset(path).identity);
  EXPECT_NE(to_text(whole, path).find(str(path, ": whole, 4 chunks, identity ", whole.identity)), std::string::npos);
  flip_byte_of(path, content.data() + 70000, 100, 50);
  flip_byte_of(path, content.data() + 199000, 100, 50);
  const DatasetCheck damaged = verify_dataset(path);
  EXPECT_EQ(damaged.damaged, (std::vector<std::string>{"dataset 'tokens', chunk 1, rows [65536, 131072)",
                                                       "dataset 'tokens', chunk 3, rows [196608, 200000)"}));
  EXPECT_NE(to_text(damaged, path).find("2 of 4 chunks are damaged"), std::string::npos) << to_text(damaged, path);
  EXPECT_EQ(to_text(damaged, path).find('\n'), std::string::npos);
}

TEST_F(RearrangeTest, DamageToLabelsRecordsAndStructureIsFound) {
  const std::string path = images("i.h5", 300, 1), labels = [] {
    std::string out;
    for (int32_t i = 0; i < 300; ++i) out += std::string{static_cast<char>(i % 3), 0, 0, 0};
    return out;
  }();
  flip_byte_of(path, labels.data(), labels.size(), 400);
  EXPECT_EQ(verify_dataset(path).damaged, (std::vector<std::string>{"dataset 'labels', chunk 0, rows [0, 300)"}));
  const std::string others = records("r.h5", {"abc", "defg", "hi"});
  EXPECT_TRUE(verify_dataset(others).whole());
  const std::vector<int64_t> ends{3, 7, 9};
  flip_byte_of(others, ends.data(), 24, 8);
  EXPECT_EQ(verify_dataset(others).damaged, (std::vector<std::string>{"dataset 'record_ends', chunk 0, rows [0, 3)"}));
  std::string bytes = content(others);
  bytes.resize(bytes.size() / 2);
  write_file(others, bytes);
  const DatasetCheck cut = verify_dataset(others);
  EXPECT_FALSE(cut.whole());
  EXPECT_TRUE(cut.damaged.empty());
  EXPECT_NE(to_text(cut, others).find(others), std::string::npos);
  expect_error(ExitCode::kMissingInput, {"nope.h5"}, [&] { verify_dataset(folder_ / "nope.h5"); });
}

// --- split

TEST_F(RearrangeTest, EverySampleIsInOnePartAsItWas) {
  const std::string path = table("t.h5", 0, 203, {"a", "b"});
  const auto all = samples_in(path);
  const auto parts = split(path, {0.7, 0.2, 0.1}, {.seed = 5});
  std::vector<size_t> found;  // of each sample its index in the whole
  for (const SplitPart& p : parts) {
    const auto some = samples_in(p.path);
    EXPECT_EQ(static_cast<int64_t>(some.size()), p.samples);
    EXPECT_NEAR(static_cast<double>(p.samples), p.share * 203, 1);
    std::vector<size_t> places;
    for (const Sample& s : some) {
      const auto at = std::find(all.begin(), all.end(), s);
      ASSERT_NE(at, all.end()) << "a sample's bits changed";
      places.push_back(static_cast<size_t>(at - all.begin()));
    }
    EXPECT_TRUE(std::is_sorted(places.begin(), places.end()));
    EXPECT_NE(places.back() - places.front() + 1, places.size()) << "not at random";
    found.insert(found.end(), places.begin(), places.end());
    EXPECT_EQ(inspect_dataset(p.path).columns, inspect_dataset(path).columns);
    EXPECT_EQ(inspect_dataset(p.path).class_names, inspect_dataset(path).class_names);
  }
  std::sort(found.begin(), found.end());
  for (size_t i = 0; i < 203; ++i) ASSERT_EQ(found[i], i);
  const Hash128 before = inspect_dataset(parts[1].path).identity;
  EXPECT_EQ(inspect_dataset(split(path, {0.7, 0.2, 0.1}, {.seed = 5})[1].path).identity, before);
  EXPECT_NE(inspect_dataset(split(path, {0.7, 0.2, 0.1}, {.seed = 6})[1].path).identity, before);
}

TEST_F(RearrangeTest, ByLabelEachLabelHasItsShare) {
  // Labels of 150, 100 and 50 samples.
  const std::string path = table("t.h5", 0, 300, {"a", "b", "a", "b", "a", "c"});
  for (uint64_t seed = 0; seed < 4; ++seed) {
    const auto parts = split(path, {0.8, 0.2}, {.seed = seed, .by_label = true});
    const auto counts = inspect_dataset(parts[1].path).per_class;
    ASSERT_EQ(counts.size(), 3u);
    for (size_t c = 0; c < 3; ++c) EXPECT_NEAR(static_cast<double>(counts[c]), (std::array{30, 20, 10}[c]), 1);
    EXPECT_EQ(parts[1].samples, 60);
  }
  expect_error(ExitCode::kUsage, {"--by-label", "text"}, [&] {
    split(text("x.h5", "some text"), {0.5, 0.5}, {.by_label = true});
  });
}

TEST_F(RearrangeTest, RecordsStayWholeAndTextIsCut) {
  std::vector<std::string> lines;
  for (int i = 0; i < 50; ++i) lines.push_back(str("x", std::string(static_cast<size_t>(i % 7), 'y'), "a", i));
  for (bool targets : {false, true}) {
    const std::string path = records("r.h5", lines, targets);
    std::vector<std::string> all = texts_in(path), found;
    for (const SplitPart& p : split(path, {0.5, 0.5})) {
      EXPECT_EQ(p.samples, 25);
      for (const std::string& t : texts_in(p.path)) found.push_back(t);
    }
    EXPECT_NE(found, all);
    std::sort(found.begin(), found.end());
    std::sort(all.begin(), all.end());
    EXPECT_EQ(found, all);
  }
  const std::string content = "the cat sat on the mat", path = text("t.h5", content, TextLevel::kChar);
  const auto parts = split(path, {0.5, 0.25, 0.25});
  std::string joined;
  for (const SplitPart& p : parts) joined += texts_in(p.path)[0];
  EXPECT_EQ(joined, content);
  EXPECT_EQ(parts[0].samples, 11);
  EXPECT_EQ(inspect_dataset(parts[2].path).characters, inspect_dataset(path).characters);
}

TEST_F(RearrangeTest, ASplitThatCannotBeLeavesNothing) {
  const std::string path = table("t.h5", 0, 5, {"a", "b"});
  const int64_t files = folder_.files();
  expect_error(ExitCode::kUsage, {"add up to 1.1"}, [&] { split(path, {0.9, 0.2}); });
  expect_error(ExitCode::kUsage, {"share is -1"}, [&] { split(path, {2, -1}); });
  expect_error(ExitCode::kBadData, {"part1.h5 would get none"}, [&] { split(path, {0.999, 0.001}); });
  std::vector<SplitPart> twice{{folder_ / "a.h5", 0.5}, {folder_ / "a.h5", 0.5}};
  expect_error(ExitCode::kUsage, {"a.h5 is named twice"}, [&] { split_dataset(path, twice, {}); });
  std::vector<SplitPart> there{{folder_ / "a.h5", 0.5}, {path, 0.5}};
  expect_error(ExitCode::kOutputLocked, {path}, [&] { split_dataset(path, there, {}); });
  EXPECT_EQ(folder_.files(), files);
}

TEST_F(RearrangeTest, ASplitIsAllOrNoneWhereAnotherNameAppearsMeanwhile) {
  for (const std::string& path : {table("t.h5", 0, 50, {"a", "b"}), text("x.h5", std::string(1000, 'x'))}) {
    for (size_t late : {0u, 1u, 2u}) {
      std::vector<SplitPart> parts;
      for (size_t i = 0; i < 3; ++i) parts.push_back({folder_ / str("late", i, ".h5"), 1.0 / 3});
      const int64_t files = folder_.files();
      SplitOptions options;
      options.progress = [&](int64_t, int64_t) { write_file(parts[late].path, "another program's"); };
      expect_error(ExitCode::kOutputLocked, {parts[late].path, "already there"},
                   [&] { split_dataset(path, parts, options); });
      EXPECT_EQ(folder_.files(), files + 1) << late;
      EXPECT_EQ(content(parts[late].path), "another program's");
      std::filesystem::remove(parts[late].path);
    }
  }
}

// --- merge

TEST_F(RearrangeTest, WhatWasSplitIsMergedAgain) {
  const std::string out = folder_ / "out.h5";
  const std::string whole = text("t.h5", noise(150000, 3));
  auto parts = split(whole, {0.6, 0.4});
  merge_datasets({parts[0].path, parts[1].path}, out, {});
  EXPECT_EQ(inspect_dataset(out).identity, inspect_dataset(whole).identity);
  const std::string chats = records("r.h5", {"abc", "de", "fghi"}, true), more = records("m.h5", {"xy", "zuv"}, true);
  merge_datasets({chats, more}, out, {.force = true});
  EXPECT_EQ(texts_in(out), (std::vector<std::string>{"aBC", "dE", "fGHI", "xY", "zUV"}));
  // Records of which every token is a target, after such as have others.
  merge_datasets({chats, records("n.h5", {"pq"})}, out, {.force = true});
  EXPECT_EQ(texts_in(out).back(), "PQ");
}

TEST_F(RearrangeTest, MergedImagesAndTablesHaveTheirOwnMoments) {
  const std::string a = images("a.h5", 40, 1), b = images("b.h5", 60, 2), out = folder_ / "out.h5";
  merge_datasets({a, b}, out, {});
  write_file(folder_ / "i.idx", idx({100, 4, 5}, noise(800, 1) + noise(1200, 2)));
  write_file(folder_ / "l.idx", idx({100}, cycling_labels(40, 3) + cycling_labels(60, 3)));
  import_idx(folder_ / "i.idx", folder_ / "l.idx", folder_ / "all.h5");
  EXPECT_EQ(inspect_dataset(out).identity, inspect_dataset(folder_ / "all.h5").identity);
  merge_datasets({a, b}, out, {.keep_normalization = true, .force = true});
  auto merged = samples_in(out);
  merged.resize(40);
  EXPECT_EQ(merged, samples_in(a)) << "the first samples changed";

  const std::string one = table("one.h5", 0, 30, {"a", "b"}), two = table("two.h5", 30, 80, {"a", "b"});
  merge_datasets({one, two}, out, {.force = true});
  const DatasetReport both = inspect_dataset(out), once = inspect_dataset(table("all2.h5", 0, 80, {"a", "b"}));
  EXPECT_EQ(both.columns, once.columns);
  EXPECT_EQ(both.mean[1], 0) << "of a category";
  EXPECT_EQ(both.stddev[1], 1);
  EXPECT_NEAR(both.mean[0], once.mean[0], 1e-9);
  EXPECT_NEAR(both.stddev[0], once.stddev[0], 1e-9);
}

TEST_F(RearrangeTest, LabelsAreMergedByName) {
  const std::string out = folder_ / "out.h5";
  const std::string a = table("a.h5", 0, 4, {"cat", "dog"}), b = table("b.h5", 4, 6, {"dog"});
  merge_datasets({a, b}, out, {});
  std::vector<int32_t> labels;
  for (const Sample& s : samples_in(out)) labels.push_back(s.label);
  EXPECT_EQ(labels, (std::vector<int32_t>{0, 1, 0, 1, 1, 1}));
  EXPECT_EQ(inspect_dataset(out).class_names, (std::vector<std::string>{"cat", "dog"}));
  expect_error(ExitCode::kBadData, {a, "'cat'", "none of those of", b}, [&] {
    merge_datasets({b, a}, out, {.force = true});
  });
}

TEST_F(RearrangeTest, WhatDoesNotFitIsNotMerged) {
  const std::string out = folder_ / "out.h5";
  const std::string t = table("t.h5", 0, 9, {"a", "b"}), i = images("i.h5", 9, 1),
                    x = text("x.h5", "abc", TextLevel::kChar);
  const std::string y = text("y.h5", "abd", TextLevel::kChar), z = text("z.h5", "xyz"), r = records("r.h5", {"ab"});
  write_file(folder_ / "p.csv", "id,sort,y\n1,even,a\n2,odd,b\n");
  import_csv(folder_ / "p.csv", folder_ / "p.h5", {.label = "y"});
  write_file(folder_ / "j.idx", idx({2, 3, 3}, noise(18, 1)));
  write_file(folder_ / "k.idx", idx({2}, cycling_labels(2, 2)));
  import_idx(folder_ / "j.idx", folder_ / "k.idx", folder_ / "j.h5");
  const int64_t files = folder_.files();
  const auto refused = [&](const std::string& a, const std::string& b, const std::string& why) {
    expect_error(ExitCode::kBadData, {a, b, "merged", why}, [&] { merge_datasets({a, b}, out, {}); });
  };
  refused(t, i, "one holds images, the other a table");
  refused(x, y, "token 2 is 'd'");
  refused(x, z, "bytes there");
  refused(z, r, "records");
  refused(i, folder_ / "j.h5", "its samples are [3, 3, 1], those of the first [4, 5, 1]");
  refused(t, folder_ / "p.h5", "column 1 is 'kind' in one and 'sort' in the other");
  expect_error(ExitCode::kMissingInput, {"nope.h5"}, [&] { merge_datasets({t, folder_ / "nope.h5"}, out, {}); });
  EXPECT_EQ(folder_.files(), files);
}

// --- growth: what a resumed run goes on with

TEST_F(RearrangeTest, TheFirstSamplesOfAFileThatGrewAreTheFileOfBefore) {
  const std::string out = folder_ / "out.h5";
  const auto grown = [&](const std::string& before, const std::string& more) {
    merge_datasets({before, more}, out, {.keep_normalization = true, .force = true});
    const auto all = open_dataset_file(out, 0), old = open_dataset_file(before, 1 << 20);
    const auto first = open_first_samples(out, 0, sample_count(old->header));
    EXPECT_NE(all->header.identity, old->header.identity);
    EXPECT_EQ(first->header.identity, old->header.identity) << before;
    EXPECT_EQ(sample_count(first->header), sample_count(old->header));
    EXPECT_NE(open_first_samples(out, 0, sample_count(old->header) - 1)->header.identity, old->header.identity);
  };
  grown(text("a.h5", noise(1000, 1)), text("b.h5", noise(70000, 2)));  // one chunk, smaller than those of the new file
  grown(text("a.h5", noise(140000, 1)), text("b.h5", noise(70000, 2)));  // whole chunks and a part of one
  grown(text("a.h5", noise(65536, 1)), text("b.h5", noise(70000, 2)));
  grown(records("a.h5", {"abc", "de"}), records("b.h5", {"xyz"}));
  grown(records("a.h5", {"abc", "de"}), records("b.h5", {"xyz"}, true));  // targets that only the new ones have
  grown(records("a.h5", {"abc", "de"}, true), records("b.h5", {"xyz"}));
  grown(images("a.h5", 30, 1), images("b.h5", 9, 2));
  grown(images("a.h5", 7000, 1), images("b.h5", 700, 2));
  grown(table("a.h5", 0, 20, {"p", "q"}), table("b.h5", 20, 30, {"q"}));
  expect_error(ExitCode::kBadData, {out, "30 samples, not 31"}, [&] { open_first_samples(out, 0, 31); });
}

TEST_F(RearrangeTest, ARunGoesOnWithTheSamplesThatItBeganWith) {
  const std::string a = images("a.h5", 40, 1), b = images("b.h5", 60, 2), out = folder_ / "out.h5";
  DataOptions o;
  o.path = a;
  const Datasets before = open_datasets(o, 1);
  EXPECT_EQ(before.samples, 40);
  o.path = out;
  o.resumed = {to_hex(before.train->identity()), before.samples};
  merge_datasets({a, b}, out, {.keep_normalization = true});
  const Datasets after = open_datasets(o, 1);
  EXPECT_EQ(after.train->identity(), before.train->identity());
  EXPECT_EQ(after.train->size(), before.train->size());
  EXPECT_EQ(after.validation->size(), before.validation->size());
  EXPECT_EQ(after.samples, 40);
  EXPECT_EQ(after.stored_samples, 100);
  merge_datasets({b, a}, out, {.keep_normalization = true, .force = true});
  const Datasets other = open_datasets(o, 1);
  EXPECT_EQ(other.samples, 100) << "another beginning is other data, which the resume refuses";
  EXPECT_NE(other.train->identity(), before.train->identity());
}

}  // namespace
}  // namespace lockstep::rearrange_test
