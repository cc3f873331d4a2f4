// The matrix product of one thread, for kernels that multiply matrices within their own pieces of work. Stateless;
// scratch slots 0 and 1 of the calling thread.
#pragma once

#include "core/kernels/args.h"
#include "core/kernels/parallel.h"
#include "core/kernels/stage.h"

namespace lockstep::inline LOCKSTEP_ISA {

inline Matrix block_of(const Matrix& m, int64_t row, int64_t col, int64_t batch = 0) {
  Matrix out = m;
  out.data = static_cast<char*>(m.data) +
             (row * m.row_stride + col * m.col_stride + batch * m.batch_stride) * size_of(m.dtype);
  return out;
}

// What of a product its rows need, as under a causal mask; the rest may be left out. Where that is part of the sums, A
// is 0 there: leaving such products with finite numbers out changes no sum but one that is -0, which may be 0 instead.
struct Stairs {
  enum class Of {
    kNothing,
    kColumns,    // row i needs the first `first + i + 1` columns of C; the others are undefined
    kDepth,      // of k, it needs the first `first + i + 1`
    kLateDepth,  // of k, it needs those from `i - first` on
  };
  Of of = Of::kNothing;
  int64_t first = 0;
};

// B[k, n], packed once by pack_matrix() for several products, as its type asks for: B of bf16 is multiplied by A of
// bf16 alone, and as a whole; of B in type T a product may use its first g.k <= k rows and g.n <= n columns.
template <class T>
struct PackedMatrix {
  const T* data = nullptr;
  int64_t k = 0, n = 0;
};

// Multiplies the first matrix of the batch, without epilogue and bias gradient. T, float or double, is the type of the
// sums; operands of other types are converted. Every element of C is one chain of multiply-adds over k in order; of two
// operands in bf16 it is, for each 32 of k, the sum of a chain over the even and one over the odd ones. Neither m, n,
// threads nor edges change its bits.
template <class T>
void gemm_serial(Parallel& parallel, const GemmArgs& g, const Stairs& stairs = {}, const PackedMatrix<T>& packed = {});
template <>
void gemm_serial<float>(Parallel& parallel, const GemmArgs& g, const Stairs& stairs, const PackedMatrix<float>& packed);
template <>
void gemm_serial<double>(Parallel& parallel, const GemmArgs& g, const Stairs& stairs,
                         const PackedMatrix<double>& packed);

// How many elements of type T a packed matrix of elements `dtype` takes.
template <class T>
int64_t packed_size(DType dtype, int64_t k, int64_t n);
// B[k, n], packed in `out`.
template <class T>
PackedMatrix<T> pack_matrix(const Matrix& b, int64_t k, int64_t n, T* out);

// Rows of A: element (i, k) at data[i * stride + k], or, packed, at data[k * stride + i].
template <class T>
struct RowsOfA {
  const T* data;
  int64_t stride;
  bool packed;
};

// `depth` columns of some rows of A, whose column 0 here is column `from` of those asked for.
template <class T>
struct Stretch {
  RowsOfA<T> rows;
  int64_t from, depth;
};
constexpr int kMostStretches = 8;

// A matrix that lies nowhere as a whole: the product has the parts that it needs written where it packs them.
template <class T>
class GatheredMatrix {
 public:
  // out[r * ld + c] = element (row + r, col + c), for r < rows and c < cols.
  virtual void gather(int64_t row, int64_t rows, int64_t col, int64_t cols, T* out, int64_t ld) const = 0;
  // Up to `rows` rows from `row` on, as stretches of columns [col, col + cols) in order, in memory of the matrix or in
  // `out`, which holds rows * cols elements. Returns how many rows.
  virtual int64_t find_rows(int64_t row, int64_t rows, int64_t col, int64_t cols, T* out, Stretch<T>* stretches,
                            int& count) const = 0;

 protected:
  ~GatheredMatrix() = default;
};

// The same with A or B gathered, whose data in `g` stay unset, and each element one chain. Same bits.
template <class T>
void gemm_of_gathered_a(Parallel& parallel, const GemmArgs& g, const GatheredMatrix<T>& a);
template <class T>
void gemm_of_gathered_b(Parallel& parallel, const GemmArgs& g, const GatheredMatrix<T>& b);

// The product of two operands in bf16 by AMX, for levels that have it, and B packed for it, whose size is in floats
// (gemm_tiles.cpp).
void multiply_by_tiles(Parallel& parallel, const GemmArgs& g, const PackedMatrix<float>& packed);
int64_t size_packed_for_tiles(int64_t k, int64_t n);
void pack_for_tiles(const Matrix& b, int64_t k, int64_t n, float* out);

}  // namespace lockstep::inline LOCKSTEP_ISA
