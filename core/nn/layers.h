// The layers that models are built from. Weights are named as elsewhere in the field: weight, bias.
// Each owns its parameters.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/nn/module.h"
#include "core/ops/ops.h"

namespace lockstep {

class Dropout;

// Of one low-rank adapter (core/nn/lora.h).
struct LoraShape {
  int64_t rank = 0;
  double scale = 1, dropout = 0;
  bool dora = false;
};

// y = x weight^T + bias; weight [out, in]
class Linear : public ModuleOf<Tensor> {
 public:
  // Without `init`: uniform within 1/sqrt(in), the bias too; with it, the bias starts at 0.
  Linear(int64_t in, int64_t out, bool bias = true);
  Linear(int64_t in, int64_t out, bool bias, Init init);
  Tensor forward(const Tensor& x) override;  // [..., in] -> [..., out]
  // Adds a low-rank adapter (core/nn/lora.h), as parameters lora_A and lora_B of this module; or of one of lora_parts()
  // it, as PART.lora_A and PART.lora_B, which may be called for several; with dora also lora_magnitude. Before they are
  // placed.
  void add_adapter(const LoraShape& shape, std::string_view part = {});
  bool has_adapter() const { return !adapters_.empty(); }
  // Its outputs are no equal parts one after the other, whatever its name: lora_parts() are none of it.
  void set_undivided() { undivided_ = true; }
  bool undivided() const { return undivided_; }
  // For operations that span layers (feed_forward below), in the forward() of the module that holds this one. A model,
  // the root of the tree, must not use them: each of its children is sharded by itself, and outside a child's
  // operator() its weights may have no bytes. Put such layers into a module in between, such as TransformerBlock.
  const Tensor& weight() const { return weight_; }
  // The result of `use` with the weight, in the place of operator(): for the layer of a model's root.
  Tensor with_weight(const std::function<Tensor(const Tensor& weight)>& use) {
    return surrounded([&] { return use(weight_); }, false);
  }
  Tensor bias() const { return bias_ ? *bias_ : Tensor(); }  // undefined where there is none

 private:
  struct Adapter {
    Tensor &a, &b;
    Tensor* magnitude;  // null without dora
    double scale, dropout;
    std::string site;  // of its random numbers
    Padding around;    // the outputs of other parts
  };
  Tensor change_by(const Adapter& adapter, const Tensor& x, const Tensor& y) const;
  Tensor lengths_of_rows(const Adapter& adapter) const;
  Tensor& weight_;
  Tensor* bias_;
  std::vector<Adapter> adapters_;
  bool undivided_ = false;
};

// down(gelu(up(x))), with gelu's tanh form: in one operation unless a layer has an adapter.
Tensor feed_forward(const Tensor& x, Linear& up, Linear& down);

class LayerNorm : public ModuleOf<Tensor> {
 public:
  explicit LayerNorm(int64_t width, bool bias = true, double eps = 1e-5);
  Tensor forward(const Tensor& x) override;
  // operator()(a + b) in one pass, and the sum. It saves no more than set_recompute() would.
  AddLayerNorm of_sum(const Tensor& a, const Tensor& b);

 private:
  Tensor& weight_;
  Tensor* bias_;
  double eps_;
};

class RmsNorm : public ModuleOf<Tensor> {
 public:
  // `from_one`: the weight is what is added to 1, as in Gemma, and begins as 0.
  explicit RmsNorm(int64_t width, double eps = 1e-5, bool from_one = false);
  Tensor forward(const Tensor& x) override;

 private:
  Tensor& weight_;
  double eps_;
  bool from_one_;
};

class Embedding : public ModuleOf<Tensor> {
 public:
  Embedding(int64_t count, int64_t width, Init init);
  Tensor forward(const Tensor& index) override;  // int32 [...] -> [..., width]
  const Tensor& weight() const { return weight_; }
  bool self_contained() const override { return false; }  // weight() serves tied heads
  bool may_be_apart() const override { return untied_; }
  // The model's head has a weight of its own.
  void set_untied() { untied_ = true; }
  // Adds a low-rank adapter, as parameters lora_embedding_A and lora_embedding_B of this module; dropout and dora have
  // no effect. Before they are placed. weight() is without it.
  void add_adapter(const LoraShape& shape);
  // Whether its tokens are looked up by operator(); other tables are read through weight() alone.
  void set_called() { called_ = true; }
  bool is_called() const { return called_; }
  // In training, uniform noise within alpha / sqrt(T width) is added to rows of T (NEFTune, Jain et al. 2023).
  void set_noise(double alpha) { noise_ = alpha; }

 private:
  Tensor& weight_;
  bool untied_ = false, called_ = false;
  double noise_ = 0, scale_ = 1;
  Tensor *a_ = nullptr, *b_ = nullptr;
};

// 3x3 and the like, on images [B, H, W, C]; weight [out, k, k, in / groups]. Groups must divide in and out
// (ExitCode::kConfig).
class Conv2d : public ModuleOf<Tensor> {
 public:
  // With a bias, and uniform within 1/sqrt(in k k / groups); or without one.
  Conv2d(int64_t in, int64_t out, int64_t kernel, int64_t stride = 1, int64_t padding = 0, int64_t dilation = 1,
         int64_t groups = 1);
  Conv2d(int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t padding, Init init, int64_t dilation = 1,
         int64_t groups = 1);
  Tensor forward(const Tensor& x) override;

 private:
  ConvOptions options_;
  Tensor& weight_;
  Tensor* bias_;
};

// weight [in, k, k, out]
class ConvTranspose2d : public ModuleOf<Tensor> {
 public:
  ConvTranspose2d(int64_t in, int64_t out, int64_t kernel, int64_t stride = 1, int64_t padding = 0);
  Tensor forward(const Tensor& x) override;

 private:
  Tensor &weight_, &bias_;
  int64_t stride_, padding_;
};

// Batch norm of [..., channels] by the statistics of the micro-batch in training, by their running averages otherwise.
// Statistics are those of one micro-batch, so results depend on batch.micro, and on nothing else of the layout.
class BatchNorm : public ModuleOf<Tensor> {
 public:
  // momentum: of each micro-batch's statistics in the running averages.
  explicit BatchNorm(int64_t channels, double eps = 1e-5, double momentum = 0.1);
  Tensor forward(const Tensor& x) override { return normalised(x, false, {}); }
  // operator()(x), then + addend where it is defined, then relu where asked for, in one pass.
  Tensor operator()(const Tensor& x) { return ModuleOf::operator()(x); }
  Tensor operator()(const Tensor& x, bool relu, const Tensor& addend = {});

 private:
  Tensor normalised(const Tensor& x, bool relu, const Tensor& addend);

  Tensor &weight_, &bias_;
  Buffer &mean_, &variance_;
  double eps_;
};

// Of [B, ..., channels], by the statistics of each sample's groups of neighbouring channels (group_norm). Groups must
// divide the channels (ExitCode::kConfig).
class GroupNorm : public ModuleOf<Tensor> {
 public:
  GroupNorm(int64_t groups, int64_t channels, double eps = 1e-5);
  Tensor forward(const Tensor& x) override;

 private:
  int64_t groups_;
  Tensor &weight_, &bias_;
  double eps_;
};

// Layers of LSTM or GRU cells on [B, T, in]: [B, T, hidden], or, in both directions, [B, T, 2 hidden]; dropout between
// them. Parameters of layer L: "L.weight_ih" and so on, and of its other direction "L.reverse.weight_ih".
class Recurrent : public ModuleOf<Tensor> {
 public:
  struct Options {
    Cell cell = Cell::kLstm;
    int64_t layers = 1;
    bool bidirectional = false;
    double dropout = 0;
  };
  Recurrent(int64_t in, int64_t hidden, const Options& options);
  Tensor forward(const Tensor& x) override;

 private:
  struct Weights {
    Tensor &ih, &hh, &bias_ih, &bias_hh;
  };
  Cell cell_;
  bool bidirectional_;
  std::vector<Weights> weights_;
  std::vector<Dropout*> dropouts_;
};

// One layer, or several, of one kind of cells.
class Lstm : public Recurrent {
 public:
  Lstm(int64_t in, int64_t hidden, int64_t layers = 1, bool bidirectional = false, double dropout = 0)
      : Recurrent(in, hidden, {Cell::kLstm, layers, bidirectional, dropout}) {}
};
class Gru : public Recurrent {
 public:
  Gru(int64_t in, int64_t hidden, int64_t layers = 1, bool bidirectional = false, double dropout = 0)
      : Recurrent(in, hidden, {Cell::kGru, layers, bidirectional, dropout}) {}
};

class Dropout : public ModuleOf<Tensor> {
 public:
  explicit Dropout(double p) : p_(p) {}
  Tensor forward(const Tensor& x) override;

 private:
  double p_;
};

}  // namespace lockstep
