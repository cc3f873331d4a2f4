// The lockstep program with one more model: `own_model train own_model.yaml`, with every command, option and number of
// ranks.
#include "lockstep/lockstep.h"

using namespace lockstep;

namespace {

// Its options are keys of the YAML file: model.name: gated, model.width: 64, ...
struct GatedOptions {
  int64_t width = 64, blocks = 2;
  double dropout = 0;
};

std::vector<Field> fields(GatedOptions& o) {
  return {field("width", o.width, "features of each block").with_unit("features").at_least(1),
          field("blocks", o.blocks, "gated blocks").with_range(1, 100),
          field("dropout", o.dropout, "probability of dropping a feature of a block").with_range(0, 0.99)};
}

// x + down(relu(gate(x)) * up(x)), after a norm
class GatedBlock : public ModuleOf<Tensor> {
 public:
  explicit GatedBlock(const GatedOptions& o)
      : norm_(child<LayerNorm>("norm", o.width)),
        gate_(child<Linear>("gate", o.width, 2 * o.width)),
        up_(child<Linear>("up", o.width, 2 * o.width)),
        down_(child<Linear>("down", 2 * o.width, o.width)),
        dropout_(child<Dropout>("dropout", o.dropout)),
        scale_(parameter("scale", {o.width}, Init::constant(0.5))) {}

  Tensor forward(const Tensor& x) override {
    Tensor h = norm_(x);
    return x + scale_ * dropout_(down_(relu(gate_(h)) * up_(h)));
  }

 private:
  LayerNorm& norm_;
  Linear &gate_, &up_, &down_;
  Dropout& dropout_;
  Tensor& scale_;  // [width]
};

// Classifies samples of any shape; the loss is cross-entropy where a Model does not say otherwise.
class Gated : public Model {
 public:
  Gated(const GatedOptions& o, const TaskSpec& task) : stem_(child<Linear>("stem", task.input.numel(), o.width)) {
    for (int64_t i = 0; i < o.blocks; ++i) blocks_.push_back(&child<GatedBlock>(str("blocks.", i), o));
    head_ = &child<Linear>("head", o.width, task.classes);
  }

  Tensor forward(const Tensor& x) override {  // [B, ...] -> [B, classes]
    Tensor h = stem_(reshape(x, {x.dim(0), -1}));
    for (GatedBlock* block : blocks_) h = (*block)(h);
    return (*head_)(h);
  }

 private:
  Linear& stem_;
  std::vector<GatedBlock*> blocks_;
  Linear* head_ = nullptr;
};

}  // namespace

int main(int argc, char** argv) {
  App app = builtin();
  app.models.push_back(model_choice<Gated, GatedOptions>("gated"));
  return run_program(argc, argv, app);
}
