// The kinds of data that a dataset file holds, and of what its samples are compared with. What sets each of them apart
// is in data/samples/sample_kind.h and data/samples/sample_target.h.
#pragma once

#include <cstdint>

namespace lockstep {

enum class DataKind : uint8_t { kTokens, kImages, kTable };
// What the outputs for images and rows of tables are compared with: a label each, a number each, a mask each (a class
// for every pixel), or boxes (kBoxValues), which are stored, but no part of samples.
enum class TargetKind : uint8_t { kLabels, kNumbers, kMasks, kBoxes };

}  // namespace lockstep
