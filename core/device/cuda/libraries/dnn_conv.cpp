#include "core/device/cuda/kernels/patch_conv.h"
#include "core/device/cuda/libraries/dnn_graphs.h"
#include "core/kernels/kernels.h"

namespace lockstep::cuda {

using namespace dnn;

namespace {

struct ConvSizes {
  explicit ConvSizes(const ConvArgs& a)
      : x{a.images, a.in_channels, a.height, a.width},
        weight{a.out_channels, a.in_channels / a.groups, a.kernel_h, a.kernel_w},
        y{a.images, a.out_channels, a.out_height, a.out_width} {}
  Sizes x, weight, y;  // in cuDNN's order, which is not that of memory; it infers groups from the channels
};
int64_t count(const Sizes& s) { return s[0] * s[1] * s[2] * s[3]; }
// Channels last.
Sizes strides(const Sizes& s) { return {s[1] * s[2] * s[3], 1, s[3] * s[1], s[1]}; }

Node tensor(Graph& graph, Name name, const Sizes& sizes, DType dtype) {
  return graph.tensor(
      Tensor_attributes().set_uid(name).set_dim(sizes).set_stride(strides(sizes)).set_data_type(type_of(dtype)));
}
void make_output(const Node& node, Name name, const Sizes& sizes, DType dtype) {
  node->set_output(true).set_uid(name).set_dim(sizes).set_stride(strides(sizes)).set_data_type(type_of(dtype));
}

// All of one type: cuDNN has no engine that gives fp32 for 16-bit operands.
void describe_conv(Graph& graph, Kind kind, const ConvArgs& a, DType type) {
  const ConvSizes s(a);
  auto with = [&](auto attributes) {
    return attributes.set_padding({a.padding, a.padding})
        .set_stride({a.stride, a.stride})
        .set_dilation({a.dilation, a.dilation});
  };
  if (kind == Kind::kConvBackwardInput) {
    const Node dx = graph.conv_dgrad(tensor(graph, kY, s.y, type), tensor(graph, kWeight, s.weight, type),
                                     with(fe::graph::Conv_dgrad_attributes()));
    make_output(dx, kX, s.x, type);
  } else if (kind == Kind::kConvBackwardWeight) {
    const Node dw = graph.conv_wgrad(tensor(graph, kY, s.y, type), tensor(graph, kX, s.x, type),
                                     with(fe::graph::Conv_wgrad_attributes()));
    make_output(dw, kWeight, s.weight, type);
  } else {
    Node y = graph.conv_fprop(tensor(graph, kX, s.x, type), tensor(graph, kWeight, s.weight, type),
                              with(fe::graph::Conv_fprop_attributes()));
    if (kind == Kind::kConvWithBias) {
      y->set_dim(s.y).set_stride(strides(s.y));
      y = graph.pointwise(y, tensor(graph, kBias, {1, a.out_channels, 1, 1}, a.bias_dtype),
                          fe::graph::Pointwise_attributes().set_mode(fe::PointwiseMode_t::ADD));
    }
    make_output(y, kY, s.y, type);
  }
}

const Plan& conv_plan(CudaQueue& queue, Kind kind, const ConvArgs& a, DType type) {
  const Sums sums = is_narrow(type) || queue.allows_tf32() ? Sums::kProducts : Sums::kFp32Products;
  const Key key{static_cast<int64_t>(kind),
                static_cast<int64_t>(type) | static_cast<int64_t>(sums) << 8,
                kind == Kind::kConvWithBias ? static_cast<int64_t>(a.bias_dtype) : 0,
                a.images,
                a.height,
                a.width,
                a.in_channels,
                a.out_height,
                a.out_width,
                a.out_channels,
                a.kernel_h,
                a.kernel_w,
                a.stride,
                a.padding,
                a.dilation,
                a.groups};
  auto describe = [&](Graph& graph) { describe_conv(graph, kind, a, type); };
  auto text = [&] {
    constexpr const char* kNames[] = {"convolution", "convolution and bias", "convolution's input gradient",
                                      "convolution's weight gradient"};
    return str(kNames[static_cast<size_t>(kind)], " of ", a.images, " x ", a.height, " x ", a.width, " x ",
               a.in_channels, " with ", a.out_channels, " x ", a.kernel_h, " x ", a.kernel_w, ", stride ", a.stride,
               ", padding ", a.padding, a.dilation > 1 ? str(", dilation ", a.dilation) : "",
               a.groups > 1 ? str(", ", a.groups, " groups") : "", ", ", type,
               type == DType::kFloat32 && sums == Sums::kProducts ? ", tf32" : "");
  };
  return Dnn::of(queue).plan(key, sums, text, describe);
}

bool takes(DType a, DType b) { return a == b && (is_narrow(a) || a == DType::kFloat32); }

// out (+)= from, element by element, of possibly another type.
void finish(CudaQueue& queue, void* out, DType dtype, void* from, DType from_dtype, int64_t n, bool accumulate) {
  PointwiseArgs p;
  p.numel = n, p.dims = 1, p.sizes[0] = n;
  p.outs = 1, p.ins = accumulate ? 2 : 1;
  p.out[0] = {out, dtype, {1}};
  p.in[0] = {from, from_dtype, {1}};
  p.in[1] = p.out[0];
  queue.kernels().pointwise(queue, accumulate ? PointwiseOp::kAdd : PointwiseOp::kCopy, p);
}

void add_bias(CudaQueue& queue, const ConvArgs& a) {
  PointwiseArgs p;
  p.dims = 2, p.sizes[0] = a.images * a.out_height * a.out_width, p.sizes[1] = a.out_channels;
  p.numel = p.sizes[0] * p.sizes[1];
  p.outs = 1, p.ins = 2;
  p.out[0] = p.in[0] = {a.y, a.y_dtype, {a.out_channels, 1}};
  p.in[1] = {const_cast<void*>(a.bias), a.bias_dtype, {0, 1}};
  queue.kernels().pointwise(queue, PointwiseOp::kAdd, p);
}

// One gradient, of type `type` as its inputs are: into its memory, or by way of scratch.
bool gradient_by_dnn(CudaQueue& queue, Kind kind, const ConvArgs& a, Name name, void* gradient, DType dtype,
                     Pointers pointers, DType type) {
  const Plan& plan = conv_plan(queue, kind, a, type);
  if (!plan.graph) return false;
  const ConvSizes s(a);
  const int64_t n = count(name == kX ? s.x : s.weight);
  const bool direct = !a.accumulate && type == dtype && is_aligned(gradient);
  void* const to = direct ? gradient : queue.scratch_memory(3, n * size_of(type));
  pointers[name] = to;
  Dnn::of(queue).run(queue, plan, pointers, "a convolution's gradient");
  if (!direct) finish(queue, gradient, dtype, to, type, n, a.accumulate);
  return true;
}

}  // namespace

void conv(Parallel& parallel, const ConvArgs& a) {
  CudaQueue& queue = cuda_queue(parallel);
  const ConvSizes s(a);
  if (count(s.y) == 0) return;
  if (!takes(a.x_dtype, a.weight_dtype) || a.y_dtype != a.x_dtype) return patch_conv(parallel, a);
  const DType t = a.x_dtype;
  const bool takes_bias = a.bias && (a.bias_dtype == t || a.bias_dtype == DType::kFloat32);
  const Plan* plan = takes_bias ? &conv_plan(queue, Kind::kConvWithBias, a, t) : nullptr;
  const bool bias_inside = plan && plan->graph;
  if (!bias_inside) plan = &conv_plan(queue, Kind::kConv, a, t);
  if (!plan->graph) return patch_conv(parallel, a);
  void* const y = aligned_out(queue, a.y, count(s.y) * size_of(t), 2);
  Pointers pointers{{kX, aligned_in(queue, a.x, count(s.x) * size_of(t), 0)},
                    {kWeight, aligned_in(queue, a.weight, count(s.weight) * size_of(t), 1)},
                    {kY, y}};
  if (bias_inside) pointers[kBias] = aligned_in(queue, a.bias, a.out_channels * size_of(a.bias_dtype), 3);
  Dnn::of(queue).run(queue, *plan, pointers, "a convolution");
  if (y != a.y) queue.copy(a.y, y, count(s.y) * size_of(t));
  if (a.bias && !bias_inside) add_bias(queue, a);
}

void conv_backward_input(Parallel& parallel, const ConvArgs& a) {
  CudaQueue& queue = cuda_queue(parallel);
  const ConvSizes s(a);
  if (count(s.x) == 0) return;
  const DType t = a.y_dtype;
  if (takes(t, a.weight_dtype) && (a.x_dtype == t || a.x_dtype == DType::kFloat32)) {
    const Pointers inputs{{kY, aligned_in(queue, a.y, count(s.y) * size_of(t), 0)},
                          {kWeight, aligned_in(queue, a.weight, count(s.weight) * size_of(t), 1)}};
    if (gradient_by_dnn(queue, Kind::kConvBackwardInput, a, kX, a.x, a.x_dtype, inputs, t)) return;
  }
  patch_conv_backward_input(parallel, a);
}

void conv_backward_weight(Parallel& parallel, const ConvArgs& a) {
  CudaQueue& queue = cuda_queue(parallel);
  const ConvSizes s(a);
  const DType t = a.x_dtype;
  if (count(s.y) != 0 && takes(t, a.y_dtype) && (a.weight_dtype == t || a.weight_dtype == DType::kFloat32)) {
    const Pointers inputs{{kY, aligned_in(queue, a.y, count(s.y) * size_of(t), 0)},
                          {kX, aligned_in(queue, a.x, count(s.x) * size_of(t), 1)}};
    if (gradient_by_dnn(queue, Kind::kConvBackwardWeight, a, kWeight, a.weight, a.weight_dtype, inputs, t)) return;
  }
  patch_conv_backward_weight(parallel, a);
}

PlanThere conv_plan_on(const CardForPlans& card, const ConvArgs& a, ConvPart part) {
  constexpr Kind kKinds[] = {Kind::kConv, Kind::kConvWithBias, Kind::kConvBackwardInput, Kind::kConvBackwardWeight};
  const Sums sums = is_narrow(a.x_dtype) ? Sums::kProducts : Sums::kFp32Products;
  return plan_on(card, sums,
                 [&](Graph& graph) { describe_conv(graph, kKinds[static_cast<size_t>(part)], a, a.x_dtype); });
}

}  // namespace lockstep::cuda
