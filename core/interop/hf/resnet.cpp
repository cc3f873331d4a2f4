// ResNet with its classifier.
#include "core/models/resnet.h"
#include "core/interop/hf/shared.h"

namespace lockstep {
namespace {

struct Stages {
  int64_t depth;
  std::vector<int64_t> blocks;
  bool bottleneck;
};
const std::vector<Stages>& stages() {
  static const std::vector<Stages> all{{18, {2, 2, 2, 2}, false},
                                       {34, {3, 4, 6, 3}, false},
                                       {50, {3, 4, 6, 3}, true},
                                       {101, {3, 4, 23, 3}, true},
                                       {152, {3, 8, 36, 3}, true}};
  return all;
}

// Channels after each stage.
std::vector<int64_t> channels_of(int64_t width, const Stages& s) {
  std::vector<int64_t> out;
  for (int stage = 0; stage < 4; ++stage) out.push_back((width << stage) * (s.bottleneck ? 4 : 1));
  return out;
}

void name_resnet_tensors(const Stages& s, HfModel& m) {
  const HfLayers layers{m.tensors};
  const auto layer = [&](const std::string& conv, const std::string& norm, const std::string& theirs) {
    layers.weight(conv, {theirs + ".convolution"}, HfTensor::Layout::kChannelsLast);
    layers.both(norm, {theirs + ".normalization"});
    for (const char* average : {".running_mean", ".running_var"})
      m.tensors.push_back({str("buffers/", norm, average), {str(theirs, ".normalization", average)}});
  };
  layer("conv1", "bn1", "resnet.embedder.embedder");
  for (size_t stage = 0; stage < 4; ++stage)
    for (int64_t i = 0; i < s.blocks[stage]; ++i) {
      const std::string ours = str("layer", stage + 1, ".", i, "."),
                        theirs = str("resnet.encoder.stages.", stage, ".layers.", i, ".");
      const int convolutions = s.bottleneck ? 3 : 2;
      for (int k = 0; k < convolutions; ++k)
        layer(str(ours, "conv", k + 1), str(ours, "bn", k + 1), str(theirs, "layer.", k));
      if (i == 0 && (stage > 0 || s.bottleneck))
        layer(ours + "downsample.0", ours + "downsample.1", theirs + "shortcut");
    }
  layers.both("fc", {"classifier.1"});
  m.ignored = {"*.num_batches_tracked"};
}

HfModel resnet_of(const HfConfig& c) {
  ResnetOptions o;
  const auto blocks = c.integers("depths", {{3, 4, 6, 3}}),
             channels = c.integers("hidden_sizes", {{256, 512, 1024, 2048}});
  const bool bottleneck = c.one_of("layer_type", {"bottleneck", "basic"}) == "bottleneck";
  o.width = c.integer("embedding_size", 64);
  const Stages* found = nullptr;
  for (const Stages& s : stages())
    if (s.blocks == blocks && s.bottleneck == bottleneck) found = &s;
  if (!found) c.refuse("depths", "and layer_type are none of ResNet 18, 34, 50, 101, 152");
  if (o.width > 4096 || channels != channels_of(o.width, *found))
    c.refuse("hidden_sizes", "other than those of a ResNet on embedding_size are not supported");
  o.depth = found->depth;
  c.one_of("hidden_act", {"relu"});
  c.need_truth("downsample_in_first_stage", false);
  if (bottleneck) c.need_truth("downsample_in_bottleneck", false);
  HfModel m;
  m.options = option_values(fields(o), c);
  m.task = {image_of(c), labels_of(c)};
  name_resnet_tensors(*found, m);
  return m;
}

HfExport resnet_export(const std::vector<Field>& options, const TaskSpec& task) {
  ResnetOptions o;
  copy_options(options, fields(o));
  const Stages* found = nullptr;
  for (const Stages& s : stages())
    if (s.depth == o.depth) found = &s;
  require(found != nullptr, ExitCode::kConfig, "model.depth: ", o.depth, " is none of 18, 34, 50, 101, 152");
  HfExport out;
  out.model.family = "resnet";
  out.model.options = values_of(fields(o));
  name_resnet_tensors(*found, out.model);
  for (const HfTensor& t : out.model.tensors)
    if (t.from[0].ends_with(".running_mean")) {
      const std::string norm = t.from[0].substr(0, t.from[0].rfind('.'));
      out.zeros.push_back({norm + ".num_batches_tracked", {}, "I64"});
    }
  const auto list = [](const std::vector<int64_t>& values) {
    return json_array(std::vector<JsonValue>(values.begin(), values.end()));
  };
  out.config = {{"architectures", json_array(std::vector<JsonValue>{std::string("ResNetForImageClassification")})},
                {"model_type", std::string("resnet")},
                {"num_channels", task.input[2]},
                {"embedding_size", o.width},
                {"hidden_sizes", list(channels_of(o.width, *found))},
                {"depths", list(found->blocks)},
                {"layer_type", std::string(found->bottleneck ? "bottleneck" : "basic")},
                {"hidden_act", std::string("relu")},
                {"downsample_in_first_stage", false},
                {"downsample_in_bottleneck", false}};
  add_labels(out.config, task.classes);
  return out;
}

}  // namespace

HfFamily resnet_family() {
  return {.types = {"resnet"},
          .model = "resnet",
          .read = resnet_of,
          .write = resnet_export,
          .use = HfUse::kImages,
          .peft = {.supported = false}};
}

}  // namespace lockstep
