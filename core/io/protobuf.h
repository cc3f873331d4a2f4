// The wire format of Protocol Buffers (protobuf.dev/programming-guides/encoding), for the few messages that are read
// and written here: a message is its fields, one after the other, each a number with its type and a value. Plain
// functions, and a reader that borrows what it reads.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::protobuf {

// Each appends a field to a message.
void put_integer(std::string& message, uint64_t field, uint64_t value);
void put_double(std::string& message, uint64_t field, double value);
void put_float(std::string& message, uint64_t field, float value);
void put_bytes(std::string& message, uint64_t field, std::string_view bytes);  // a text, a message, or packed numbers

// 4 or 8 bytes, the lowest first: what packed numbers are made of.
void put_little_endian(std::string& out, uint32_t bits);
void put_little_endian(std::string& out, uint64_t bits);
void put_little_endian(std::string& out, double value);

// The fields of a message, in order. Everything throws ExitCode::kBadData, as "WHERE: is no WHAT, or damaged", where
// the message is none, or a value is of another type than was asked for.
class Fields {
 public:
  Fields(std::string_view message, std::string_view where, std::string_view what)
      : rest_(message), where_(where), what_(what) {}

  bool next();  // to the next field; false at the end
  uint64_t number() const { return number_; }
  uint64_t integer() const;
  float real() const;
  std::string_view bytes() const;

 private:
  void need(bool good) const;
  uint64_t varint();
  std::string_view take(uint64_t count);

  std::string_view rest_, where_, what_, bytes_;
  uint64_t number_ = 0, value_ = 0;
  int type_ = 0;
};

}  // namespace lockstep::protobuf
