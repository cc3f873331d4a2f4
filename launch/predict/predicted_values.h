// PredictedValues: what the output of a run's model means: probabilities of classes, a number in its own unit, how
// probable a text is, or a mask. It is encoded on the rank that computed it, and told on the rank that writes. Objects
// without state that changes, which ranks of a process share; but see layer_values.h.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/shape.h"
#include "core/io/json.h"
#include "core/tensor/batch.h"
#include "data/samples/schema.h"

namespace lockstep {

class PredictedValues {
 public:
  virtual ~PredictedValues() = default;
  // The samples' values, each of bytes() bytes. Throws ExitCode::kConfig for an output that is none of these.
  virtual std::string encode(const Tensor& output, const Batch& batch) = 0;
  virtual size_t bytes() const = 0;
  // Those of a sample that came in several parts, one behind the other.
  virtual std::string joined(std::string_view parts) const { return std::string(parts); }

  // Names and values in a table: texts, or the shortest digits that name a number.
  virtual std::vector<std::string> names() const = 0;
  virtual JsonObject told(std::string_view sample) const = 0;
  // The same in a line of JSON.
  virtual std::vector<std::string> json_names() const { return names(); }
  virtual JsonObject json(std::string_view sample) const { return told(sample); }
  // Of values that are pictures, which no table holds: a PNG file.
  virtual bool is_picture() const { return false; }
  virtual std::string png(std::string_view sample) const { return {}; }

  // As an array of NumPy: kind and bytes of an element, "f4", the shape of a sample, and its elements.
  virtual std::string array_type() const { return "f4"; }
  virtual Shape array_shape() const = 0;
  virtual std::string elements(std::string_view sample) const { return std::string(sample); }
};

struct PredictedClasses {
  int64_t top = 1;  // how many classes are told, the most probable first; 0: each of them, in their order
  // Of masks: red, green and blue of each; empty: colour_of (data/images/class_colour.h).
  std::vector<std::array<uint8_t, 3>> colours = {};
};

// Of a run that was trained on such data, samples of the shape `input`. Throws ExitCode::kUsage where its model
// predicts nothing of a sample.
std::unique_ptr<PredictedValues> predicted_values(const DataSchema& schema, const Shape& input,
                                                  const PredictedClasses& classes);

// The fewest digits that name it, of its 32 bits or 64; null where it is not finite.
JsonValue told_number(float value);
JsonValue told_number(double value);

}  // namespace lockstep
