// Digests and sums of squares of tensors that ranks hold in regions equal those of the whole tensors, to the bit.
#include "sharding/cut_chunks.h"

#include <gtest/gtest.h>

#include <mutex>

#include "core/base/philox.h"
#include "core/kernels/kernels.h"
#include "tests/support/files.h"
#include "tests/support/run_ranks.h"

namespace lockstep::cut_chunks_test {
namespace {

using test::expect_error;
using testing::run_ranks;

std::vector<float> numbers(int64_t n, uint64_t site) {
  std::vector<float> v;
  for (int64_t i = 0; i < n; ++i) v.push_back(uniform_of(philox(5, static_cast<uint64_t>(i), site).v[0]) - 0.4f);
  return v;
}

struct Whole {
  std::string name;
  Shape shape;
  std::vector<float> values;
};

StateEntry entry_of(const Whole& w, const Region& region, IndexRange range) {
  std::vector<float> v;
  for (int64_t i = range.begin; i < range.end; ++i) v.push_back(w.values[static_cast<size_t>(region.element(i))]);
  return {w.name, region, range.begin, Tensor::of(v, {range.size()})};
}

// What rank r of `size` holds of a tensor that is cut along `dim`, as evenly as can be.
Region cut(const Shape& shape, int dim, int r, int size) {
  const IndexRange mine = split_evenly(shape[dim], size, r);
  Shape begin = shape, extent = shape;
  for (int64_t& at : begin) at = 0;
  begin[dim] = mine.begin, extent[dim] = mine.size();
  return {shape, begin, extent};
}

// As the norm of a gradient is formed on one rank that holds the whole.
double squares_of(const Whole& w) {
  std::vector<double> chunks(static_cast<size_t>(ceil_div(w.shape.numel(), kStateChunk)));
  const int64_t range[2] = {0, static_cast<int64_t>(chunks.size())};
  double sum = 0;
  TreeSumsArgs a;
  a.values = chunks.data(), a.ranges = range, a.count = 1, a.out = &sum;
  Stream stream(Device{}, Stream::Mode::kInline, 1);
  stream.enqueue([&](Parallel& p) {
    kernels(p).chunk_norms(p, w.values.data(), w.shape.numel(), chunks.data());
    kernels(p).tree_sums(p, a);
  });
  return sum;
}

std::vector<Whole> tensors() {
  std::vector<Whole> out;
  for (const auto& [name, shape] : std::vector<std::pair<std::string, Shape>>{{"parameters/narrow", {9, 67}},
                                                                              {"parameters/hundred", {64, 100}},
                                                                              {"parameters/even", {10, 256}},
                                                                              {"parameters/conv", {6, 5, 3, 3}},
                                                                              {"parameters/tiny", {2, 3}}})
    out.push_back({name, shape, numbers(shape.numel(), out.size())});
  return out;
}

// Digests and sums of what `hold` gives each rank.
void expect_those_of_the_whole(int size, const std::function<std::vector<StateEntry>(int rank)>& hold) {
  std::map<std::string, Hash128> digests;
  std::mutex mutex;
  run_ranks(size, [&](Communicator& comm) {
    const std::vector<StateEntry> mine = hold(comm.rank());
    for (const auto& [name, share] : digest_shares(mine, comm)) {
      std::lock_guard lock(mutex);
      digests[name] += share;
    }
    const auto sums = sums_of_squares(mine, comm);
    for (const Whole& w : tensors()) EXPECT_EQ(sums.at(w.name), squares_of(w)) << w.name << ", " << size << " ranks";
  });
  for (const Whole& w : tensors())
    EXPECT_EQ(to_hex(digests[w.name]), to_hex(digest_of({entry_of(w, w.shape, {0, w.shape.numel()})})))
        << w.name << ", " << size << " ranks";
}

TEST(CutChunks, OfTensorsThatAreCutAlongAnyDimension) {
  for (int size : {1, 2, 5})
    for (int dim : {0, 1})
      expect_those_of_the_whole(size, [&](int rank) {
        std::vector<StateEntry> mine;
        for (const Whole& w : tensors()) {
          const Region r = cut(w.shape, dim, rank, size);
          mine.push_back(entry_of(w, r, {0, r.numel()}));
        }
        return mine;
      });
}

TEST(CutChunks, OfBoxesThatAreCutIntoSlices) {
  expect_those_of_the_whole(4, [](int rank) {  // two columns of ranks, and slices of each among two
    std::vector<StateEntry> all;
    for (const Whole& w : tensors()) {
      const Region r = cut(w.shape, 1, rank % 2, 2);
      all.push_back(entry_of(w, r, {0, r.numel()}));
    }
    return cut_for_rank(all, rank / 2, 2);
  });
}

TEST(CutChunks, OfSlicesOfTheWhole) {
  expect_those_of_the_whole(3, [](int rank) {
    std::vector<StateEntry> all;
    for (const Whole& w : tensors()) all.push_back(entry_of(w, w.shape, {0, w.shape.numel()}));
    return cut_for_rank(all, rank, 3);
  });
}

TEST(CutChunks, WhereSomeRanksHoldWholeChunksAlone) {
  expect_those_of_the_whole(3, [](int rank) {  // rows of 67: the first rank's end with a chunk, the others' do not
    std::vector<StateEntry> mine;
    for (const Whole& w : tensors()) {
      const int64_t rows = w.shape[0], first = std::min<int64_t>(rows, 64), second = std::min<int64_t>(rows, 65);
      const IndexRange r = rank == 0   ? IndexRange{0, first}
                           : rank == 1 ? IndexRange{first, second}
                                       : IndexRange{second, rows};
      Shape begin = w.shape, extent = w.shape;
      for (int64_t& at : begin) at = 0;
      begin[0] = r.begin, extent[0] = r.size();
      const Region region(w.shape, begin, extent);
      mine.push_back(entry_of(w, region, {0, region.numel()}));
    }
    return mine;
  });
}

TEST(CutChunks, AnElementOnNoRankOrOnTwoIsNamed) {
  const Whole w{"parameters/w", {4, 67}, numbers(4 * 67, 9)};
  for (const bool twice : {false, true})
    for (const bool digests : {false, true})
      expect_error(ExitCode::kInternal, {"parameters/w", "elements from", twice ? "on two ranks" : "on no rank"}, [&] {
        run_ranks(2, [&](Communicator& comm) {
          const int64_t split = twice ? 32 : 34;
          const Region r =
              comm.rank() == 0 ? Region(w.shape, {0, 0}, {4, 33}) : Region(w.shape, {0, split}, {4, 67 - split});
          const std::vector<StateEntry> mine = {entry_of(w, r, {0, r.numel()})};
          if (digests) digest_shares(mine, comm);
          else sums_of_squares(mine, comm);
        });
      });
  expect_error(ExitCode::kInternal, {"parameters/w", "[0:4, 0:33]", "cuts chunks"}, [&] {
    digest_of({entry_of(w, {w.shape, {0, 0}, {4, 33}}, {0, 4 * 33})});
  });
}

}  // namespace
}  // namespace lockstep::cut_chunks_test
