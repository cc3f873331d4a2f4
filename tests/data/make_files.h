// Small real inputs for the tests of data: IDX files, gzip or plain, and text.
// Plain functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <zlib.h>

#include "tests/support/files.h"

namespace lockstep::test {

inline std::string idx(const std::vector<uint32_t>& shape, const std::string& values) {
  std::string out{'\0', '\0', '\x08', static_cast<char>(shape.size())};
  for (uint32_t extent : shape)
    for (int shift = 24; shift >= 0; shift -= 8) out.push_back(static_cast<char>(extent >> shift & 0xFF));
  return out + values;
}

inline void write_gzip(const std::string& path, const std::string& bytes) {
  gzFile file = ::gzopen(path.c_str(), "wb");
  ASSERT_NE(file, nullptr);
  ASSERT_EQ(::gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size())), static_cast<int>(bytes.size()));
  ASSERT_EQ(::gzclose(file), Z_OK);
}

// Bytes that look like noise but are always the same.
inline std::string noise(size_t size, uint32_t seed) {
  std::string out;
  for (uint32_t x = seed * 2654435761u + 1; out.size() < size; x = x * 1664525u + 1013904223u)
    out.push_back(static_cast<char>(x >> 24));
  return out;
}

// n labels 0, 1, .., classes - 1, 0, ...
inline std::string cycling_labels(size_t n, int classes) {
  std::string out;
  for (size_t i = 0; i < n; ++i) out.push_back(static_cast<char>(i % static_cast<size_t>(classes)));
  return out;
}

}  // namespace lockstep::test
