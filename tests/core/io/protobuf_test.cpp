// The wire format of Protocol Buffers, beside the bytes that its description gives.
#include "core/io/protobuf.h"

#include <gtest/gtest.h>

#include "core/base/error.h"

namespace lockstep::protobuf_test {
namespace {

using protobuf::Fields;

TEST(Protobuf, WritesTheBytesOfItsDescription) {
  std::string message;
  protobuf::put_integer(message, 1, 150);
  EXPECT_EQ(message, "\x08\x96\x01");
  message.clear();
  protobuf::put_bytes(message, 2, "testing");
  EXPECT_EQ(message, "\x12\x07testing");
  message.clear();
  protobuf::put_float(message, 3, 1.0f);
  EXPECT_EQ(message, std::string("\x1d\x00\x00\x80\x3f", 5));
  message.clear();
  protobuf::put_double(message, 20, -2.0);
  EXPECT_EQ(message, std::string("\xa1\x01\x00\x00\x00\x00\x00\x00\x00\xc0", 10));
}

TEST(Protobuf, ReadsWhatWasWrittenInOrder) {
  std::string message;
  protobuf::put_integer(message, 7, ~uint64_t{0});
  protobuf::put_float(message, 1, -0.5f);
  protobuf::put_double(message, 2, 3);  // which no reader here asks for
  protobuf::put_bytes(message, 536'870'911, "");
  Fields f(message, "here", "message");
  ASSERT_TRUE(f.next());
  EXPECT_EQ(f.number(), 7u);
  EXPECT_EQ(f.integer(), ~uint64_t{0});
  ASSERT_TRUE(f.next());
  EXPECT_EQ(f.real(), -0.5f);
  ASSERT_TRUE(f.next());
  EXPECT_EQ(f.number(), 2u);
  ASSERT_TRUE(f.next());
  EXPECT_EQ(f.number(), 536'870'911u);
  EXPECT_EQ(f.bytes(), "");
  EXPECT_FALSE(f.next());
}

TEST(Protobuf, WhatIsNoMessageIsRefused) {
  const auto refused = [](const std::string& message) {
    Fields f(message, "here", "message");
    try {
      while (f.next()) (void)f.bytes();
    } catch (const Error& e) {
      return e.code() == ExitCode::kBadData && std::string(e.what()) == "here: is no message, or damaged";
    }
    return false;
  };
  EXPECT_TRUE(refused("\x12\x07testin")) << "cut";
  EXPECT_TRUE(refused("\x12")) << "without a length";
  EXPECT_TRUE(refused("\x08\x01")) << "an integer, not bytes";
  EXPECT_TRUE(refused(std::string("\x02\x00", 2))) << "field 0";
  EXPECT_TRUE(refused("\x0b")) << "a type that is none";
  EXPECT_TRUE(refused(std::string(10, '\xff') + "\x01")) << "an integer of more than 64 bits";
  EXPECT_FALSE(refused(""));
}

}  // namespace
}  // namespace lockstep::protobuf_test
