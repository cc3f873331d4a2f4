#include "core/ops/ops.h"
#include "core/tensor/raw_ops.h"

namespace lockstep {

Tensor embedding(const Tensor& table, const Tensor& index, Place place) {
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
  current_stream().enqueue([a](Parallel& p) {
    for (int64_t i = 0; i < a.rows; ++i)
      if (a.index[i] < 0 || a.index[i] >= a.table_rows)
        throw Error(ExitCode::kBadData,
                    cat("embedding: index ", a.index[i], " at position ", i, " is outside the table's ", a.table_rows,
                        " rows; check the data against the model's vocabulary"));
    kernels().gather(p, a);
  });
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
    current_stream().enqueue([b](Parallel& p) { kernels().scatter_add(p, b); });
  });
}

}  // namespace lockstep
