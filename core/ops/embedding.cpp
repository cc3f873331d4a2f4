#include "core/ops/ops.h"
#include "core/tensor/raw_ops.h"

namespace lockstep {

Tensor embedding(const Tensor& table, const Tensor& index, CallSite place) {
  const TraceOp op("embedding");
  check(table.rank() == 2 && table.is_contiguous() && index.dtype() == DType::kInt32 && index.is_contiguous(),
        "embedding: table ", table, " (contiguous), index ", index, " (int32, contiguous)");
  Shape out = index.shape();
  out.push_back(table.dim(1));
  Tensor y = Tensor::empty(out, table.dtype());
  GatherArgs a;
  a.rows = index.numel(), a.cols = table.dim(1), a.table_rows = table.dim(0);
  a.table = const_cast<void*>(table.read()), a.table_dtype = table.dtype();
  a.index = static_cast<const int32_t*>(index.read());
  a.rows_data = y.write(), a.rows_dtype = y.dtype();
  raw::check_indices(index, a.table_rows, IndexCheckArgs::Use::kEmbedding);
  raw::launch([](Parallel& p, const GatherArgs& args) { kernels(p).gather(p, args); }, a);
  return result_of("embedding", place, y, {&table}, [index = Saved(index)](const Tensor& gradient, Gradients& grads) {
    const Tensor g = raw::contiguous(gradient);
    const Tensor& rows = index.get("embedding");
    bool accumulate = false;
    Tensor dtable = grads.target(0, accumulate);  // a tied head's gradient may be there already
    if (!accumulate) raw::fill(dtable, 0);
    GatherArgs b;
    b.rows = rows.numel(), b.cols = dtable.dim(1), b.table_rows = dtable.dim(0);
    b.index = static_cast<const int32_t*>(rows.read());
    b.rows_data = const_cast<void*>(g.read()), b.rows_dtype = g.dtype();
    b.table = dtable.write(), b.table_dtype = dtable.dtype();
    raw::launch([](Parallel& p, const GatherArgs& args) { kernels(p).scatter_add(p, args); }, b);
  });
}

}  // namespace lockstep
