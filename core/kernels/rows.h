// Row operations: what each reads and writes, by name, for those who call them (core/ops, core/tensor) and for the
// kernels of CPUs and GPUs. Plain values that a GPU launch can copy; memory belongs to the caller.
#pragma once

#include <cstdint>

#include "core/base/dtype.h"

namespace lockstep {

constexpr int kMaxRowIns = 6;
constexpr int kMaxRowOuts = 4;
constexpr int kRowLanes = 32;  // of a CPU's sums over a row: lane l sums elements l, l + 32, ...

// Position of an operand in RowArgs. Two types, so that an input cannot be taken for an output.
enum class RowIn : uint8_t {};
enum class RowOut : uint8_t {};

// A matrix whose rows are contiguous, a vector with one value for each row, or one row for all. Absent: no data.
struct RowOperand {
  void* data = nullptr;
  DType dtype = DType::kFloat32;
  int64_t row_stride = 0;  // in elements; 0: the same row for all
};

// One pass over matrices of [rows, cols]. Of the values below the operands each operation reads those that RowOp names.
struct RowArgs {
  int64_t rows = 0, cols = 0;
  RowOperand out[kMaxRowOuts];
  RowOperand in[kMaxRowIns];
  double epsilon = 0;           // added to the variance, or to the mean square
  double loss_gradient = 0;     // gradient of the summed loss, as predicted in the forward pass
  double drop_probability = 0;  // [0, 1)
  int64_t ignored_target = 0;   // rows with this target have no loss
  double label_smoothing = 0;   // [0, 1]: the share of the target that all classes get in equal parts
  int64_t top = 1;              // how many of the largest elements
  bool backwards = false;       // from the last element to the first
  int64_t rows_per_sample = 1;
  uint64_t seed = 0, step = 0, site = 0;  // key of the random numbers

  RowOperand& operator[](RowIn j) { return in[static_cast<int>(j)]; }
  RowOperand& operator[](RowOut j) { return out[static_cast<int>(j)]; }
};

enum class RowOp : uint8_t {
  kLayerNorm,     // epsilon
  kAddLayerNorm,  // kLayerNorm of a + b, which is written to kSum; epsilon
  kLayerNormBackward,
  kRmsNorm,  // epsilon
  kRmsNormBackward,
  kSoftmax,
  kSoftmaxBackward,
  kCrossEntropy,           // ignored_target, label_smoothing
  kCrossEntropyBackward,   // ignored_target, label_smoothing
  kCrossEntropyInOnePass,  // loss and gradient at once; loss_gradient, ignored_target, label_smoothing
  kRescale,                // x *= g / loss_gradient, where they differ
  kDropout,                // drop_probability, rows_per_sample, seed, step, site
  kRandn,                  // standard normal; rows_per_sample, seed, step, site
  kUniform,                // within -1 and 1; likewise
  kSum,
  kMax,
  kNormSquared,  // sum of squares, in fp64
  kLogSoftmax,
  kLogSoftmaxBackward,
  kTopIndices,  // where each row's largest elements are; top
  kPick,        // elements of each row by their index
  kAddAt,       // adds to elements of each row by their index, in the order of the indices
  kCumulate,    // running sums; backwards
};

// Operands of each operation. [rows, cols] where no other shape is given.
struct LayerNormRows {
  static constexpr RowIn kX{0}, kWeight{1}, kBias{2};  // weight and bias [cols]; the bias may be absent
  static constexpr RowOut kY{0}, kMean{1}, kRstd{2};   // mean and 1 / standard deviation [rows]
};
struct AddLayerNormRows : LayerNormRows {
  static constexpr RowIn kA{0}, kB{3};  // kA in place of kX
  static constexpr RowOut kSum{3};
};
struct LayerNormBackwardRows {
  static constexpr RowIn kG{0}, kX{1}, kWeight{2}, kMean{3}, kRstd{4}, kAddend{5};  // the addend may be absent
  static constexpr RowOut kDx{0};
};
struct RmsNormRows {
  static constexpr RowIn kX{0}, kWeight{1};  // weight [cols]
  static constexpr RowOut kY{0}, kRstd{1};   // 1 / root mean square [rows]
};
struct RmsNormBackwardRows {
  static constexpr RowIn kG{0}, kX{1}, kWeight{2}, kRstd{3}, kAddend{4};  // the addend may be absent
  static constexpr RowOut kDx{0};
};
struct SoftmaxRows {
  static constexpr RowIn kX{0};
  static constexpr RowOut kY{0};
};
struct SoftmaxBackwardRows {
  static constexpr RowIn kG{0}, kY{1};
  static constexpr RowOut kDx{0};
};
struct CrossEntropyRows {
  static constexpr RowIn kLogits{0}, kTarget{1};  // targets int32 [rows]
  static constexpr RowOut kLoss{0}, kLse{1};      // loss and log-sum-exp [rows]
};
struct CrossEntropyBackwardRows {
  static constexpr RowIn kLogits{0}, kTarget{1}, kLse{2}, kG{3};  // kG [rows] or one value
  static constexpr RowOut kDlogits{0};                            // may be the logits' memory
};
struct CrossEntropyInOnePassRows {
  static constexpr RowIn kLogits{0}, kTarget{1};
  static constexpr RowOut kDlogits{0}, kLoss{1};  // the gradient may be the logits' memory
};
struct RescaleRows {
  static constexpr RowIn kX{0}, kG{1};  // kG [rows] or one value
  static constexpr RowOut kY{0};        // the memory of x
};
struct DropoutRows {
  static constexpr RowIn kX{0}, kSamples{1};  // samples int64, an id for each rows_per_sample rows
  static constexpr RowOut kY{0};
};
struct RandomRows {
  static constexpr RowIn kSamples{0};  // int64, an id for each rows_per_sample rows
  static constexpr RowOut kY{0};
};
struct LogSoftmaxBackwardRows {
  static constexpr RowIn kG{0}, kY{1};
  static constexpr RowOut kDx{0};
};
// Rows of another length than `cols` have that of their row_stride.
struct TopIndicesRows {
  static constexpr RowIn kX{0};
  static constexpr RowOut kIndex{0};  // int32 [rows, top]
};
struct PickRows {
  static constexpr RowIn kX{0}, kIndex{1};  // x [rows, any], indices int32
  static constexpr RowOut kY{0};
};
struct AddAtRows {
  static constexpr RowIn kX{0}, kIndex{1};  // indices int32
  static constexpr RowOut kY{0};            // [rows, any]
};
struct MapRows {  // kLogSoftmax, kCumulate
  static constexpr RowIn kX{0};
  static constexpr RowOut kY{0};
};
struct ReduceRows {  // kSum, kMax, kNormSquared
  static constexpr RowIn kX{0};
  static constexpr RowOut kResult{0};  // [rows]
};

}  // namespace lockstep
