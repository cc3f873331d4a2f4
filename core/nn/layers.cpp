#include "core/nn/layers.h"

#include <algorithm>
#include <cmath>

#include "core/nn/lora.h"
#include "core/tensor/raw_ops.h"

namespace lockstep {
namespace {
double bound(int64_t fan_in) { return 1.0 / std::sqrt(static_cast<double>(fan_in)); }
Tensor or_none(Tensor* t) { return t ? *t : Tensor(); }

// Input channels of a group.
int64_t of_group(int64_t in, int64_t out, int64_t groups) {
  require(groups > 0 && in % groups == 0 && out % groups == 0, ExitCode::kConfig, "a convolution of ", in, " to ", out,
          " channels cannot have ", groups, " groups: these must divide both");
  return in / groups;
}
}  // namespace

Linear::Linear(int64_t in, int64_t out, bool bias)
    : weight_(parameter("weight", {out, in}, Init::uniform(bound(in)))),
      bias_(bias ? &parameter("bias", {out}, Init::uniform(bound(in))) : nullptr) {}
Linear::Linear(int64_t in, int64_t out, bool bias, Init init)
    : weight_(parameter("weight", {out, in}, init)), bias_(bias ? &parameter("bias", {out}, Init::zeros()) : nullptr) {}

void Linear::add_adapter(const LoraShape& shape, std::string_view part) {
  const int64_t out = weight_.dim(0), in = weight_.dim(1);
  const std::vector<std::string_view> parts = part.empty() ? std::vector{part} : lora_parts(name());
  const auto count = static_cast<int64_t>(parts.size());
  const int64_t index = std::find(parts.begin(), parts.end(), part) - parts.begin();
  check(index < count && out % count == 0, name(), ": cannot have an adapter of part '", part, "'");
  const std::string prefix = part.empty() ? std::string() : str(part, ".");
  // As peft initialises them: uniform by Kaiming He with a = sqrt(5), which is within 1/sqrt(in), and zero.
  Tensor& a = parameter(str(prefix, "lora_A"), {shape.rank, in}, Init::uniform(bound(in)));
  Tensor& b = parameter(str(prefix, "lora_B"), {out / count, shape.rank}, Init::zeros());
  // Whoever reads the weights sets it (PlacedTask::load_initial).
  Tensor* magnitude = shape.dora ? &parameter(str(prefix, "lora_magnitude"), {out / count}, Init::ones()) : nullptr;
  adapters_.push_back({a,
                       b,
                       magnitude,
                       shape.scale,
                       shape.dropout,
                       str(name(), ".", prefix, "lora"),
                       {index * (out / count), (count - 1 - index) * (out / count)}});
}

// Of each row of weight + scale B A. The rows of B A are not formed: with W the weight, |W|^2 + 2 scale W A^T . B +
// scale^2 B A A^T . B.
Tensor Linear::lengths_of_rows(const Adapter& adapter) const {
  NoGrad no_grad;
  const Tensor a = adapter.a.detach(), b = adapter.b.detach();
  const int64_t first = adapter.around.before, rows = b.dim(0), in = a.dim(1);
  Tensor weight = weight_.detach();
  if (is_coded(weight.dtype())) weight = raw::cast(weight, a.dtype());
  weight = raw::contiguous(weight.slice(0, first, first + rows));
  const Tensor squares = Tensor::empty({rows}, DType::kFloat64);
  RowArgs r;
  r.rows = rows, r.cols = in;
  r[ReduceRows::kX] = raw::rows_of(weight, in);
  r[ReduceRows::kResult] = raw::write_one_per_row(squares);
  raw::row(RowOp::kNormSquared, r);
  const DType wide = raw::statistics_type(a);
  const auto widened = [&](const Tensor& t) { return raw::cast(t, wide); };
  const Tensor cross = widened(linear(weight, a)), own = widened(linear(b, linear(a, a)));
  const Tensor both = add(affine(cross, 2 * adapter.scale), affine(own, adapter.scale * adapter.scale));
  return sqrt(add(widened(squares), sum(mul(both, widened(b)), {1})));
}

// `y`: x W^T.
Tensor Linear::change_by(const Adapter& adapter, const Tensor& x, const Tensor& y) const {
  const bool drops = training() && adapter.dropout > 0;
  const Tensor seen = drops ? dropout(x, adapter.dropout, random_site(adapter.site)) : x;
  const Tensor change = affine(linear(linear(seen, adapter.a), adapter.b), adapter.scale);
  if (!adapter.magnitude) return change;
  const Tensor whole = drops ? linear(seen, weight_) : y;
  const int64_t first = adapter.around.before, end = first + change.dim(-1);
  const Tensor own =
      change.dim(-1) < whole.dim(-1) ? slice(whole, static_cast<int>(whole.rank()) - 1, first, end) : whole;
  const Tensor lengths = lengths_of_rows(adapter);
  const Tensor factor = div(cast(*adapter.magnitude, lengths.dtype()), lengths);
  return add(mul(own, cast(affine(factor, 1, -1), own.dtype())), mul(change, cast(factor, change.dtype())));
}

Tensor Linear::forward(const Tensor& x) {
  const bool dora = std::any_of(adapters_.begin(), adapters_.end(), [](auto& a) { return a.magnitude != nullptr; });
  const Tensor product = dora ? linear(x, weight_) : Tensor();  // without the bias
  Tensor y = dora ? (bias_ ? add(product, *bias_) : product) : linear(x, weight_, bias());
  for (const Adapter& adapter : adapters_) {
    Tensor change = change_by(adapter, x, product);
    if (change.dim(-1) < y.dim(-1)) {
      std::vector<Padding> around(static_cast<size_t>(change.rank()));
      around.back() = adapter.around;
      change = pad(change, around);
    }
    y = add(y, change);
  }
  return y;
}

Tensor feed_forward(const Tensor& x, Linear& up, Linear& down) {
  const bool coded = is_coded(up.weight().dtype()) || is_coded(down.weight().dtype());
  if (up.has_adapter() || down.has_adapter() || coded) return down(gelu(up(x)));
  return feed_forward(x, up.weight(), up.bias(), down.weight(), down.bias());
}

LayerNorm::LayerNorm(int64_t width, bool bias, double eps)
    : weight_(parameter("weight", {width}, Init::ones())),
      bias_(bias ? &parameter("bias", {width}, Init::zeros()) : nullptr),
      eps_(eps) {}
Tensor LayerNorm::forward(const Tensor& x) { return layer_norm(x, weight_, or_none(bias_), eps_); }

AddLayerNorm LayerNorm::of_sum(const Tensor& a, const Tensor& b) {
  AddLayerNorm out;
  out.y = surrounded([&] {
    out = add_layer_norm(a, b, weight_, or_none(bias_), eps_);
    return out.y;
  });
  return out;
}

RmsNorm::RmsNorm(int64_t width, double eps, bool from_one)
    : weight_(parameter("weight", {width}, from_one ? Init::zeros() : Init::ones())), eps_(eps), from_one_(from_one) {}
Tensor RmsNorm::forward(const Tensor& x) {
  // In the type of statistics: 1 + w has more digits than w.
  return rms_norm(x, from_one_ ? affine(cast(weight_, raw::statistics_type(weight_)), 1, 1) : weight_, eps_);
}

Embedding::Embedding(int64_t count, int64_t width, Init init) : weight_(table("weight", {count, width}, init)) {}
void Embedding::add_adapter(const LoraShape& shape) {
  // As peft initialises them.
  a_ = &table("lora_embedding_A", {weight_.dim(0), shape.rank}, Init::zeros());
  b_ = &parameter("lora_embedding_B", {weight_.dim(1), shape.rank}, Init::normal(1));
  scale_ = shape.scale;
}
Tensor Embedding::forward(const Tensor& index) {
  Tensor y = embedding(weight_, index);
  if (a_) y = add(y, affine(linear(embedding(*a_, index), *b_), scale_));
  if (noise_ == 0 || !training()) return y;
  const double bound = noise_ / std::sqrt(static_cast<double>(y.dim(-2) * y.dim(-1)));
  return add(y, affine(uniform(y.shape(), random_site(str(name(), ".noise")), y.dtype()), bound));
}

Conv2d::Conv2d(int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation,
               int64_t groups)
    : Conv2d(in, out, kernel, stride, padding, Init::uniform(bound(kernel * kernel * of_group(in, out, groups))),
             dilation, groups) {
  bias_ = &parameter("bias", {out}, Init::uniform(bound(kernel * kernel * of_group(in, out, groups))));
}
Conv2d::Conv2d(int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t padding, Init init, int64_t dilation,
               int64_t groups)
    : options_{stride, padding, dilation, groups},
      weight_(parameter("weight", {out, kernel, kernel, of_group(in, out, groups)}, init)),
      bias_(nullptr) {}
Tensor Conv2d::forward(const Tensor& x) { return conv2d(x, weight_, or_none(bias_), options_); }

ConvTranspose2d::ConvTranspose2d(int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t padding)
    : weight_(parameter("weight", {in, kernel, kernel, out}, Init::uniform(bound(kernel * kernel * out)))),
      bias_(parameter("bias", {out}, Init::uniform(bound(kernel * kernel * out)))),
      stride_(stride),
      padding_(padding) {}
Tensor ConvTranspose2d::forward(const Tensor& x) { return conv_transpose2d(x, weight_, bias_, stride_, padding_); }

BatchNorm::BatchNorm(int64_t channels, double eps, double momentum)
    : weight_(parameter("weight", {channels}, Init::ones())),
      bias_(parameter("bias", {channels}, Init::zeros())),
      mean_(buffer("running_mean", {channels}, 0, momentum)),
      variance_(buffer("running_var", {channels}, 1, momentum)),
      eps_(eps) {}

Tensor BatchNorm::operator()(const Tensor& x, bool relu, const Tensor& addend) {
  return surrounded([&] { return normalised(x, relu, addend); });
}

Tensor BatchNorm::normalised(const Tensor& x, bool relu, const Tensor& addend) {
  BatchNormOptions options{.eps = eps_, .relu = relu, .addend = addend, .fixed_mean = {}, .fixed_variance = {}};
  if (!training()) {
    options.fixed_mean = mean_.value, options.fixed_variance = variance_.value;
    return batch_norm(x, weight_, bias_, options).y;
  }
  require(x.numel() > weight_.numel(), ExitCode::kConfig, "module ", name(), ": batch norm of ", x,
          ": one value a channel has no variance; use a larger batch.micro, or larger images");
  const BatchNormed out = batch_norm(x, weight_, bias_, options);
  mean_.update = out.mean, variance_.update = out.variance;
  return out.y;
}

GroupNorm::GroupNorm(int64_t groups, int64_t channels, double eps)
    : groups_(groups),
      weight_(parameter("weight", {channels}, Init::ones())),
      bias_(parameter("bias", {channels}, Init::zeros())),
      eps_(eps) {
  require(groups > 0 && channels % groups == 0, ExitCode::kConfig, "group norm of ", groups,
          " groups, which do not divide its ", channels, " channels");
}
Tensor GroupNorm::forward(const Tensor& x) { return group_norm(x, groups_, weight_, bias_, eps_); }

Recurrent::Recurrent(int64_t in, int64_t hidden, const Options& o) : cell_(o.cell), bidirectional_(o.bidirectional) {
  const int64_t gates = (o.cell == Cell::kLstm ? 4 : 3) * hidden;
  const Init init = Init::uniform(bound(hidden));
  for (int64_t layer = 0; layer < o.layers; ++layer) {
    const int64_t from = layer == 0 ? in : hidden * (o.bidirectional ? 2 : 1);
    for (const char* direction : {"", "reverse."}) {
      if (*direction && !o.bidirectional) continue;
      const std::string at = str(layer, ".", direction);
      weights_.push_back({parameter(at + "weight_ih", {gates, from}, init),
                          parameter(at + "weight_hh", {gates, hidden}, init), parameter(at + "bias_ih", {gates}, init),
                          parameter(at + "bias_hh", {gates}, init)});
    }
    if (layer + 1 < o.layers) dropouts_.push_back(&child<Dropout>(str(layer, ".drop"), o.dropout));
  }
}

Tensor Recurrent::forward(const Tensor& x) {
  Tensor h = x;
  const size_t directions = bidirectional_ ? 2 : 1;
  for (size_t i = 0; i < weights_.size(); i += directions) {
    const auto run = [&](const Weights& w, bool reverse) {
      return recurrent(cell_, h, w.ih, w.hh, w.bias_ih, w.bias_hh, reverse);
    };
    h = bidirectional_ ? concat({run(weights_[i], false), run(weights_[i + 1], true)}, -1) : run(weights_[i], false);
    if (i / directions < dropouts_.size()) h = (*dropouts_[i / directions])(h);
  }
  return h;
}

Tensor Dropout::forward(const Tensor& x) { return training() && p_ > 0 ? dropout(x, p_, random_site(name())) : x; }

}  // namespace lockstep
