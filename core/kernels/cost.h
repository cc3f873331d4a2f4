// What a kernel does, counted from its arguments for traces (core/base/trace.h): each operand's bytes once, and the
// floating-point operations of products, convolutions and attention. Plain functions.
#pragma once

#include "core/base/trace.h"
#include "core/kernels/args.h"
#include "core/kernels/cell.h"
#include "core/kernels/pointwise.h"
#include "core/kernels/resample.h"
#include "core/kernels/rows.h"

namespace lockstep {

TaskCost cost_of(PointwiseOp op, const PointwiseArgs& a);
TaskCost cost_of(RowOp op, const RowArgs& a);
TaskCost cost_of(const PointwiseArgs& a);  // an optimizer's update
TaskCost cost_of(const ColumnArgs& a);
TaskCost cost_of(const NormColumnsArgs& a);
TaskCost cost_of(const ChannelSumsArgs& a);
TaskCost cost_of(const GatherArgs& a);
TaskCost cost_of(const GemmArgs& a);
TaskCost cost_of(const ConvArgs& a);
TaskCost cost_of(const PoolArgs& a);
TaskCost cost_of(const ResampleArgs& a);
TaskCost cost_of(const RotaryArgs& a);
TaskCost cost_of(const AttentionArgs& a);  // what mask and window leave; the backward pass where there is a dq
TaskCost cost_of(const RecurrentArgs& a);
// Kernels over a few values.
template <class Args>
TaskCost cost_of(const Args&) {
  return {};
}

}  // namespace lockstep
