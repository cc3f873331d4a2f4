// What the source files of the architectures share. Plain functions.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/interop/hf_family.h"
#include "core/nn/transformer_block.h"

namespace lockstep {

using OptionValues = std::vector<std::pair<std::string, JsonValue>>;  // HfModel::options
OptionValues values_of(const std::vector<Field>& fields);
// The values of an options struct as they go into the configuration, but for those of `left`, which are the user's own.
// Throws kBadData where one is out of its range.
OptionValues option_values(std::vector<Field> fields, const HfConfig& config,
                           const std::vector<std::string>& left = {});
// Sets each of `to` to the value of the field in `from` with its key.
void copy_options(const std::vector<Field>& from, std::vector<Field> to);

// A linear layer or norm, as "NAME.weight" and, where it has one, "NAME.bias"; `from`: theirs, without the last part.
struct HfLayers {
  std::vector<HfTensor>& out;
  void weight(const std::string& ours, std::vector<std::string> from,
              HfTensor::Layout layout = HfTensor::Layout::kSame) const {
    for (std::string& name : from) name += ".weight";
    out.push_back({str("parameters/", ours, ".weight"), std::move(from), layout});
  }
  void both(const std::string& ours, std::vector<std::string> from,
            HfTensor::Layout layout = HfTensor::Layout::kSame) const {
    weight(ours, from, layout);
    for (std::string& name : from) name += ".bias";
    out.push_back({str("parameters/", ours, ".bias"), std::move(from)});
  }
};

// Of encoders: gelu in one of its forms, and a hidden layer of four times the width.
GeluForm gelu_of(const HfConfig& config, std::string_view key = "hidden_act");
std::string gelu_text(GeluForm gelu);
void need_four_widths(const HfConfig& config, int64_t width);
Shape image_of(const HfConfig& config);                // [height, width, channels]
int64_t labels_of(const HfConfig& config);             // of a classifier
void add_labels(JsonObject& config, int64_t classes);  // "id2label" and "label2id"

// Refuses keys that change results whatever the architecture: quantised weights, cross-attention and the like.
void need_plain(const HfConfig& config);

}  // namespace lockstep
