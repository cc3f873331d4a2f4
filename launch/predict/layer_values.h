// LayerValues: what a module of the model gave for samples, in the place of what the model predicts: features of
// images, rows or texts. Sets the module's observer for as long as it lives; used by the thread that runs the model.
#pragma once

#include <memory>
#include <string>

#include "core/nn/module.h"
#include "launch/predict/predicted_values.h"

namespace lockstep {

// Which values a text has of a module that gives each token some: their mean over its tokens, or those of one token.
enum class Pooling : uint8_t { kMean, kFirst, kLast };

// Of the module called `layer` in `model`, which must live as long. encode() takes the module's last result and, of
// rows of tokens, pools the values of those that are a text's own, in 64 bits; the tensor `output` is not read. Before
// the first encode() the shape is not known. Throws ExitCode::kUsage where the model has no such module, and from
// encode() where the module is not called, or does not give each sample its own values.
std::unique_ptr<PredictedValues> layer_values(Module& model, const std::string& layer, Pooling pooling);

}  // namespace lockstep
