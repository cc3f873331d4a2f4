// Decompressors of compressed streams, and CRC-32: the door to zlib. A Decompressor owns its state; used by one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace lockstep {

// Decodes a compressed stream piece by piece. It may follow on another in the same input, as gzip's members do.
class Decompressor {
 public:
  struct Step {
    size_t taken = 0, made = 0;  // bytes
    bool ended = false;          // at the end of a whole compressed stream, whose checksum, if it has one, was right
  };
  virtual ~Decompressor() = default;
  // Throws ExitCode::kBadData with what is wrong, without the input's name. After an end it begins anew.
  virtual Step run(const uint8_t* from, size_t size, uint8_t* to, size_t room) = 0;
};

std::unique_ptr<Decompressor> gzip_decoder();
std::unique_ptr<Decompressor> deflate_decoder();  // without a header, as zip archives hold it

// CRC-32 of gzip and zip, of a stream in pieces: `before` is that of the pieces before.
uint32_t crc32(const void* bytes, size_t size, uint32_t before = 0);

}  // namespace lockstep
