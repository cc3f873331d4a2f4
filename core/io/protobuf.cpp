#include "core/io/protobuf.h"

#include <cstring>

#include "core/base/error.h"

namespace lockstep::protobuf {
namespace {

enum Type : int { kVarint = 0, kEightBytes = 1, kBytes = 2, kFourBytes = 5 };
constexpr uint64_t kNumbers = 1u << 29;

void put_varint(std::string& out, uint64_t v) {
  for (; v >= 0x80; v >>= 7) out += static_cast<char>(v | 0x80);
  out += static_cast<char>(v);
}

template <class T>
void put_bits(std::string& out, T bits) {
  for (size_t i = 0; i < sizeof(T); ++i) out += static_cast<char>(bits >> (8 * i));
}

}  // namespace

void put_integer(std::string& message, uint64_t field, uint64_t value) {
  put_varint(message, field << 3 | kVarint);
  put_varint(message, value);
}
void put_double(std::string& message, uint64_t field, double value) {
  put_varint(message, field << 3 | kEightBytes);
  put_little_endian(message, value);
}
void put_float(std::string& message, uint64_t field, float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  put_varint(message, field << 3 | kFourBytes);
  put_bits(message, bits);
}
void put_bytes(std::string& message, uint64_t field, std::string_view bytes) {
  put_varint(message, field << 3 | kBytes);
  put_varint(message, bytes.size());
  message += bytes;
}

void put_little_endian(std::string& out, uint32_t bits) { put_bits(out, bits); }
void put_little_endian(std::string& out, uint64_t bits) { put_bits(out, bits); }
void put_little_endian(std::string& out, double value) {
  uint64_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  put_bits(out, bits);
}

bool Fields::next() {
  if (rest_.empty()) return false;
  const uint64_t key = varint();
  number_ = key >> 3, type_ = static_cast<int>(key & 7);
  need(number_ > 0 && number_ < kNumbers &&
       (type_ == kVarint || type_ == kEightBytes || type_ == kBytes || type_ == kFourBytes));
  if (type_ == kVarint) value_ = varint();
  else bytes_ = take(type_ == kEightBytes ? 8 : type_ == kFourBytes ? 4 : varint());
  return true;
}

uint64_t Fields::integer() const {
  need(type_ == kVarint);
  return value_;
}
float Fields::real() const {
  need(type_ == kFourBytes);
  uint32_t bits = 0;
  for (size_t i = 0; i < sizeof bits; ++i) bits |= static_cast<uint32_t>(static_cast<uint8_t>(bytes_[i])) << (8 * i);
  float out;
  std::memcpy(&out, &bits, sizeof out);
  return out;
}
std::string_view Fields::bytes() const {
  need(type_ == kBytes);
  return bytes_;
}

void Fields::need(bool good) const { require(good, ExitCode::kBadData, where_, ": is no ", what_, ", or damaged"); }

uint64_t Fields::varint() {
  uint64_t out = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    const auto byte = static_cast<uint8_t>(take(1)[0]);
    out |= static_cast<uint64_t>(byte & 0x7F) << shift;
    if (byte < 0x80) return out;
  }
  need(false);
  return 0;
}

std::string_view Fields::take(uint64_t count) {
  need(count <= rest_.size());
  const std::string_view out = rest_.substr(0, count);
  rest_.remove_prefix(count);
  return out;
}

}  // namespace lockstep::protobuf
