// Checkpoints of tensors that ranks hold in boxes: any boxes and slices of them save, any load, with one digest.
#include <gtest/gtest.h>

#include "core/base/philox.h"
#include "core/state/checkpoint.h"
#include "core/tensor/raw_ops.h"
#include "tests/support/files.h"

namespace lockstep::checkpoint_regions_test {
namespace {

using test::content;
using test::expect_error;
using test::TemporaryFolder;
using test::write_file;

const std::vector<std::pair<std::string, Shape>> kTensors = {
    {"parameters/down.weight", {67, 100}}, {"adamw.m/down.weight", {67, 100}}, {"parameters/conv.weight", {6, 7, 3, 3}},
    {"parameters/large", {220, 331}},      {"parameters/scalar", {}},          {"parameters/up.weight", {40, 67}}};

float value_of(const std::string& name, int64_t element) {
  return uniform_of(philox(hash64(name), static_cast<uint64_t>(element), 1).v[0]) - 0.5f;
}

Tensor values_of(const std::string& name, const Region& region) {
  std::vector<float> v;
  for (int64_t i = 0; i < region.numel(); ++i) v.push_back(value_of(name, region.element(i)));
  return Tensor::of(v, {region.numel()});
}

// What rank `r` holds: boxes of `size` ranks, cut along the last dimension but one, or the last where `last`.
Region part_of(const Shape& shape, int size, int r, bool last) {
  if (shape.rank() == 0) return shape;
  const int dim = last || shape.rank() == 1 ? shape.rank() - 1 : shape.rank() - 2;
  const IndexRange mine = split_evenly(shape[dim], size, r);
  Shape begin = shape, extent = shape;
  for (int64_t& at : begin) at = 0;
  begin[dim] = mine.begin, extent[dim] = mine.size();
  return {shape, begin, extent};
}

// Of `size` ranks, in `replicas` of which each holds a slice of the boxes.
std::vector<StateEntry> held_by(int size, int r, bool last, int replica = 0, int replicas = 1) {
  std::vector<StateEntry> out;
  for (const auto& [name, shape] : kTensors) {
    if (shape.rank() == 0 && r > 0) continue;
    const Region region = part_of(shape, size, r, last);
    out.push_back({name, region, 0, values_of(name, region)});
  }
  return cut_for_rank(out, replica, replicas);
}

struct Layout {
  int size = 1;
  bool last = true;  // dimension
  int replicas = 1;
};
const Layout kLayouts[] = {{1, true, 1}, {2, true, 1}, {3, true, 2}, {3, false, 1}, {5, false, 3}};

std::string save(const std::string& folder, const Layout& l) {
  const std::string pending = pending_checkpoint(folder, 30);
  begin_checkpoint(pending);
  std::vector<StoredSlice> slices;
  const int writers = l.size * l.replicas;
  for (int r = 0; r < l.size; ++r)
    for (int replica = 0; replica < l.replicas; ++replica) {
      const auto entries = held_by(l.size, r, l.last, replica, l.replicas);
      const auto mine =
          parse_slices(slices_text(write_part(pending, r * l.replicas + replica, writers, entries)), "a writer's list");
      slices.insert(slices.end(), mine.begin(), mine.end());
    }
  CheckpointInfo info;
  info.step = 30, info.ranks = writers, info.dataset = "0123456789abcdef0123456789abcdef";
  commit_checkpoint(folder, info, slices, writers);
  return folder + "/" + checkpoint_name(30);
}

int64_t version_of(const std::string& dir) {
  const std::string text = content(dir + "/manifest.json"), key = "\"version\":";
  return std::stoll(text.substr(text.find(key) + key.size()));
}

void expect_loads(const Checkpoint& c, const Layout& to, const std::string& what) {
  for (int r = 0; r < to.size; ++r)
    for (int replica = 0; replica < to.replicas; ++replica) {
      const auto wanted = held_by(to.size, r, to.last, replica, to.replicas);
      std::vector<StateEntry> entries;
      for (const StateEntry& e : wanted)
        entries.push_back({e.name, e.region, e.offset, Tensor::full({e.data.numel()}, -9)});
      for (const auto& [name, shape] : kTensors) entries.push_back({name, shape, 0, Tensor::zeros({0})});
      load_entries(c, entries);
      for (size_t i = 0; i < wanted.size(); ++i)
        ASSERT_EQ(entries[i].data.to_vector<float>(), wanted[i].data.to_vector<float>())
            << what << ": " << wanted[i].name << " " << to_text(wanted[i].region) << " from " << wanted[i].offset;
    }
}

TEST(Boxes, OfAnyLayoutLoadIntoAnyOtherWithOneDigest) {
  std::string digest;
  for (const Layout& from : kLayouts) {
    TemporaryFolder folder;
    const std::string dir = save(folder / "c", from);
    EXPECT_EQ(version_of(dir), from.size == 1 ? kCheckpointVersion : kVersionOfBoxes);
    const Checkpoint c = open_checkpoint(dir);
    verify_checkpoint(c);
    for (int reader = 0; reader < 3; ++reader) verify_checkpoint(c, reader, 3);
    if (digest.empty()) digest = to_hex(digest_of(c));
    EXPECT_EQ(to_hex(digest_of(c)), digest) << from.size << " boxes";
    for (const Layout& to : kLayouts) expect_loads(c, to, str(from.size, " boxes into ", to.size));
    for (const auto& [name, shape] : kTensors) {
      const IndexRange some{shape.numel() / 3, shape.numel() - shape.numel() / 4};
      std::vector<float> read(static_cast<size_t>(some.size())), wanted;
      for (int64_t i = some.begin; i < some.end; ++i) wanted.push_back(value_of(name, i));
      read_elements(c, name, some, read.data());
      EXPECT_EQ(read, wanted) << name;
    }
  }
}

// Beyond a piece of 4 MiB: rows that are read together, with and without gaps of more than a block between them.
TEST(Boxes, OfALargeTensorLoadByPieces) {
  TemporaryFolder folder;
  const Shape shape{40, 100'001};
  const std::string name = "parameters/w";
  const std::string pending = pending_checkpoint(folder / "c", 1);
  begin_checkpoint(pending);
  const Region halves[] = {{shape, {0, 0}, {40, 60'000}}, {shape, {0, 60'000}, {40, 40'001}}};
  std::vector<StoredSlice> slices;
  for (int w = 0; w < 2; ++w)
    for (const StoredSlice& s : write_part(pending, w, 2, {{name, halves[w], 0, values_of(name, halves[w])}}))
      slices.push_back(s);
  CheckpointInfo info;
  info.step = 1, info.ranks = 2, info.dataset = "0123456789abcdef0123456789abcdef";
  commit_checkpoint(folder / "c", info, slices, 2);
  const Checkpoint c = open_checkpoint(str(folder / "c", "/", checkpoint_name(1)));
  for (const Region& r : {Region(shape), Region(shape, {0, 59'000}, {40, 2'000}), Region(shape, {3, 0}, {30, 100'001}),
                          Region(shape, {39, 100'000}, {1, 1})}) {
    const StateEntry e{name, r, 0, Tensor::zeros({r.numel()})};
    load_entries(c, {e});
    EXPECT_EQ(e.data.to_vector<float>(), values_of(name, r).to_vector<float>()) << to_text(r);
    const StateEntry narrow{name, r, 0, Tensor::zeros({r.numel()}, DType::kBFloat16)};
    load_entries(c, {narrow});
    EXPECT_EQ(narrow.data.to_vector(), raw::cast(values_of(name, r), DType::kBFloat16).to_vector()) << to_text(r);
  }
  EXPECT_EQ(digest_of(c, name), digest_of({{name, shape, 0, values_of(name, shape)}}));
}

TEST(Boxes, ADamagedByteIsFound) {
  TemporaryFolder folder;
  const std::string dir = save(folder / "c", {2, true, 1}), path = dir + "/part-0001-of-0002.h5", good = content(path);
  const Region r = part_of({67, 100}, 2, 1, true);
  const std::vector<float> there = values_of("parameters/down.weight", r).to_vector<float>();
  const std::string bytes(reinterpret_cast<const char*>(there.data() + 500), 64);
  const size_t at = good.find(bytes);
  ASSERT_NE(at, good.npos);
  std::string bad = good;
  bad[at + 5] = static_cast<char>(bad[at + 5] ^ 4);
  write_file(path, bad);
  const Checkpoint c = open_checkpoint(dir);
  expect_error(ExitCode::kBadData, {"part-0001-of-0002.h5"}, [&] { verify_checkpoint(c); });
  expect_error(ExitCode::kBadData, {"part-0001-of-0002.h5"}, [&] { digest_of(c); });
}

// Slices of a tensor [8, 10] with these boxes, as a manifest that is to be committed.
void commit_boxes(const std::string& folder, const std::vector<Region>& boxes) {
  const std::string pending = pending_checkpoint(folder, 1);
  begin_checkpoint(pending);
  std::vector<StoredSlice> slices;
  for (const Region& r : boxes) slices.push_back({"parameters/w", r, 0, r.numel(), 0, {}, 0});
  CheckpointInfo info;
  info.step = 1;
  commit_checkpoint(folder, info, slices, 1);
}

TEST(Boxes, ThatDoNotCoverATensorOnceAreRefused) {
  TemporaryFolder folder;
  const Shape shape{8, 10};
  const Region left{shape, {0, 0}, {8, 4}}, right{shape, {0, 4}, {8, 6}}, none{shape, {8, 0}, {0, 10}};
  commit_boxes(folder / "c", {left, right});
  commit_boxes(folder / "c", {left, right, none});
  expect_error(ExitCode::kInternal, {"parameters/w", "48 of its 80 elements are in no slice", "[0:8, 0:4]"},
               [&] { commit_boxes(folder / "c", {left}); });
  expect_error(ExitCode::kInternal,
               {"parameters/w [2:8, 3:4] of [8, 10]", "in two slices", "[0:8, 0:4]", "[2:8, 3:10]"}, [&] {
                 commit_boxes(folder / "c", {left, {shape, {0, 4}, {2, 6}}, {shape, {2, 3}, {6, 7}}});
               });
  expect_error(ExitCode::kInternal, {"parameters/w", "has the shapes", "[8, 10]", "[8, 11]"}, [&] {
    commit_boxes(folder / "c", {left, {{8, 11}, {0, 4}, {8, 7}}});
  });
  std::vector<Region> many;
  for (int64_t i = 0; i < 2000; ++i) many.push_back({{2000}, {i}, {1}});
  expect_error(ExitCode::kInternal, {"parameters/w", "2000 boxes"}, [&] { commit_boxes(folder / "c", many); });
}

TEST(Boxes, OutsideTheirTensorOrInAnOldVersionAreNoManifest) {
  const auto list = [](const std::string& box) {
    return R"([{"name":"parameters/w","shape":"8x10",)" + box +
           R"("offset":0,"count":40,"part":0,"hash":"0123456789abcdef0123456789abcdef"}])";
  };
  EXPECT_EQ(parse_slices(list(R"("begin":"0x5","extent":"8x5",)"), "here")[0].region, Region({8, 10}, {0, 5}, {8, 5}));
  for (const char* box :
       {R"("begin":"0x6","extent":"8x5",)", R"("begin":"0","extent":"8",)", R"("begin":"0x0","extent":"8x11",)"})
    expect_error(ExitCode::kBadData, {"here", "parameters/w", "not within the shape [8, 10]"},
                 [&] { parse_slices(list(box), "here"); });
  expect_error(ExitCode::kBadData, {"here", "extent"}, [&] { parse_slices(list(R"("begin":"0x5",)"), "here"); });
  expect_error(ExitCode::kBadData, {"parameters/w[0:8, 5:9]", "a slice at 0 of 40"},
               [&] { parse_slices(list(R"("begin":"0x5","extent":"8x4",)"), "here"); });

  TemporaryFolder folder;
  const std::string dir = save(folder / "c", {2, true, 1}), path = dir + "/manifest.json";
  std::string text = content(path);
  text.resize(text.rfind("{\"hash\""));
  text.replace(text.find("\"version\":6"), 11, "\"version\":5");
  write_file(path, text + "{\"hash\":\"" + to_hex(hash128(text)) + "\"}\n");
  expect_error(ExitCode::kBadData, {"manifest.json", "is in boxes", "version 5"}, [&] { open_checkpoint(dir); });
}

}  // namespace
}  // namespace lockstep::checkpoint_regions_test
