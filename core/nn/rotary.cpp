#include "core/nn/rotary.h"

#include <cmath>
#include <numbers>

#include "core/base/error.h"

namespace lockstep {

std::vector<Field> fields(RopeOptions& o) {
  return {
      field("rope_theta", o.theta, "base of the rotary embedding: its longest wavelength is about 2 pi rope_theta")
          .with_unit("positions")
          .at_least(1),
      enum_field("rope_scaling", o.scaling,
                 {{"none", RopeScaling::kNone}, {"linear", RopeScaling::kLinear}, {"llama3", RopeScaling::kLlama3}},
                 "how frequencies are lowered for texts longer than those of the training before: not at all, all of "
                 "them, or the low ones as Llama 3.1 does"),
      field("rope_factor", o.factor, "what rope_scaling divides frequencies by").at_least(1),
      field("rope_low_factor", o.low_factor,
            "llama3: wavelengths above rope_context / rope_low_factor are divided by rope_factor")
          .with_range(1e-6, 1e6),
      field("rope_high_factor", o.high_factor, "llama3: wavelengths below rope_context / rope_high_factor stay")
          .with_range(1e-6, 1e6),
      field("rope_context", o.context, "llama3: longest text of the training before").with_unit("tokens").at_least(1)};
}

std::vector<double> rope_frequencies(const RopeOptions& o, int64_t dim) {
  require(o.scaling != RopeScaling::kLlama3 || o.low_factor < o.high_factor, ExitCode::kConfig,
          "model.rope_low_factor: ", o.low_factor, " must be below model.rope_high_factor: ", o.high_factor);
  const auto context = static_cast<double>(o.context);
  std::vector<double> out;
  for (int64_t i = 0; i < dim / 2; ++i) {
    double f = std::pow(o.theta, -2.0 * static_cast<double>(i) / static_cast<double>(dim));
    if (o.scaling == RopeScaling::kLinear) f /= o.factor;
    if (o.scaling == RopeScaling::kLlama3) {
      const double wavelength = 2 * std::numbers::pi / f;
      if (wavelength > context / o.low_factor) {
        f /= o.factor;
      } else if (wavelength >= context / o.high_factor) {
        const double kept = (context / wavelength - o.low_factor) / (o.high_factor - o.low_factor);
        f = (1 - kept) * f / o.factor + kept * f;
      }
    }
    out.push_back(f);
  }
  return out;
}

}  // namespace lockstep
