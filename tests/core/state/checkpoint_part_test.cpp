// A file of a checkpoint that several ranks write at once holds what one would write; damage is named; files of
// earlier versions, one for each rank, are read.
#include "core/state/checkpoint_part.h"

#include <gtest/gtest.h>

#include <functional>

#include "core/base/philox.h"
#include "tests/support/files.h"

namespace lockstep::checkpoint_part_test {
namespace {

namespace fs = std::filesystem;
using test::content;
using test::expect_error;
using test::TemporaryFolder;
using test::write_file;

constexpr int64_t kLarge = 5 * kBlock + 1000;

StateEntry entry(const std::string& name, const Shape& shape) {
  std::vector<float> values;
  for (int64_t i = 0; i < shape.numel(); ++i)
    values.push_back(uniform_of(philox(name.size(), static_cast<uint64_t>(i), 0).v[0]) - 0.5f);
  return {name, shape, 0, Tensor::of(values, {shape.numel()})};
}
std::vector<StateEntry> state() {
  return {entry("parameters/large", {kLarge}), entry("parameters/a.weight", {5, 7}), entry("adamw.m/large", {kLarge}),
          entry("parameters/block", {kBlock}), entry("parameters/a.bias", {1})};
}
std::vector<StateEntry> emptied() {
  std::vector<StateEntry> out = state();
  for (StateEntry& e : out) e.data = Tensor::zeros({e.data.numel()});
  return out;
}

// What the steps of a PartWriter give where all writers are one thread. The last writer writes first.
std::vector<StoredSlice> write_together(const std::string& path, int part,
                                        const std::vector<std::vector<StateEntry>>& entries) {
  std::vector<std::vector<StoredSlice>> announced;
  for (const auto& of_writer : entries)
    announced.push_back(parse_slices(slices_text(slices_of(of_writer)), "a writer"));
  std::vector<PartWriter> writers;
  for (size_t w = 0; w < entries.size(); ++w) writers.emplace_back(path, part, announced);
  const std::string places = writers[0].reserve();
  std::vector<std::string> hashes(entries.size());
  for (size_t w = entries.size(); w-- > 0;) hashes[w] = writers[w].write(places, entries[w]);
  return writers[0].finish(hashes);
}

// A checkpoint of `machines` machines with `ranks` ranks each.
std::string save(const std::string& folder, int machines, int ranks) {
  const std::string pending = pending_checkpoint(folder, 7);
  begin_checkpoint(pending);
  std::vector<StoredSlice> slices;
  for (int m = 0; m < machines; ++m) {
    std::vector<std::vector<StateEntry>> entries;
    for (int r = 0; r < ranks; ++r) entries.push_back(cut_for_rank(state(), m * ranks + r, machines * ranks));
    const auto mine = write_together(part_path(pending, m, machines), m, entries);
    slices.insert(slices.end(), mine.begin(), mine.end());
  }
  CheckpointInfo info;
  info.step = 7, info.ranks = machines * ranks;
  commit_checkpoint(folder, info, slices, machines);
  return folder + "/" + checkpoint_name(7);
}

void expect_whole(const Checkpoint& c) {
  verify_checkpoint(c);
  Hash128 sum = digest_of(c.info);
  sum += digest_of(state());
  EXPECT_EQ(digest_of(c), sum);
  for (int readers : {1, 3}) {
    std::vector<StateEntry> back = emptied();
    for (int r = 0; r < readers; ++r) {
      auto mine = cut_for_rank(back, r, readers);
      for (const StateEntry& e : back)
        if (std::none_of(mine.begin(), mine.end(), [&](const StateEntry& s) { return s.name == e.name; }))
          mine.push_back({e.name, e.region, 0, Tensor::zeros({0})});
      load_entries(c, mine);
    }
    for (size_t i = 0; i < back.size(); ++i)
      EXPECT_EQ(back[i].data.to_vector(), state()[i].data.to_vector()) << back[i].name << ", " << readers << " readers";
  }
}

TEST(Part, OfSeveralWritersHoldsWhatOneWouldWrite) {
  TemporaryFolder folder;
  const auto one = write_together(folder / "one.h5", 0, {state()});
  for (int writers : {2, 3, 7}) {
    std::vector<std::vector<StateEntry>> entries;
    for (int w = 0; w < writers; ++w) entries.push_back(cut_for_rank(state(), w, writers));
    EXPECT_EQ(slices_text(write_together(folder / "many.h5", 0, entries)), slices_text(one)) << writers << " writers";
    EXPECT_EQ(fs::file_size(folder / "many.h5"), fs::file_size(folder / "one.h5")) << writers << " writers";
  }
}

TEST(Part, OfEachMachineIsAFile) {
  for (const auto& [machines, ranks] : {std::pair(1, 4), std::pair(2, 2), std::pair(3, 1)}) {
    TemporaryFolder folder;
    const Checkpoint c = open_checkpoint(save(folder / "c", machines, ranks));
    EXPECT_EQ(c.files, machines);
    EXPECT_EQ(c.info.ranks, machines * ranks);
    EXPECT_EQ(std::distance(fs::directory_iterator(c.dir), {}), machines + 1) << "and the manifest";
    expect_whole(c);
  }
}

// Of tensors and stretches that a machine has none of, of empty ones, and of none at all.
TEST(Part, HoldsWhatItsWritersHave) {
  TemporaryFolder folder;
  const StateEntry large = state()[0];
  const auto slices = write_together(
      folder / "part.h5", 3,
      {{large.part(0, 64), large.part(2 * kBlock, 3 * kBlock)},
       {large.part(64, 640), {"parameters/empty", Shape{0, 3}, 0, Tensor::zeros({0})}, large.part(3 * kBlock, kLarge)},
       {}});
  ASSERT_EQ(slices.size(), 3u);
  EXPECT_EQ(slices[0].name, "parameters/empty");
  EXPECT_EQ(std::tie(slices[1].offset, slices[1].count, slices[1].part), std::tuple(0, 640, 3));
  EXPECT_EQ(std::tie(slices[2].offset, slices[2].count), std::tuple(2 * kBlock, kLarge - 2 * kBlock));
  EXPECT_EQ(slices[2].hash, digest_of({large.part(2 * kBlock, kLarge)}));
  const Hdf5File file = Hdf5File::open(folder / "part.h5");
  std::vector<float> values(640);
  file.read("parameters/large@0", StoredType::kFloat32, {0, 640}, values.data());
  EXPECT_EQ(values, large.data.slice(0, 0, 640).to_vector<float>());
  EXPECT_TRUE(write_together(folder / "none.h5", 0, {{}, {}}).empty());
  Hdf5File::open(folder / "none.h5");
}

TEST(Part, RefusesWhatWasNotAgreed) {
  TemporaryFolder folder;
  const StateEntry large = state()[0];
  expect_error(ExitCode::kInternal, {"parameters/large", "elements from 64 on are in two slices"}, [&] {
    write_together(folder / "part.h5", 0, {{large.part(0, 128)}, {large.part(64, 256)}});
  });
  PartWriter writer(folder / "part.h5", 0, {slices_of({large.part(0, 128)})});
  const std::string places = writer.reserve();
  expect_error(ExitCode::kInternal, {"parameters/large", "not announced"}, [&] { writer.write(places, {large}); });
  expect_error(ExitCode::kInternal, {"part.h5", "places"}, [&] { writer.write("", {large.part(0, 128)}); });
  expect_error(ExitCode::kInternal, {"part.h5", "hashes"}, [&] { writer.finish({""}); });
  expect_error(ExitCode::kInternal, {"part.h5", "hashes"}, [&] { writer.finish({std::string(32, 'x')}); });
}

// The disk fills while one writer's bytes are written; the others have written theirs.
TEST(Part, ThatOneWriterCannotWriteNamesItsTensor) {
  TemporaryFolder folder;
  const std::string path = folder / "part.h5";
  const StateEntry large = state()[0];
  const std::vector<std::vector<StoredSlice>> announced = {slices_of({large.part(0, kBlock)}),
                                                           slices_of({large.part(kBlock, kLarge)})};
  PartWriter first(path, 0, announced), second(path, 0, announced);
  const std::string places = first.reserve();
  test::FileSizeLimit limit(2 * kBlock * sizeof(float));
  first.write(places, {large.part(0, kBlock)});
  expect_error(ExitCode::kStorage, {path, "tensor parameters/large", "not written", "File too large"},
               [&] { second.write(places, {large.part(kBlock, kLarge)}); });
}

// A bit in a block that two ranks wrote: found by who reads any of it, by one of those who verify a share each, and
// by nobody else.
TEST(Damage, OfABlockIsNamed) {
  TemporaryFolder folder;
  const std::string dir = save(folder / "c", 1, 4), path = dir + "/part-0000-of-0001.h5";
  const StateEntry large = state()[0];
  const int64_t at = 3 * kBlock - 10;
  test::flip_byte_of(path, large.data.values<float>() + at, 400, 5);
  const Checkpoint c = open_checkpoint(dir);
  const auto expect_named = [&](const std::function<void()>& action) {
    expect_error(ExitCode::kBadData,
                 {path, "tensor parameters/large", "checksum", str("elements [", 2 * kBlock, ", ", 3 * kBlock, ")")},
                 action);
  };
  float some[2];
  expect_named([&] { verify_checkpoint(c); });
  expect_named([&] { read_elements(c, large.name, {2 * kBlock, 2 * kBlock + 2}, some); });
  expect_named([&] { read_elements(c, large.name, {3 * kBlock - 1, 3 * kBlock + 1}, some); });
  read_elements(c, large.name, {3 * kBlock, 3 * kBlock + 2}, some);
  EXPECT_EQ(some[1], large.data.values<float>()[3 * kBlock + 1]);
  for (int readers : {2, 5, 64}) {
    int found = 0;
    for (int r = 0; r < readers; ++r) try {
        verify_checkpoint(c, r, readers);
      } catch (const Error&) {
        ++found;
      }
    EXPECT_EQ(found, 1) << readers << " readers";
  }
}

// Hashes of another checkpoint's tensors, in a file that is whole by its seal.
TEST(Damage, OfTheHashesIsFound) {
  TemporaryFolder folder;
  const std::string dir = save(folder / "c", 1, 2);
  std::vector<StateEntry> other = state();
  other[0].data.mutable_values<float>()[7] += 1;
  write_together(dir + "/part-0000-of-0001.h5", 0, {other});
  expect_error(ExitCode::kBadData, {"part-0000-of-0001.h5", "hashes of tensor parameters/large", "manifest"}, [&] {
    float one;
    read_elements(open_checkpoint(dir), "parameters/large", {kLarge - 1, kLarge}, &one);
  });
}

// As up to version 4: a file for each rank, whose chunks HDF5 checksums.
std::string save_as_before(const std::string& folder, int ranks) {
  const std::string pending = pending_checkpoint(folder, 7);
  begin_checkpoint(pending);
  std::vector<StoredSlice> slices;
  for (int r = 0; r < ranks; ++r) {
    Hdf5File file = Hdf5File::create(part_path(pending, r, ranks));
    for (const StateEntry& e : cut_for_rank(state(), r, ranks)) {
      file.write_all(str(e.name, "@", e.offset), StoredType::kFloat32, {e.data.numel()}, e.data.read());
      slices.push_back({e.name, e.region, e.offset, e.data.numel(), r, digest_of({e}), 0});
    }
    file.close();
  }
  CheckpointInfo info;
  info.step = 7, info.ranks = ranks;
  commit_checkpoint(folder, info, slices, ranks);
  const std::string dir = folder + "/" + checkpoint_name(7), path = dir + "/manifest.json";
  std::string text = content(path);
  text.resize(text.rfind("{\"hash\""));
  for (const auto& [from, to] : {std::pair(str("\"version\":", kCheckpointVersion), std::string("\"version\":4")),
                                 std::pair(str("\"files\":", ranks, ","), std::string())})
    text.replace(text.find(from), from.size(), to);
  write_file(path, text + "{\"hash\":\"" + to_hex(hash128(text)) + "\"}\n");
  return dir;
}

TEST(EarlierVersion, IsReadAndItsDamageFound) {
  TemporaryFolder folder;
  const std::string dir = save_as_before(folder / "c", 3), path = dir + "/part-0001-of-0003.h5";
  const Checkpoint c = open_checkpoint(dir);
  EXPECT_EQ(c.files, 3);
  expect_whole(c);
  const std::string good = content(path);
  const StateEntry large = state()[0];
  test::flip_byte_of(path, large.data.values<float>() + kLarge / 2, 400, 5);
  for (int64_t count : {int64_t{10}, kLarge}) {
    std::vector<float> out(static_cast<size_t>(count));
    const int64_t from = count == kLarge ? 0 : kLarge / 2;
    expect_error(ExitCode::kBadData, {path, "parameters/large", "checksum"}, [&] {
      read_elements(c, large.name, {from, from + count}, out.data());
    });
  }
  int found = 0;
  for (int r = 0; r < 4; ++r) try {
      verify_checkpoint(c, r, 4);
    } catch (const Error&) {
      ++found;
    }
  EXPECT_EQ(found, 1);
  write_file(path, good);
  verify_checkpoint(c);
}

// A dataset without the hashes that a manifest of version 5 promises.
TEST(EarlierVersion, InTheClothesOfALaterIsRefused) {
  TemporaryFolder folder;
  const std::string dir = save_as_before(folder / "c", 1), path = dir + "/manifest.json";
  std::string text = content(path);
  text.resize(text.rfind("{\"hash\""));
  text.replace(text.find("\"version\":4"), 11, str("\"version\":", kCheckpointVersion, ",\"files\":1"));
  write_file(path, text + "{\"hash\":\"" + to_hex(hash128(text)) + "\"}\n");
  expect_error(ExitCode::kBadData, {"part-0000-of-0001.h5", "adamw.m/large", "not written by lockstep"},
               [&] { verify_checkpoint(open_checkpoint(dir)); });
}

}  // namespace
}  // namespace lockstep::checkpoint_part_test
