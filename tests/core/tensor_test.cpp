// Tensors as views: what strides say is what is read; broadcasting; shapes without bytes; versions.
#include "core/tensor/tensor.h"

#include <gtest/gtest.h>

#include <numeric>

#include "core/base/philox.h"
#include "core/tensor/raw_ops.h"

namespace lockstep::tensor_test {
namespace {

Tensor counting(const Shape& shape) {
  std::vector<float> v(static_cast<size_t>(shape.numel()));
  std::iota(v.begin(), v.end(), 0.0f);
  return Tensor::of(v, shape);
}

// Calls visit(index) for every index of a shape, row-major.
template <class Visit>
void each_index(const Shape& shape, Visit visit) {
  Shape at = shape;
  for (int64_t& i : at) i = 0;
  for (int64_t n = 0; n < shape.numel(); ++n) {
    visit(at);
    for (int d = shape.rank() - 1; d >= 0; --d) {
      if (++at[d] < shape[d]) break;
      at[d] = 0;
    }
  }
}

// The elements of a view of counting(), by offset and strides alone.
std::vector<double> by_strides(const Tensor& t) {
  std::vector<double> out;
  each_index(t.shape(), [&](const Shape& at) {
    int64_t element = t.offset();
    for (int d = 0; d < t.rank(); ++d) element += at[d] * t.strides()[d];
    out.push_back(static_cast<double>(element));
  });
  return out;
}

struct Draw {
  uint64_t seed, count = 0;
  int64_t below(int64_t n) { return static_cast<int64_t>(philox(seed, count++, 3).v[0] % static_cast<uint64_t>(n)); }
};

// A chain of random views, as deep as `steps`.
Tensor random_view(Tensor t, Draw& draw, int steps) {
  for (int i = 0; i < steps; ++i) {
    const int d = static_cast<int>(draw.below(t.rank()));
    switch (draw.below(4)) {
      case 0: t = t.transpose(d, static_cast<int>(draw.below(t.rank()))); break;
      case 1: {
        const int64_t begin = draw.below(t.dim(d));
        t = t.slice(d, begin, begin + 1 + draw.below(t.dim(d) - begin));
        break;
      }
      case 2:
        if (t.dim(d) == 1) {
          Shape wider = t.shape();
          wider[d] = 1 + draw.below(3);
          t = t.expand(wider);
        }
        break;
      default:
        if (t.is_contiguous()) t = t.reshape({t.dim(0), -1, t.dim(-1)});
    }
  }
  return t;
}

TEST(Views, HoldWhatTheirStridesSay) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Draw draw{seed};
    const Tensor base = counting({3, 4, 5, 2}), view = random_view(base, draw, 6);
    ASSERT_EQ(view.storage(), base.storage()) << "a view moves no bytes";
    ASSERT_EQ(view.to_vector(), by_strides(view)) << "seed " << seed << " " << to_text(view);
  }
}

TEST(Views, ComposeAsIndicesDo) {
  const Tensor t = counting({3, 4, 5});
  EXPECT_EQ(t.permute({2, 0, 1}).permute({1, 2, 0}).to_vector(), t.to_vector());
  EXPECT_EQ(t.slice(1, 1, 4).slice(1, 1, 2).to_vector(), t.slice(1, 2, 3).to_vector());
  EXPECT_EQ(t.slice(-1, 0, 5).to_vector(), t.to_vector());
  EXPECT_EQ(t.transpose(0, 2).dim(0), 5);
  EXPECT_EQ(t.slice(2, 1, 2).expand({3, 4, 6}).slice(2, 5, 6).to_vector(), t.slice(2, 1, 2).to_vector());
  EXPECT_EQ(t.slice(0, 2, 2).numel(), 0);
  EXPECT_TRUE(t.slice(0, 2, 2).to_vector().empty());
}

TEST(Views, ThatCannotBeAreErrors) {
  const Tensor t = counting({3, 4});
  EXPECT_THROW(t.slice(0, 2, 4), Error);
  EXPECT_THROW(t.slice(2, 0, 1), Error);
  EXPECT_THROW(t.reshape({5, -1}), Error);
  EXPECT_THROW(t.reshape({-1, -1}), Error);
  EXPECT_THROW(t.transpose(0, 1).reshape({12}), Error);
  EXPECT_THROW(t.expand({3, 8}), Error);
  EXPECT_THROW(t.permute({0, 0}), Error);
  EXPECT_THROW(t.permute({0}), Error);
  EXPECT_THROW(Tensor::view_of(t.storage(), 1, {3, 4}, DType::kFloat32), Error);
  EXPECT_THROW(Tensor::view_of(t.storage(), 0, {12}, DType::kFloat64), Error);
  EXPECT_THROW(t.as(DType::kFloat64), Error);
}

TEST(Broadcasting, FollowsTheTrailingExtents) {
  EXPECT_EQ(broadcast_shapes({3, 1, 5}, {4, 1}, "test"), (Shape{3, 4, 5}));
  EXPECT_EQ(broadcast_shapes({}, {2, 3}, "test"), (Shape{2, 3}));
  EXPECT_EQ(broadcast_shapes({1}, {0}, "test"), (Shape{0}));
  try {
    broadcast_shapes({3, 4}, {3}, "mul");
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("mul: shapes [3, 4] and [3]"), std::string::npos) << e.what();
  }
}

// Any views of any shapes, of short and of long lines, into all and into a part of a tensor: the kernel's merged, tiled
// walk gives what index arithmetic gives.
TEST(Broadcasting, OfRandomViewsMatchesIndexArithmetic) {
  for (const Shape& shape : {Shape{4, 3, 6, 5}, Shape{2, 3, 1400}})
    for (uint64_t seed = 0; seed < 200; ++seed) {
      Draw draw{seed};
      const Tensor base = counting(shape), a = random_view(base, draw, 5);
      Shape thin = a.shape(), wide = a.shape();
      for (int64_t& e : thin)
        if (draw.below(2)) e = 1;
      const Tensor b = counting(thin);
      const int last = a.rank() - 1;
      const int64_t before = last >= 0 ? draw.below(4) : 0;
      if (last >= 0) wide[last] += before + draw.below(2);
      const Tensor all = Tensor::zeros(wide), out = last >= 0 ? all.slice(last, before, before + a.dim(last)) : all;
      raw::add(out, a, b);
      const std::vector<double> x = by_strides(a), y = by_strides(b.expand(a.shape())), sum = out.to_vector();
      for (size_t i = 0; i < sum.size(); ++i)
        ASSERT_EQ(sum[i], x[i] + y[i]) << to_text(shape) << ", seed " << seed << " at " << i;
      double outside = 0, inside = 0;
      for (double v : all.to_vector()) outside += v;
      for (double v : sum) inside += v;
      ASSERT_EQ(outside, inside) << to_text(shape) << ", seed " << seed << ": written beside the view";
    }
}

TEST(Broadcasting, WritesThroughAnyView) {
  const Tensor t = Tensor::zeros({4, 6});
  raw::copy(t.slice(1, 1, 4).transpose(0, 1), counting({3, 4}));
  const std::vector<double> v = t.to_vector();
  for (int64_t r = 0; r < 4; ++r)
    for (int64_t c = 0; c < 6; ++c)
      EXPECT_EQ(v[static_cast<size_t>(r * 6 + c)], c >= 1 && c < 4 ? static_cast<double>((c - 1) * 4 + r) : 0);
}

TEST(Bytes, AreNotNeededForShapes) {
  Tensor t = Tensor::unallocated({4, 6}, DType::kBFloat16);
  EXPECT_FALSE(t.allocated());
  EXPECT_EQ(t.transpose(0, 1).slice(0, 2, 5).shape(), (Shape{3, 4}));
  EXPECT_EQ(t.reshape({2, -1}).shape(), (Shape{2, 12}));
  try {
    t.slice(0, 1, 2).read();
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("bf16[1, 6]"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("released or were never allocated"), std::string::npos) << e.what();
  }
  EXPECT_THROW(raw::fill(t, 1), Error);
  EXPECT_THROW(Tensor().read(), Error);
  t.allocate();
  raw::fill(t, 2);
  EXPECT_EQ(t.to_vector(), std::vector<double>(24, 2.0));
}

TEST(Bytes, ReleasedAndRefilledUnderLiveViewsAreNoWrite) {
  Tensor t = counting({2, 3});
  const Tensor view = t.slice(1, 1, 3);
  const uint64_t version = t.storage()->version();
  t.storage()->release();
  EXPECT_THROW(view.read(), Error);
  EXPECT_THROW(view.to_vector(), Error);
  EXPECT_THROW(t.write(), Error);
  t.allocate();
  EXPECT_EQ(t.storage()->version(), version);
  raw::fill(t, 7);
  EXPECT_EQ(view.to_vector(), std::vector<double>(4, 7.0));
}

TEST(Bytes, BorrowedStayWithTheirOwner) {
  auto owner = std::make_shared<std::vector<float>>(6, 3.0f);
  std::weak_ptr<std::vector<float>> alive = owner;
  {
    auto storage = std::make_shared<Storage>(Device{}, 24, owner->data(), owner);
    owner.reset();
    const Tensor t = Tensor::view_of(storage, 2, {4}, DType::kFloat32);
    EXPECT_FALSE(alive.expired());
    EXPECT_EQ(t.to_vector(), std::vector<double>(4, 3.0));
    storage->release();  // not ours to give
    EXPECT_TRUE(t.allocated());
  }
  EXPECT_TRUE(alive.expired());
}

TEST(Versions, CountWritesOfTheWholeStorage) {
  const Tensor t = counting({4}), view = t.slice(0, 2, 4), other = counting({4});
  const uint64_t before = t.storage()->version();
  raw::add(view, view, view);
  EXPECT_GT(t.storage()->version(), before);
  const uint64_t after = t.storage()->version();
  t.to_vector();
  raw::copy(other, t);
  EXPECT_EQ(t.storage()->version(), after) << "reading is no write";
}

TEST(Values, NeedTheirOwnTypeAndDenseMemory) {
  const Tensor t = counting({2, 2});
  EXPECT_THROW(t.values<double>(), Error);
  EXPECT_THROW(t.transpose(0, 1).values<float>(), Error);
  EXPECT_THROW(t.item(), Error);
  EXPECT_EQ(t.slice(0, 1, 2).slice(1, 1, 2).item(), 3);
  EXPECT_THROW(Tensor::of(std::vector<float>(3), {2, 2}), Error);
  EXPECT_EQ(Tensor::full({}, 5).item(), 5);
}

TEST(Shapes, HoldEightExtentsAtMost) {
  Shape s;
  for (int i = 0; i < Shape::kMaxRank; ++i) s.push_back(1);
  EXPECT_THROW(s.push_back(1), Error);
  EXPECT_EQ(contiguous_strides({3, 4, 5}), (Shape{20, 5, 1}));
  EXPECT_EQ(to_text(Shape{2, 3}), "[2, 3]");
}

TEST(Sums, OfColumnsAsRowsHaveTheBitsOfRows) {
  for (DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat64})
    for (const Shape& shape : {Shape{1, 1}, Shape{31, 7}, Shape{32, 64}, Shape{100, 200}, Shape{2049, 65}}) {
      Draw draw{3};
      std::vector<float> values(static_cast<size_t>(shape.numel()));
      for (float& v : values) v = static_cast<float>(draw.below(20001) - 10000) / 777;
      const Tensor in = raw::cast(Tensor::of(values, shape), dtype), out = Tensor::empty({shape[1]}, dtype),
                   expected = Tensor::empty({shape[1]}, dtype);
      raw::sum_columns_as_rows(out, in);
      raw::sum_dims(expected, in.transpose(0, 1), {1});
      EXPECT_EQ(out.to_vector(), expected.to_vector()) << str(shape, " in ", dtype);
    }
}

// One run of dimensions, several runs, none: sums agree with plain addition of whole numbers, which is exact.
TEST(Sums, OverAnyDimensionsMatchPlainAddition) {
  const Shape shape{3, 4, 2, 5};
  const Tensor t = counting(shape);
  const std::vector<double> v = t.to_vector();
  for (int mask = 0; mask < 16; ++mask) {
    std::vector<int> dims;
    Shape kept = shape;
    for (int d = 0; d < 4; ++d)
      if (mask >> d & 1) dims.push_back(d), kept[d] = 1;
    std::vector<double> expected(static_cast<size_t>(kept.numel()), 100.0);
    const Shape strides = contiguous_strides(kept);
    size_t at = 0;
    each_index(shape, [&](const Shape& i) {
      int64_t to = 0;
      for (int d = 0; d < 4; ++d) to += kept[d] == 1 ? 0 : i[d] * strides[d];
      expected[static_cast<size_t>(to)] += v[at++];
    });
    const Tensor out = Tensor::full(kept, 100);
    raw::sum_dims(out, t, dims, true);
    EXPECT_EQ(out.to_vector(), expected) << "dimensions by mask " << mask;
    EXPECT_EQ(raw::sum_to(t, kept, t.dtype()).to_vector(), [&] {
      for (double& e : expected) e -= 100;
      return expected;
    }());
  }
}

}  // namespace
}  // namespace lockstep::tensor_test
