// Checkpoints: any writers, any readers, one digest; damage of every kind is found; the last good one survives.
#include "core/state/checkpoint.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <ctime>
#include <set>
#include <stop_token>
#include <thread>

#include "core/base/philox.h"
#include "core/io/hdf5/hdf5_file.h"
#include "tests/support/files.h"
#include "tests/support/sanitized.h"
#include "tests/support/time_bound.h"

namespace lockstep::checkpoint_test {
namespace {

namespace fs = std::filesystem;
using test::content;
using test::expect_error;
using test::TemporaryFolder;
using test::write_file;

std::vector<StateEntry> state(float factor = 1) {
  std::vector<StateEntry> out;
  uint64_t site = 0;
  for (auto& [name, shape] : std::vector<std::pair<std::string, Shape>>{{"parameters/a.weight", {5, 7}},
                                                                        {"parameters/a.bias", {1}},
                                                                        {"parameters/blocks.0.up.weight", {30, 10}},
                                                                        {"adamw.m/blocks.0.up.weight", {30, 10}},
                                                                        {"parameters/exact", {64, 3}}}) {
    std::vector<float> v;
    for (int64_t i = 0; i < shape.numel(); ++i)
      v.push_back(factor * (uniform_of(philox(1, static_cast<uint64_t>(i), site).v[0]) - 0.5f));
    out.push_back({name, shape, 0, Tensor::of(v, {shape.numel()})});
    ++site;
  }
  return out;
}

CheckpointInfo info_of(int64_t step) {
  CheckpointInfo i;
  i.step = step, i.epoch = 2, i.position = 77, i.updates = step - 1, i.skipped_in_row = 0, i.skipped = 1;
  i.dataset = "0123456789abcdef0123456789abcdef";
  i.math_text = "seed: 1\noptim.lr: 0.1 \"quoted\"\n";
  i.config = "seed: 1\n";
  i.vocabulary = "char\nab\xc3\xa9";
  i.input = {64};
  i.classes = 65;
  i.loss_scale = 1024.5, i.good_steps = 12;
  i.isa = "avx2";
  i.writer = "0.1.0";
  i.layout = "2 ranks, level parameters";
  return i;
}

// A whole checkpoint by `writers` writers; returns its directory.
std::string save(const std::string& folder, int64_t step, int writers, const std::vector<StateEntry>& entries) {
  const std::string pending = pending_checkpoint(folder, step);
  begin_checkpoint(pending);
  std::vector<StoredSlice> slices;
  for (int w = 0; w < writers; ++w) {
    // As the committing writer gets them: by their text.
    const auto mine = parse_slices(slices_text(write_part(pending, w, writers, cut_for_rank(entries, w, writers))),
                                   "a writer's list");
    slices.insert(slices.end(), mine.begin(), mine.end());
  }
  CheckpointInfo info = info_of(step);
  info.ranks = writers;
  commit_checkpoint(folder, info, slices, writers);
  return folder + "/" + checkpoint_name(step);
}

std::vector<float> loaded(const Checkpoint& c) {
  std::vector<StateEntry> empty = state(0);
  load_entries(c, empty);
  std::vector<float> out;
  for (const StateEntry& e : empty)
    for (float v : e.data.to_vector<float>()) out.push_back(v);
  return out;
}
std::vector<float> values(const std::vector<StateEntry>& entries) {
  std::vector<float> out;
  for (const StateEntry& e : entries)
    for (float v : e.data.to_vector<float>()) out.push_back(v);
  return out;
}

std::set<std::string> names_in(const std::string& folder) {
  std::set<std::string> out;
  for (const auto& e : fs::directory_iterator(folder)) out.insert(e.path().filename().string());
  return out;
}

// Puts back a manifest after `change`, with a hash that fits: lies, not damage.
void rewrite_manifest(const std::string& dir, const std::string& from, const std::string& to) {
  const std::string path = dir + "/manifest.json";
  std::string text = content(path);
  text.resize(text.rfind("{\"hash\""));
  const size_t at = text.find(from);
  ASSERT_NE(at, text.npos) << from << " is not in " << text;
  text.replace(at, from.size(), to);
  write_file(path, text + "{\"hash\":\"" + to_hex(hash128(text)) + "\"}\n");
}

TEST(RoundTrip, AtAnyNumberOfWritersAndReaders) {
  const auto entries = state();
  std::set<std::string> digests;
  for (int writers : {1, 2, 3, 5}) {
    TemporaryFolder folder;
    const Checkpoint c = open_checkpoint(save(folder / "c", 30, writers, entries));
    verify_checkpoint(c);
    EXPECT_EQ(loaded(c), values(entries)) << writers << " writers";
    for (int readers : {1, 2, 4, 7}) {
      std::vector<float> all(values(entries).size(), -99.0f);
      size_t total = 0;
      for (int r = 0; r < readers; ++r) {
        auto slices = cut_for_rank(state(0), r, readers);
        for (const StateEntry& e : entries)  // a reader names every tensor, also those that it owns nothing of
          if (std::none_of(slices.begin(), slices.end(), [&](const StateEntry& s) { return s.name == e.name; }))
            slices.push_back({e.name, e.region, 0, Tensor::zeros({0})});
        load_entries(c, slices);
        for (const StateEntry& s : slices) {
          // Each slice against the same stretch of the original.
          for (const StateEntry& e : entries)
            if (e.name == s.name) {
              EXPECT_EQ(s.data.to_vector(), e.data.slice(0, s.offset, s.end()).to_vector());
            }
          total += static_cast<size_t>(s.data.numel());
        }
      }
      EXPECT_EQ(total, all.size()) << "readers' slices cover all once";
    }
    digests.insert(to_hex(digest_of(c)));
  }
  EXPECT_EQ(digests.size(), 1u) << "one digest, whoever wrote it";
}

// Several pieces and chunks, slices that are wanted in part, and no more memory than a piece beside the reader's own.
TEST(RoundTrip, OfALargeTensorInPieces) {
  constexpr int64_t kElements = (24 << 20) + 4321;
  const auto peak_kib = [] {
    std::ifstream in("/proc/self/status");
    std::string word;
    while (in >> word && word != "VmHWM:") continue;
    int64_t kib = 0;
    in >> kib;
    return kib;
  };
  TemporaryFolder folder;
  std::string dir;
  std::vector<int64_t> offsets{0, 64, (1 << 20) - 64, 9 << 20, (24 << 20) + 4288};
  const auto value = [](int64_t i) {
    return std::bit_cast<float>(0x3f000000 + static_cast<int32_t>(i));
  };  // all differ
  {
    std::vector<float> all(kElements);
    for (int64_t i = 0; i < kElements; ++i) all[static_cast<size_t>(i)] = value(i);
    dir = save(folder / "c", 30, 2, {{"parameters/large", Shape{kElements}, 0, Tensor::of(all, {kElements})}});
  }
  std::vector<float> some(3 << 20);
  write_file("/proc/self/clear_refs", "5");  // the peak begins anew
  const int64_t before = peak_kib();
  const Checkpoint c = open_checkpoint(dir);
  verify_checkpoint(c);
  for (int64_t from : offsets) {
    const int64_t n = std::min<int64_t>(3 << 20, kElements - from);
    const Tensor part = Tensor::zeros({n});
    load_entries(c, {{"parameters/large", Shape{kElements}, from, part}});
    read_elements(c, "parameters/large", {from + 1, from + n}, some.data());
    for (int64_t i = 0; i < n; ++i) {
      ASSERT_EQ(part.values<float>()[i], value(from + i)) << from << " + " << i;
      if (i > 0) {
        ASSERT_EQ(some[static_cast<size_t>(i - 1)], value(from + i)) << from << " + " << i;
      }
    }
  }
  const int64_t used = peak_kib() - before;
  EXPECT_LT(used, testing::kSanitized ? 96 << 10 : 48 << 10)
      << "KiB beyond a 12 MiB tensor of the reader's own, of a 96 MiB checkpoint";
  // Damage in a slice that is wanted in part only.
  const std::string path = dir + "/part-0001-of-0002.h5";
  std::vector<float> there{value(20 << 20), value((20 << 20) + 1), value((20 << 20) + 2)};
  test::flip_byte_of(path, there.data(), 12, 5);
  expect_error(ExitCode::kBadData, {path, "parameters/large", "checksum"}, [&] {
    read_elements(c, "parameters/large", {20 << 20, (20 << 20) + 10}, some.data());
  });
  read_elements(c, "parameters/large", {0, 10}, some.data());  // elsewhere it is whole
  expect_error(ExitCode::kBadData, {path, "parameters/large"}, [&] { verify_checkpoint(c); });
}

TEST(RoundTrip, KeepsTheRestOfTheState) {
  TemporaryFolder folder;
  const CheckpointInfo i = open_checkpoint(save(folder / "c", 30, 2, state())).info, e = info_of(30);
  EXPECT_EQ(std::tie(i.step, i.epoch, i.position, i.updates, i.skipped, i.dataset, i.math_text, i.config, i.vocabulary,
                     i.isa, i.writer, i.classes, i.loss_scale, i.good_steps, i.layout),
            std::tie(e.step, e.epoch, e.position, e.updates, e.skipped, e.dataset, e.math_text, e.config, e.vocabulary,
                     e.isa, e.writer, e.classes, e.loss_scale, e.good_steps, e.layout));
  EXPECT_EQ(i.input, e.input);
  EXPECT_EQ(i.ranks, 2);
}

TEST(RoundTrip, OfDenormalsAndExtremesKeepsTheirBits) {
  TemporaryFolder folder;
  std::vector<float> odd{-0.0f, 0.0f, 1e-45f, -1e-40f, 3.4e38f, -3.4e38f};
  const StateEntry e{"parameters/odd", Shape{6}, 0, Tensor::of(odd, {6})};
  const Checkpoint c = open_checkpoint(save(folder / "c", 1, 1, {e}));
  verify_checkpoint(c);
  const StateEntry back{"parameters/odd", Shape{6}, 0, Tensor::zeros({6})};
  load_entries(c, {back});
  EXPECT_EQ(memcmp(back.data.read(), e.data.read(), 24), 0);
}

TEST(Saving, OfNanOrInfinityIsRefused) {
  TemporaryFolder folder;
  for (float bad : {NAN, INFINITY, -INFINITY}) {
    std::vector<float> values(200, 1.0f);
    values[77] = bad;
    const StateEntry e{"parameters/odd", Shape{1000}, 128, Tensor::of(values, {200})};
    try {
      save(folder / "c", 1, 1, {e});
      FAIL() << bad;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kNumeric);
      EXPECT_EQ(std::string(error.what()), str("parameters/odd is not finite: element 205 is ", bad));
    }
  }
}

TEST(Digest, IgnoresSlicingAndSeesEveryChange) {
  const auto entries = state();
  const Hash128 whole = digest_of(entries);
  for (int size : {2, 3, 5}) {
    Hash128 sum;
    for (int r = 0; r < size; ++r) sum += digest_of(cut_for_rank(entries, r, size));
    EXPECT_EQ(sum, whole);
  }
  auto reversed = entries;
  std::reverse(reversed.begin(), reversed.end());
  EXPECT_EQ(digest_of(reversed), whole) << "the order of names does not count";
  for (size_t k = 0; k < entries.size(); ++k) {
    auto changed = state();
    float* v = changed[k].data.mutable_values<float>();
    v[changed[k].data.numel() - 1] = -v[changed[k].data.numel() - 1];
    EXPECT_NE(digest_of(changed), whole);
    auto renamed = state();
    renamed[k].name += "x";
    EXPECT_NE(digest_of(renamed), whole);
  }
  // Equal chunks at two places of a tensor do not cancel or commute.
  const Tensor t = Tensor::zeros({128});
  t.mutable_values<float>()[0] = 1;
  const Tensor u = Tensor::zeros({128});
  u.mutable_values<float>()[64] = 1;
  EXPECT_NE(digest_of({{"x", Shape{128}, 0, t}}), digest_of({{"x", Shape{128}, 0, u}}));
  EXPECT_THROW(digest_of("x", 32, t.values<float>(), 64), Error);
  EXPECT_NE(digest_of(info_of(30)), digest_of(info_of(31)));
}

TEST(Damage, OfAnyByteIsFound) {
  TemporaryFolder folder;
  const auto entries = state();
  const std::string dir = save(folder / "c", 30, 2, entries);
  for (const std::string& name :
       {std::string("manifest.json"), std::string("part-0000-of-0002.h5"), std::string("part-0001-of-0002.h5")}) {
    const std::string path = dir + "/" + name, good = content(path);
    const bool manifest = name[0] == 'm';
    const size_t stride = manifest ? 3 : std::max<size_t>(1, good.size() / 250);
    int64_t found = 0, tried = 0;
    for (size_t at = 0; at < good.size(); at += stride) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ 4);
      write_file(path, bad);
      ++tried;
      try {
        const Checkpoint c = open_checkpoint(dir);
        verify_checkpoint(c);
        ADD_FAILURE() << "byte " << at << " of " << name << " was changed and not found";
      } catch (const Error& e) {
        ASSERT_EQ(e.code(), ExitCode::kBadData) << "byte " << at << " of " << name << ": " << e.what();
        ASSERT_NE(std::string(e.what()).find(name), std::string::npos) << "byte " << at << ": " << e.what();
        ++found;
      }
    }
    EXPECT_EQ(found, tried) << name;
    write_file(path, good);
  }
  // Every byte that holds a value is found.
  for (const StoredSlice& s : open_checkpoint(dir).slices) {
    const std::string path = dir + "/part-000" + std::to_string(s.part) + "-of-0002.h5", good = content(path);
    for (const StateEntry& e : entries)
      if (e.name == s.name)
        for (size_t at = 0; at < static_cast<size_t>(s.count) * 4; at += 37) {
          test::flip_byte_of(path, static_cast<const float*>(e.data.read()) + s.offset,
                             static_cast<size_t>(s.count) * 4, at);
          expect_error(ExitCode::kBadData, {path}, [&] { verify_checkpoint(open_checkpoint(dir)); });
          write_file(path, good);
        }
  }
  verify_checkpoint(open_checkpoint(dir));
}

// LOCKSTEP_FLIPS random bits, chosen by LOCKSTEP_SEED, one at a time: all found.
TEST(Damage, OfRandomBitsIsFound) {
  TemporaryFolder folder;
  const std::string dir = save(folder / "c", 30, 2, state());
  std::vector<std::pair<std::string, int64_t>> files;
  int64_t bytes = 0;
  for (const std::string& name : names_in(dir)) {
    files.emplace_back(dir + "/" + name, static_cast<int64_t>(fs::file_size(dir + "/" + name)));
    bytes += files.back().second;
  }
  ASSERT_EQ(files.size(), 3u);
  const char* asked = std::getenv("LOCKSTEP_FLIPS");
  const int64_t flips = asked ? std::atoll(asked) : 300;
  const char* given = std::getenv("LOCKSTEP_SEED");
  const uint64_t seed = given ? std::strtoull(given, nullptr, 10) : 2026;
  for (int64_t i = 0; i < flips; ++i) {
    const auto bits = philox(seed, static_cast<uint64_t>(i), 0);
    const uint32_t* random = bits.v;
    int64_t at = static_cast<int64_t>((uint64_t{random[0]} << 32 | random[1]) % static_cast<uint64_t>(bytes));
    size_t f = 0;
    while (at >= files[f].second) at -= files[f++].second;
    const std::string name = fs::path(files[f].first).filename().string();
    SCOPED_TRACE(str("bit ", random[2] % 8, " of byte ", at, " of ", name));
    const auto flip = [&] {
      std::fstream file(files[f].first, std::ios::in | std::ios::out | std::ios::binary);
      file.seekg(at);
      const int byte = file.get() ^ (1 << random[2] % 8);
      file.seekp(at);
      file.put(static_cast<char>(byte));
      ASSERT_TRUE(file.good());
    };
    flip();
    expect_error(ExitCode::kBadData, {name}, [&] { verify_checkpoint(open_checkpoint(dir)); });
    flip();
  }
  verify_checkpoint(open_checkpoint(dir));
}

TEST(Damage, TruncationIsFoundAtAnyLength) {
  TemporaryFolder folder;
  const std::string dir = save(folder / "c", 30, 2, state());
  for (const std::string& name : {std::string("manifest.json"), std::string("part-0001-of-0002.h5")}) {
    const std::string path = dir + "/" + name, good = content(path);
    for (size_t length = 0; length < good.size(); length += 1 + good.size() / 60) {
      write_file(path, good.substr(0, length));
      expect_error(ExitCode::kBadData, {name}, [&] { verify_checkpoint(open_checkpoint(dir)); });
    }
    write_file(path, good);
  }
}

TEST(Damage, MissingFilesAreNamed) {
  TemporaryFolder folder;
  const std::string dir = save(folder / "c", 30, 2, state());
  fs::rename(dir + "/part-0001-of-0002.h5", folder / "elsewhere");
  expect_error(ExitCode::kBadData, {"part-0001-of-0002.h5", "missing"},
               [&] { verify_checkpoint(open_checkpoint(dir)); });
  fs::remove(dir + "/manifest.json");
  expect_error(ExitCode::kBadData, {"manifest.json"}, [&] { open_checkpoint(dir); });
  expect_error(ExitCode::kMissingInput, {"nowhere"}, [&] { open_checkpoint(folder / "nowhere"); });
  expect_error(ExitCode::kMissingInput, {"holds no checkpoint"}, [&] {
    fs::create_directory(folder / "empty");
    open_newest(folder / "empty");
  });
}

TEST(Lies, OfANewerVersionAreToldApart) {
  TemporaryFolder folder;
  const std::string dir = save(folder / "c", 30, 1, state());
  const std::string newer = str("\"version\":", kVersionOfBoxes + 1);
  rewrite_manifest(dir, str("\"version\":", kCheckpointVersion), newer);
  expect_error(ExitCode::kBadData, {"manifest.json", str("format version ", kVersionOfBoxes + 1), "0.1.0", "newer"},
               [&] { open_checkpoint(dir); });
  rewrite_manifest(dir, newer, "\"version\":0");
  expect_error(ExitCode::kBadData, {"manifest.json", "no format version 0"}, [&] { open_checkpoint(dir); });
}

TEST(Version1, OpensWithDefaultsAndItsKeyIsRenamed) {
  TemporaryFolder folder;
  const auto entries = state();
  const std::string dir = save(folder / "c", 30, 1, entries);
  // Its tensors were in chunks that HDF5 checksums.
  Hdf5File file = Hdf5File::create(dir + "/part-0000-of-0001.h5");
  for (const StateEntry& e : entries)
    file.write_all(e.name + "@0", StoredType::kFloat32, {e.data.numel()}, e.data.read());
  file.close();
  rewrite_manifest(dir, str("\"version\":", kCheckpointVersion), "\"version\":1");
  rewrite_manifest(dir, "\"loss_scale\":1024.5,\"good_steps\":12,", "");
  rewrite_manifest(dir, "\"layout\":\"2 ranks, level parameters\",", "");
  rewrite_manifest(dir, "\"config\":\"seed: 1\\n", "\"config\":\"seed: 1\\ncheckpoint:\\n  every: 5\\n  keep: 3\\n");
  const Checkpoint c = open_checkpoint(dir);
  verify_checkpoint(c);
  EXPECT_EQ(c.info.loss_scale, 1);
  EXPECT_EQ(c.info.good_steps, 0);
  EXPECT_EQ(c.info.layout, "");
  EXPECT_EQ(c.info.config, "seed: 1\ncheckpoint:\n  every: 5\n  keep_last: 3\n");
  EXPECT_EQ(loaded(c), values(entries));
  rewrite_manifest(dir, "\"version\":1", "\"version\":2");
  expect_error(ExitCode::kBadData, {"manifest.json", "loss_scale"}, [&] { open_checkpoint(dir); });
}

// A manifest whose own hash fits, but whose numbers do not: an error in words, and no memory spent on them.
TEST(Lies, AboutSizesAreFoundWithoutAllocating) {
  struct Lie {
    const char *from, *to;
  };
  for (const Lie& lie :
       {Lie{"\"shape\":\"5x7\",\"offset\":0,\"count\":35", "\"shape\":\"5x7\",\"offset\":0,\"count\":36"},
        Lie{"\"shape\":\"5x7\",\"offset\":0,\"count\":35", "\"shape\":\"5x7\",\"offset\":0,\"count\":-1"},
        Lie{"\"shape\":\"5x7\",\"offset\":0,\"count\":35", "\"shape\":\"5x7\",\"offset\":64,\"count\":35"},
        Lie{"\"shape\":\"5x7\",\"offset\":0,\"count\":35", "\"shape\":\"5x7\",\"offset\":3,\"count\":32"},
        Lie{"\"shape\":\"5x7\",\"offset\":0,\"count\":35",
            "\"shape\":\"5x7\",\"offset\":9223372036854775744,\"count\":100"},
        Lie{"\"shape\":\"5x7\",\"offset\":0,\"count\":35",
            "\"shape\":\"1000000000000\",\"offset\":0,\"count\":1000000000000"},
        Lie{"\"shape\":\"5x7\",\"offset\":0,\"count\":35",
            "\"shape\":\"999999999999999x999999999999999\",\"offset\":0,\"count\":35"},
        Lie{"\"shape\":\"5x7\"", "\"shape\":\"5xx7\""}, Lie{"\"shape\":\"5x7\"", "\"shape\":\"-5x7\""},
        Lie{"\"shape\":\"5x7\"", "\"shape\":\"1x1x1x1x1x1x1x5x7\""}, Lie{"\"part\":0", "\"part\":\"none\""},
        Lie{"\"shape\":\"5x7\"", "\"form\":\"5x7\""}, Lie{"\"shape\":\"5x7\"", "\"shape\":\"6x7\""},
        Lie{"\"name\":\"parameters/a.weight\"", "\"name\":\"parameters/a.weights\""}}) {
    TemporaryFolder folder;
    const std::string dir = save(folder / "c", 30, 1, state());
    rewrite_manifest(dir, lie.from, lie.to);
    SCOPED_TRACE(lie.to);
    expect_error(ExitCode::kBadData, {dir}, [&] { verify_checkpoint(open_checkpoint(dir)); });
  }
  for (const Lie& lie :
       {Lie{"\"part\":0", "\"part\":7"}, Lie{"\"part\":0", "\"part\":-1"}, Lie{"\"ranks\":1", "\"ranks\":0"},
        Lie{"\"files\":1", "\"files\":0"}, Lie{"\"files\":1", "\"files\":99999999999"}, Lie{"\"files\":1,", ""},
        Lie{"\"ranks\":1", "\"ranks\":99999999999"}, Lie{"\"step\":30", "\"step\":-30"},
        Lie{"\"step\":30", "\"step\":9223372036854775807"}, Lie{"\"position\":77", "\"position\":9223372036854775807"},
        Lie{"\"epoch\":2", "\"epoch\":9223372036854775807"}, Lie{"\"updates\":29", "\"updates\":9223372036854775807"},
        Lie{"\"loss_scale\":1024.5", "\"loss_scale\":-1"}, Lie{"\"loss_scale\":1024.5", "\"loss_scale\":null"},
        Lie{"\"good_steps\":12", "\"good_steps\":1e3"}}) {
    TemporaryFolder folder;
    const std::string dir = save(folder / "c", 30, 1, state());
    rewrite_manifest(dir, lie.from, lie.to);
    SCOPED_TRACE(lie.to);
    expect_error(ExitCode::kBadData, {"manifest.json"}, [&] { open_checkpoint(dir); });
  }
}

// Honest or not, a long manifest is read in time that grows with its length alone, and only where its hash fits.
TEST(Manifest, IsReadInLinearTimeAndAfterItsHash) {
  TemporaryFolder folder;
  const std::string dir = save(folder / "c", 30, 1, state()), path = dir + "/manifest.json";
  std::string many;
  for (int i = 0; i < 60000; ++i)
    many += str("{\"name\":\"z/", 100000 + i, "\",\"shape\":\"64\",\"offset\":0,\"count\":64,\"part\":0,\"hash\":\"",
                std::string(32, '0'), "\"},\n ");
  std::string keys;
  for (int i = 0; i < 60000; ++i) keys += str("\"k", i, "\":0,");
  rewrite_manifest(dir, "{\"name\"", many + "{\"name\"");
  rewrite_manifest(dir, "\"step\":30", keys + "\"step\":30");
  const std::clock_t begun = std::clock();
  EXPECT_EQ(open_checkpoint(dir).slices.size(), 60005u);
  EXPECT_LT(static_cast<double>(std::clock() - begun) / CLOCKS_PER_SEC,
            testing::time_bound(testing::kSanitized ? 15 : 3));
  std::string bad = content(path);
  bad.insert(1, std::string(1000, '['));  // no JSON: but what is said is that the hash differs
  write_file(path, bad);
  expect_error(ExitCode::kBadData, {path, "differs from its own hash"}, [&] { open_checkpoint(dir); });
  // Larger than the tensors beside it explain.
  write_file(path, bad + std::string(65 << 20, ' '));
  expect_error(ExitCode::kBadData, {path, "bytes", "at most"}, [&] { open_checkpoint(dir); });
}

// The slices of each tensor must cover it once, said by the manifest alone and refused before it is written.
TEST(Lies, AboutWhichSlicesThereAreAreFoundAtOnce) {
  TemporaryFolder folder;
  const std::string dir = save(folder / "c", 30, 2, state());
  const std::string good = content(dir + "/manifest.json");
  const std::string line = "\"shape\":\"30x10\",\"offset\":192,\"count\":108";
  const auto lie = [&](const std::string& from, const std::string& to, std::initializer_list<std::string> parts) {
    write_file(dir + "/manifest.json", good);
    rewrite_manifest(dir, from, to);
    expect_error(ExitCode::kBadData, parts, [&] { open_checkpoint(dir); });
  };
  const std::string name = "tensor adamw.m/blocks.0.up.weight";
  lie(line, "\"shape\":\"30x10\",\"offset\":128,\"count\":172", {name, "elements 128 to 192 are in two slices"});
  lie(line, "\"shape\":\"30x10\",\"offset\":256,\"count\":44", {name, "elements 192 to 256 are in no slice"});
  lie(line, "\"shape\":\"30x10\",\"offset\":192,\"count\":100", {name, "elements 292 to 300 are in no slice"});
  lie(line, "\"shape\":\"300\",\"offset\":192,\"count\":108", {name, "[300] and [30, 10]"});
  std::vector<StoredSlice> slices =
      parse_slices(slices_text(open_checkpoint(save(folder / "d", 30, 2, state())).slices), "slices");
  slices.pop_back();
  begin_checkpoint(pending_checkpoint(folder / "d", 31));
  CheckpointInfo info = info_of(31);
  expect_error(ExitCode::kInternal, {"the state to be saved", "are in no slice"},
               [&] { commit_checkpoint(folder / "d", info, slices, 2); });
}

// A part file that fits a lying manifest: as large a tensor as it claims, but of another layout than ours.
TEST(Lies, OfAPartWithoutChecksumsOrWithHugeChunksAreFound) {
  for (const Hdf5Layout& layout : {Hdf5Layout{.checksum = false}, Hdf5Layout{.chunk_rows = 20 << 20, .deflate = 1}}) {
    TemporaryFolder folder;
    const std::string dir = save(folder / "c", 30, 1, {{"parameters/x", Shape{64}, 0, Tensor::zeros({64})}});
    const int64_t count = layout.chunk_rows > 0 ? layout.chunk_rows : 64;
    Hdf5File file = Hdf5File::create(dir + "/part-0000-of-0001.h5");
    file.create_dataset("parameters/x@0", StoredType::kFloat32, {count}, layout);
    file.close();
    const std::string extent = std::to_string(count);
    rewrite_manifest(dir, "\"shape\":\"64\",\"offset\":0,\"count\":64",
                     "\"shape\":\"" + extent + "\",\"offset\":0,\"count\":" + extent);
    expect_error(ExitCode::kBadData, {"part-0000-of-0001.h5", "parameters/x"},
                 [&] { verify_checkpoint(open_checkpoint(dir)); });
  }
}

TEST(OtherModel, DifferencesAreListedFiveAtMost) {
  TemporaryFolder folder;
  const Checkpoint c = open_checkpoint(save(folder / "c", 30, 2, state()));
  auto entries = state();
  entries[0].region = Shape{7, 5};
  entries[2].name = "parameters/blocks.9.up.weight";
  expect_error(ExitCode::kBadData,
               {"another model", "parameters/a.weight is [5, 7] in the checkpoint and [7, 5] here",
                "parameters/blocks.9.up.weight [30, 10] is not in the checkpoint",
                "parameters/blocks.0.up.weight [30, 10] is only in the checkpoint"},
               [&] { load_entries(c, entries); });
  for (int i = 0; i < 9; ++i) entries.push_back({str("parameters/more.", i), Shape{1}, 0, Tensor::zeros({1})});
  expect_error(ExitCode::kBadData, {"and 7 more"}, [&] { load_entries(c, entries); });
  // Another kind of tensor is no difference: weights alone, to start another run from.
  std::vector<StateEntry> weights;
  for (const StateEntry& e : state(0))
    if (e.name.rfind("parameters/", 0) == 0) weights.push_back(e);
  load_entries(c, weights);
  EXPECT_EQ(weights[0].data.to_vector(), state()[0].data.to_vector());
}

TEST(FullDisk, LeavesTheLastGoodCheckpoint) {
  TemporaryFolder folder;
  const std::string run = folder / "run", checkpoints = run + "/checkpoints";
  std::vector<StateEntry> large = state();
  std::vector<float> many(200000, 1.5f);
  large.push_back({"parameters/large", Shape{200000}, 0, Tensor::of(many, {200000})});
  save(checkpoints, 30, 2, large);
  {
    test::FileSizeLimit limit(100000);
    expect_error(ExitCode::kStorage, {pending_checkpoint(checkpoints, 31)}, [&] { save(checkpoints, 31, 2, large); });
  }
  const Checkpoint c = open_newest(run);
  EXPECT_EQ(c.info.step, 30);
  EXPECT_EQ(save(checkpoints, 31, 2, large), checkpoints + "/" + checkpoint_name(31)) << "and the next try succeeds";
  EXPECT_EQ(open_newest(run).info.step, 31);
}

TEST(Newest, PassesOverDamagedAndPendingOnes) {
  TemporaryFolder folder;
  const std::string run = folder / "run", checkpoints = run + "/checkpoints";
  EXPECT_FALSE(has_checkpoint(run));
  for (int64_t step : {5, 10, 100}) save(checkpoints, step, 2, state(static_cast<float>(step)));
  const std::string pending = pending_checkpoint(checkpoints, 200);
  begin_checkpoint(pending);
  write_part(pending, 0, 1, state());  // killed here
  EXPECT_TRUE(has_checkpoint(run));
  EXPECT_EQ(open_newest(run).info.step, 100);
  const std::string part = checkpoints + "/step-00000100/part-0001-of-0002.h5", good = content(part);
  write_file(part, good.substr(0, good.size() / 2));
  const Checkpoint older = open_newest(run);
  EXPECT_EQ(older.info.step, 10);
  EXPECT_EQ(loaded(older), values(state(10)));
  fs::remove(checkpoints + "/step-00000010/manifest.json");
  fs::remove(checkpoints + "/step-00000005/part-0000-of-0002.h5");
  expect_error(ExitCode::kBadData, {"none of its 3 checkpoints is whole", "step-00000100"}, [&] { open_newest(run); });
}

TEST(Retired, StaysReadableWhereItIsHeld) {
  TemporaryFolder folder;
  const std::string run = folder / "run", checkpoints = run + "/checkpoints";
  for (int64_t step : {5, 10}) save(checkpoints, step, 2, state(static_cast<float>(step)));
  const Checkpoint newest = open_newest(run), named = open_newest(checkpoints + "/step-00000005"),
                   manifest = open_checkpoint(newest.dir);
  save(checkpoints, 15, 2, state(15));
  retire_checkpoints(checkpoints, 15, {.keep_last = 1});
  EXPECT_TRUE(was_retired(newest.dir));
  EXPECT_EQ(loaded(newest), values(state(10)));
  EXPECT_EQ(loaded(named), values(state(5)));
  verify_checkpoint(newest);
  // One that nobody held is not damaged.
  expect_error(ExitCode::kMissingInput,
               {manifest.dir, "was removed by its run while it was read", "checkpoint.keep_last"},
               [&] { verify_checkpoint(manifest); });
}

TEST(Retired, ReadersGoOnToTheNewestThatIsThere) {
  TemporaryFolder folder;
  const std::string run = folder / "run", checkpoints = run + "/checkpoints";
  save(checkpoints, 1, 4, state(1));
  std::jthread saves([&](const std::stop_token& stop) {
    for (int64_t step = 2; !stop.stop_requested(); ++step) {
      save(checkpoints, step, 4, state(static_cast<float>(step)));
      retire_checkpoints(checkpoints, step, {.keep_last = 1});
    }
  });
  int64_t last = 0;
  for (int i = 0; i < 300; ++i) {
    const Checkpoint c = open_newest(run);
    EXPECT_GE(c.info.step, last);
    last = c.info.step;
    EXPECT_EQ(loaded(c), values(state(static_cast<float>(last))));
  }
}

TEST(Retention, KeepsTheNewestAndMultiplesUpToTheStepJustSaved) {
  TemporaryFolder folder;
  const std::string checkpoints = folder / "checkpoints";
  for (int64_t step : {1, 2, 3, 4, 5, 100000000}) save(checkpoints, step, 1, state());
  fs::create_directory(checkpoints + "/step-notes");  // not ours
  begin_checkpoint(pending_checkpoint(checkpoints, 6));
  auto names = [&] {
    std::string out;
    for (const std::string& name : names_in(checkpoints)) out += (out.empty() ? "" : " ") + name;
    return out;
  };
  const std::string rest = " step-100000000 step-notes";
  clean_checkpoints(checkpoints);
  const std::string all = "step-00000001 step-00000002 step-00000003 step-00000004 step-00000005" + rest;
  EXPECT_EQ(names(), all) << "only the pending one went";
  retire_checkpoints(checkpoints, 5, {.keep_last = 0, .keep_every = 4});
  EXPECT_EQ(names(), all) << "0 keeps all";
  retire_checkpoints(checkpoints, 4, {.keep_last = 2, .keep_every = 2});
  EXPECT_EQ(names(), "step-00000002 step-00000003 step-00000004 step-00000005" + rest)
      << "2 is a multiple; what is newer than the step just saved was passed over, and does not count";
  retire_checkpoints(checkpoints, 5, {.keep_last = 1, .keep_every = 0});
  EXPECT_EQ(names(), "step-00000005" + rest);
  retire_checkpoints(checkpoints, 100000000, {.keep_last = 1, .keep_every = 0});
  EXPECT_EQ(names(), "step-100000000 step-notes") << "steps are numbers, not texts";
  clean_checkpoints(folder / "nowhere");  // nothing there yet: nothing to do
  retire_checkpoints(folder / "nowhere", 1, {.keep_last = 1});
}

TEST(Validation, KnowsTheLowestLossAndHowLongAgoItWas) {
  ValidationRecord v;
  v.add(10, NAN);
  EXPECT_FALSE(v.finite || v.loss || v.best);
  EXPECT_EQ(v.since_best, 1);
  for (const auto& [step, loss] : {std::pair(20, 0.5), std::pair(30, 0.25), std::pair(40, 0.25)}) v.add(step, loss);
  EXPECT_TRUE(v.finite);
  EXPECT_EQ(v.loss, 0.25);
  EXPECT_EQ(v.best, 0.25);
  EXPECT_EQ(v.best_step, 30) << "an equal loss is not lower";
  EXPECT_EQ(v.since_best, 1);
  v.add(50, INFINITY);
  EXPECT_FALSE(v.finite || v.loss);
  EXPECT_EQ(v.since_best, 2);
}

TEST(Validation, KnowsTheBestByAMetric) {
  ValidationRecord v;
  v.metric = "f1";
  v.highest = true;
  v.add(10, 1.0, 0.5);
  v.add(20, 0.5, 0.25);
  EXPECT_EQ(v.best, 0.5);
  EXPECT_EQ(v.value, 0.25);
  EXPECT_EQ(v.measured(), 0.25);
  EXPECT_EQ(v.since_best, 1);
  v.add(30, 0.7, 0.75);
  EXPECT_EQ(v.best_step, 30);
  v.add(40, 0.7);  // it was not measured
  EXPECT_FALSE(v.value || v.measured());
  EXPECT_EQ(v.best, 0.75);
  EXPECT_EQ(v.since_best, 1);
}

// What a run chooses by may change when it is resumed: values of two measures are not compared.
TEST(Validation, TheBestAreThoseOfTheNewestMeasure) {
  TemporaryFolder folder;
  const std::string checkpoints = folder / "checkpoints";
  const auto save = [&](int64_t step, const std::string& metric, bool highest, double loss, double value) {
    const std::string pending = pending_checkpoint(checkpoints, step);
    begin_checkpoint(pending);
    CheckpointInfo info;
    info.step = step;
    info.validation.metric = metric;
    info.validation.highest = highest;
    info.validation.add(step, loss, value);
    commit_checkpoint(checkpoints, info, write_part(pending, 0, 1, state()), 1);
  };
  save(1, "", false, 0.5, 0);
  save(2, "mae", false, 0.4, 20);
  save(3, "mae", false, 0.3, 10);
  save(4, "mae", false, 0.2, 10);
  save(5, "mae", false, 0.1, 30);
  const auto steps = [&](size_t count) {
    std::vector<int64_t> out;
    for (const std::string& path : best_checkpoints(list_checkpoints(folder / ""), count))
      out.push_back(step_of_checkpoint(path));
    return out;
  };
  EXPECT_EQ(steps(1), (std::vector<int64_t>{3})) << "of equal ones the earlier";
  EXPECT_EQ(steps(9), (std::vector<int64_t>{3, 4, 2, 5}));
  retire_checkpoints(checkpoints, 5, {.keep_last = 1, .keep_best = 2});
  EXPECT_EQ(list_checkpoints(folder / "").size(), 3u);
  EXPECT_EQ(steps(9), (std::vector<int64_t>{3, 4, 5}));
}

// Saves a checkpoint after an evaluation, or none.
void save_with_loss(const std::string& checkpoints, int64_t step, std::optional<double> loss) {
  const std::string pending = pending_checkpoint(checkpoints, step);
  begin_checkpoint(pending);
  CheckpointInfo info;
  info.step = step;
  if (loss) info.validation.add(step, *loss);
  commit_checkpoint(checkpoints, info, write_part(pending, 0, 1, state()), 1);
}

TEST(Validation, IsStoredExactly) {
  TemporaryFolder folder;
  const std::string checkpoints = folder / "checkpoints";
  save_with_loss(checkpoints, 1, 1.0 / 3);
  save_with_loss(checkpoints, 2, {});
  save_with_loss(checkpoints, 3, NAN);
  const auto stored = [&](int64_t step) {
    return open_checkpoint(checkpoints + "/" + checkpoint_name(step)).info.validation;
  };
  EXPECT_EQ(stored(1).loss, 1.0 / 3);
  EXPECT_EQ(stored(1).best, 1.0 / 3);
  EXPECT_EQ(stored(1).best_step, 1);
  EXPECT_FALSE(stored(2).loss || stored(2).best);
  EXPECT_TRUE(stored(2).finite);
  EXPECT_FALSE(stored(3).loss || stored(3).finite);
  EXPECT_EQ(stored(3).since_best, 1);
}

TEST(Retention, KeepsThoseWithTheLowestLoss) {
  TemporaryFolder folder;
  const std::string checkpoints = folder / "checkpoints";
  const auto left = [&](int64_t step, const Retention& retention) {
    retire_checkpoints(checkpoints, step, retention);
    return names_in(checkpoints);
  };
  const auto names = [](const std::vector<int64_t>& steps) {
    std::set<std::string> out;
    for (int64_t s : steps) out.insert(checkpoint_name(s));
    return out;
  };
  save_with_loss(checkpoints, 1, {});
  save_with_loss(checkpoints, 2, 0.5);
  save_with_loss(checkpoints, 3, 0.25);
  save_with_loss(checkpoints, 4, 0.75);
  save_with_loss(checkpoints, 5, 0.25);
  save_with_loss(checkpoints, 6, NAN);
  EXPECT_EQ(left(6, {.keep_last = 1, .keep_best = 3}), names({2, 3, 5, 6}));
  EXPECT_EQ(left(6, {.keep_last = 1, .keep_best = 1}), names({3, 6})) << "of equal losses the earlier";
  save_with_loss(checkpoints, 7, 0.125);
  save_with_loss(checkpoints, 9, 0.0625);
  EXPECT_EQ(left(7, {.keep_last = 1, .keep_best = 1}), names({7, 9})) << "a later one was passed over: not counted";
  fs::remove(checkpoints + "/" + checkpoint_name(7) + "/manifest.json");
  EXPECT_EQ(left(9, {.keep_last = 1, .keep_best = 2}), names({9})) << "a damaged one is none of the best";
}

TEST(Save, ReplacesAnEarlierTryOfTheSameStep) {
  TemporaryFolder folder;
  save(folder / "c", 30, 3, state(1));
  const Checkpoint c = open_checkpoint(save(folder / "c", 30, 1, state(2)));
  verify_checkpoint(c);
  EXPECT_EQ(loaded(c), values(state(2)));
}

}  // namespace
}  // namespace lockstep::checkpoint_test
