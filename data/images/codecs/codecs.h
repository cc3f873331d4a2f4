// What image_codec.cpp needs of each format: private to data/images/codecs. libpng and libjpeg report errors by
// longjmp, so functions that call them hold plain values only; the classes own what the libraries allocate.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "data/images/codecs/image_codec.h"

namespace lockstep::codecs {

// A file's header, read by open(), and its pixels. `failure` says why a call returned false.
struct Decoder {
  virtual ~Decoder() = default;
  virtual bool open(std::string_view file) = 0;  // sets `stored` and `orientation`
  virtual bool decode(uint8_t* pixels) = 0;      // `stored.bytes()` bytes
  ImageInfo stored;                              // before the orientation is applied
  int orientation = 1;                           // EXIF's, 1 to 8
  WideValues wide;                               // of 16 bits, once it is decoded
  char failure[256] = "the library gives no reason";
  bool supported = true;  // false: the file is whole, and of a form that is not read, which `failure` names
};

std::unique_ptr<Decoder> png_decoder();
std::unique_ptr<Decoder> mask_decoder();  // of PNG files: values as they are stored, or indices of a palette
std::unique_ptr<Decoder> jpeg_decoder();
// EXIF's orientation in the content of an APP1 segment; 1 where it says none.
int exif_orientation(std::string_view segment);

}  // namespace lockstep::codecs
