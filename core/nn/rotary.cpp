#include "core/nn/rotary.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "core/base/error.h"

namespace lockstep {

std::vector<Field> fields(RopeOptions& o) {
  return {
      field("rope_theta", o.theta, "base of the rotary embedding: its longest wavelength is about 2 pi rope_theta")
          .with_unit("positions")
          .at_least(1),
      enum_field("rope_scaling", o.scaling,
                 {{"none", RopeScaling::kNone},
                  {"linear", RopeScaling::kLinear},
                  {"llama3", RopeScaling::kLlama3},
                  {"yarn", RopeScaling::kYarn},
                  {"longrope", RopeScaling::kLongrope}},
                 "how frequencies are lowered for texts longer than those of the training before: not at all, all of "
                 "them, the low ones as Llama 3.1 or YaRN does, or each by its own factor as LongRoPE (Phi-3) does"),
      field("rope_factor", o.factor, "what rope_scaling divides frequencies by").at_least(1),
      field("rope_low_factor", o.low_factor,
            "llama3: wavelengths above rope_context / rope_low_factor are divided by rope_factor")
          .with_range(1e-6, 1e6),
      field("rope_high_factor", o.high_factor, "llama3: wavelengths below rope_context / rope_high_factor stay")
          .with_range(1e-6, 1e6),
      field("rope_context", o.context, "llama3, yarn, longrope: longest text of the training before")
          .with_unit("tokens")
          .at_least(1),
      field("rope_beta_fast", o.beta_fast, "yarn: pairs that turn more often than this in rope_context stay")
          .with_range(1e-6, 1e6)
          .without_effect_at_default(),
      field("rope_beta_slow", o.beta_slow, "yarn: pairs that turn less often than this are divided by rope_factor")
          .with_range(1e-6, 1e6)
          .without_effect_at_default(),
      field("rope_whole_pairs", o.whole_pairs, "yarn: these bounds are whole numbers of pairs")
          .without_effect_at_default(),
      field("rope_attention", o.attention,
            "yarn, longrope: what queries and keys are multiplied by; 0: 0.1 ln(rope_factor) + 1 of yarn, of longrope "
            "the root of 1 + ln(rope_factor) / ln(rope_context)")
          .with_range(0, 100)
          .without_effect_at_default(),
      field("rope_short", o.short_factors,
            "longrope: what each pair's frequency is divided by where data.context is at most rope_context")
          .with_range(1e-6, 1e6)
          .without_effect_at_default(),
      field("rope_long", o.long_factors, "longrope: and where it is longer")
          .with_range(1e-6, 1e6)
          .without_effect_at_default(),
      field("rope_by_length", o.by_length,
            "longrope: in place of data.context the longest row of a batch, with its padding, decides between the "
            "two, as in transformers")
          .without_effect_at_default()};
}

std::vector<double> rope_frequencies(const RopeOptions& o, int64_t dim, int64_t longest) {
  require(o.scaling != RopeScaling::kLlama3 || o.low_factor < o.high_factor, ExitCode::kConfig,
          "model.rope_low_factor: ", o.low_factor, " must be below model.rope_high_factor: ", o.high_factor);
  require(o.scaling != RopeScaling::kYarn || o.beta_slow < o.beta_fast, ExitCode::kConfig,
          "model.rope_beta_slow: ", o.beta_slow, " must be below model.rope_beta_fast: ", o.beta_fast);
  require(o.scaling != RopeScaling::kYarn || o.theta > 1, ExitCode::kConfig, "model.rope_theta: ", o.theta,
          " must be above 1 with model.rope_scaling: yarn");
  const bool by_pair = o.scaling == RopeScaling::kLongrope;
  for (const auto& [key, factors] : {std::pair{"rope_short", &o.short_factors}, {"rope_long", &o.long_factors}}) {
    require(by_pair || factors->empty(), ExitCode::kConfig, "model.", key,
            " has an effect only with model.rope_scaling: longrope");
    require(!by_pair || std::ssize(*factors) == dim / 2, ExitCode::kConfig, "model.", key, ": ", factors->size(),
            " factors for the ", dim / 2, " pairs of a head that are turned");
  }
  require(by_pair || !o.by_length, ExitCode::kConfig,
          "model.rope_by_length has an effect only with model.rope_scaling: longrope");
  require(!by_pair || o.context > 1, ExitCode::kConfig, "model.rope_context: ", o.context, " must be above 1");
  const std::vector<double>& of_pairs = longest > o.context ? o.long_factors : o.short_factors;
  const auto context = static_cast<double>(o.context);
  // The pair that turns so many times in `context`.
  const auto pair_of = [&](double turns) {
    return static_cast<double>(dim) * std::log(context / (turns * 2 * std::numbers::pi)) / (2 * std::log(o.theta));
  };
  double low = pair_of(o.beta_fast), high = pair_of(o.beta_slow);
  if (o.whole_pairs) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0), high = std::min(high, static_cast<double>(dim - 1));
  if (low == high) high += 0.001;
  std::vector<double> out;
  for (int64_t i = 0; i < dim / 2; ++i) {
    double f = std::pow(o.theta, -2.0 * static_cast<double>(i) / static_cast<double>(dim));
    if (o.scaling == RopeScaling::kLinear) f /= o.factor;
    if (by_pair) f /= of_pairs[static_cast<size_t>(i)];
    if (o.scaling == RopeScaling::kLlama3) {
      const double wavelength = 2 * std::numbers::pi / f;
      if (wavelength > context / o.low_factor) {
        f /= o.factor;
      } else if (wavelength >= context / o.high_factor) {
        const double kept = (context / wavelength - o.low_factor) / (o.high_factor - o.low_factor);
        f = (1 - kept) * f / o.factor + kept * f;
      }
    }
    if (o.scaling == RopeScaling::kYarn) {
      const double kept = 1 - std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
      f = (1 - kept) * f / o.factor + kept * f;
    }
    out.push_back(f);
  }
  return out;
}

double rope_score_scale(const RopeOptions& o) {
  const bool yarn = o.scaling == RopeScaling::kYarn;
  if (!yarn && o.scaling != RopeScaling::kLongrope) return 1;
  if (o.attention > 0) return o.attention * o.attention;
  if (!yarn) return 1 + std::log(o.factor) / std::log(static_cast<double>(o.context));
  const double m = 0.1 * std::log(o.factor) + 1;
  return m * m;
}

}  // namespace lockstep
