// How the pixels of mask files become classes: their values, 0 and 255 as two classes, or colours by a palette. Plain
// values and functions, for images.cpp.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "data/images/codecs/image_codec.h"

namespace lockstep {

// The colours of classes.
struct MaskPalette {
  std::map<uint32_t, uint8_t> classes;  // of a colour, 0xRRGGBB; kNoMaskClass: its pixels are no targets
  std::vector<std::string> names;       // of each class
  bool ignores() const;                 // a colour is no class
};
constexpr uint8_t kNoMaskClass = 255;

// A class a line, from class 0 on: red, green and blue from 0 to 255, with white space or commas between them, and
// perhaps its name. A colour with the name `ignore` is no class; lines that begin with # are left out. Throws
// ExitCode::kBadData naming file and line.
MaskPalette read_mask_palette(const std::string& path);

// The classes of a PNG in colours of the palette. Throws kBadData naming `name` and the first pixel of another colour.
ByteImage classes_by_palette(std::string_view file, const MaskPalette& palette, const std::string& name);

// Whether a mask has the values 0 and 255 alone.
bool is_black_and_white(const ByteImage& mask);

}  // namespace lockstep
