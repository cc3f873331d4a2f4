// The ground floor: errors that say where, text of values, hashes against known answers, partitions, flat JSON.
#include <gtest/gtest.h>

#include <cmath>
#include <ctime>
#include <limits>
#include <new>
#include <stdexcept>
#include <system_error>

#include "core/base/caught.h"
#include "core/base/error.h"
#include "core/base/escape.h"
#include "core/base/hash.h"
#include "core/base/log.h"
#include "core/base/partition.h"
#include "core/io/json.h"
#include "tests/support/time_bound.h"

namespace lockstep::base_test {
namespace {

TEST(Errors, OfContractsCarryTheirPlaceAndValues) {
  int line = 0;
  try {
    line = __LINE__ + 1;
    check(1 + 1 == 3, "sum of ", 1, " and ", 1.5, " is ", true);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::kInternal);
    EXPECT_EQ(std::string(e.what()), str("sum of 1 and 1.5 is true [tests/core/base_test.cpp:", line, "]"));
  }
  EXPECT_NO_THROW(check(true, "fine"));
}

TEST(Errors, OfInputCarryTheirExitCode) {
  try {
    require(false, ExitCode::kBadData, "FILE: ", "chunk ", int64_t(7));
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::kBadData);
    EXPECT_STREQ(e.what(), "FILE: chunk 7");
  }
}

TEST(Text, OfNumbersReadsBackTheSame) {
  for (double v : {0.0, 1.0, 0.1, 1e300, 1.0 / 3, -2.5e-7}) EXPECT_EQ(std::stod(to_text(v)), v);
  EXPECT_EQ(to_text(0.1), "0.1");
  EXPECT_EQ(str("a", std::string("b"), std::string_view("c"), -3, uint8_t{4}, false), "abc-34false");
}

TEST(Narrow, RefusesWhatDoesNotFit) {
  EXPECT_EQ(narrow<int>(int64_t(7)), 7);
  EXPECT_THROW(narrow<int>(int64_t(1) << 40), Error);
  EXPECT_THROW(narrow<uint32_t>(-1), Error);
}

TEST(Hash, GivesKnownAnswers) {
  EXPECT_EQ(crc32c("123456789", 9), 0xE3069283u);  // the check value of CRC-32C (RFC 3720)
  EXPECT_EQ(crc32c("", 0), 0u);
  EXPECT_EQ(hash64(""), 0x2D06800538D394C2u);  // XXH3 of nothing, seed 0, as xxHash documents it
  EXPECT_EQ(to_hex(hash128("")), "99aa06d3014798d86001c324468d497f");
}

TEST(Hash, OfAStreamIsThatOfTheWhole) {
  std::string text;
  for (int i = 0; i < 3000; ++i) text += static_cast<char>(i * 7);
  for (size_t step : {1u, 13u, 256u, 5000u}) {
    Hasher128 h;
    for (size_t at = 0; at < text.size(); at += step) h.update(text.data() + at, std::min(step, text.size() - at));
    EXPECT_EQ(h.digest(), hash128(text));
  }
}

TEST(Hash, SumsWrapWithCarryInAnyOrder) {
  const Hash128 a{1, ~0ull}, b{~0ull, 1}, c{5, 7};
  EXPECT_EQ(a + b, (Hash128{1, 0}));  // 1 + (2^64 - 1) + carry
  EXPECT_EQ((a + b) + c, a + (c + b));
}

TEST(Partition, PartsTileAndDifferByOneAtMost) {
  for (int64_t n : {0, 1, 5, 64, 1000003})
    for (int64_t parts : {1, 2, 3, 7, 100}) {
      int64_t at = 0;
      for (int64_t i = 0; i < parts; ++i) {
        const IndexRange r = split_evenly(n, parts, i);
        ASSERT_EQ(r.begin, at);
        ASSERT_GE(r.size(), n / parts);
        ASSERT_LE(r.size(), n / parts + 1);
        at = r.end;
      }
      ASSERT_EQ(at, n);
    }
  EXPECT_TRUE(intersect({0, 3}, {3, 5}).empty());
  EXPECT_EQ(intersect({0, 4}, {2, 9}), (IndexRange{2, 4}));
  EXPECT_EQ(round_up(0, 64), 0);
  EXPECT_EQ(round_up(65, 64), 128);
}

std::optional<std::vector<JsonObject>> parse_json_list(std::string_view text) {
  std::vector<JsonObject> out;
  if (!visit_json_list(text, [&](JsonObject&& object) { out.push_back(std::move(object)); })) return std::nullopt;
  return out;
}

TEST(Escaped, LeavesNoControlCharacterToATerminal) {
  EXPECT_EQ(escaped("plain \\ text, gr\xc3\xbc\xc3\x9f\x65 \xe2\x82\xac \xf0\x9f\x99\x82"),
            "plain \\ text, gr\xc3\xbc\xc3\x9f\x65 \xe2\x82\xac \xf0\x9f\x99\x82");
  EXPECT_EQ(escaped("\x1b[2J\x07\r\x7f"), "\\x1b[2J\\x07\\x0d\\u007f");
  EXPECT_EQ(escaped(std::string_view("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(escaped("C1 \xc2\x9b"
                    "2J, bidi \xe2\x80\xae, \xe2\x81\xa6"),
            "C1 \\u009b2J, bidi \\u202e, \\u2066");
  EXPECT_EQ(escaped("\x9b\xff\xc3"), "\\x9b\\xff\\xc3") << "no UTF-8";
  EXPECT_EQ(escaped("\xc0\x9b \xe0\x82\x9b \xed\xa0\x80"), "\\xc0\\x9b \\xe0\\x82\\x9b \\xed\\xa0\\x80")
      << "other spellings";
  EXPECT_EQ(escaped("a\n\tb"), "a\n\tb");
  EXPECT_EQ(escaped("a\n\tb", Lines::kEscape), "a\\n\\tb");
}

TEST(Log, EscapesWhatAFileMayHold) {
  ::testing::internal::CaptureStderr();
  log_error("tensor '\x1b]0;title\x07' is damaged");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "error: tensor '\\x1b]0;title\\x07' is damaged\n");
}

TEST(Json, ReadsBackWhatItWrites) {
  const JsonObject object{{"text", std::string("quote \" newline \n \xc3\xa9")},
                          {"whole", int64_t(-9007199254740993)},
                          {"number", 0.1},
                          {"truth", true},
                          {"nothing", nullptr}};
  const std::string line = json_line(object);
  EXPECT_EQ(line.find('\n'), line.npos);
  EXPECT_EQ(parse_json_object(line), object);
  EXPECT_EQ(parse_json_list(json_list({object, {}, object})), (std::vector<JsonObject>{object, {}, object}));
  EXPECT_EQ(json_line({{"bad", std::nan("")}}), "{\"bad\":null}");
  EXPECT_TRUE(parse_json_object(json_line({{"bytes", std::string("\xff\xfe")}})).has_value()) << "always valid JSON";
}

TEST(Json, RefusesWhatIsNone) {
  for (const char* text : {"", "{", "[1]", "3", "{\"a\":1}x", "{'a':1}", "nan"})
    EXPECT_FALSE(parse_json_object(text)) << text;
  for (const char* text : {"", "{}", "[1]", "[{}", "[{}]]"}) EXPECT_FALSE(parse_json_list(text)) << text;
  EXPECT_FALSE(parse_json_object(std::string(100000, '['))) << "depth is bounded";
  EXPECT_FALSE(parse_json_object("{\"a\":" + std::string(100000, '['))) << "of members too";
  EXPECT_FALSE(parse_json_object("{\"a\":1,\"b\":2,\"a\":3}")) << "one key, two values";
  const JsonObject o = *parse_json_object("{\"n\":1.5,\"big\":18446744073709551615,\"i\":3}");
  EXPECT_EQ(json_int(o, "i", "FILE"), 3);
  for (const char* key : {"n", "big", "absent"}) EXPECT_THROW(json_int(o, key, "FILE"), Error) << key;
  EXPECT_THROW(json_text(o, "i", "FILE"), Error);
}

TEST(Error, IsSecondaryInOtherWordsToo) {
  const Error own(ExitCode::kStorage, "full"), secondary = Error::secondary(ExitCode::kRankLost, "rank 1 is ending");
  EXPECT_FALSE(own.is_secondary());
  EXPECT_FALSE(own.with_message("disk full").is_secondary());
  const Error more = as_error(std::make_exception_ptr(secondary.with_message("step 3: rank 1 is ending")));
  EXPECT_TRUE(more.is_secondary());
  EXPECT_EQ(more.code(), ExitCode::kRankLost);
  EXPECT_STREQ(more.what(), "step 3: rank 1 is ending");
}

TEST(AsError, WhatTheSystemRefusesHasItsExitCode) {
  auto of = [](const auto& thrown) { return as_error(std::make_exception_ptr(thrown)); };
  auto system = [](std::errc code) { return std::system_error(std::make_error_code(code)); };
  EXPECT_EQ(of(Error(ExitCode::kStorage, "full")).code(), ExitCode::kStorage);
  EXPECT_EQ(of(std::bad_alloc()).code(), ExitCode::kDevice);
  EXPECT_EQ(of(std::length_error("vector")).code(), ExitCode::kDevice);
  EXPECT_EQ(of(system(std::errc::resource_unavailable_try_again)).code(), ExitCode::kDevice);
  EXPECT_EQ(of(system(std::errc::not_enough_memory)).code(), ExitCode::kDevice);
  EXPECT_EQ(of(system(std::errc::no_space_on_device)).code(), ExitCode::kStorage);
  EXPECT_EQ(of(system(std::errc::permission_denied)).code(), ExitCode::kInternal);
  EXPECT_EQ(of(std::runtime_error("a bug")).code(), ExitCode::kInternal);
  EXPECT_EQ(of(7).code(), ExitCode::kInternal);
  EXPECT_NE(std::string(of(std::bad_alloc()).what()).find("out of memory; this process has "), std::string::npos);
}

TEST(Json, KeepsNestedValuesAsText) {
  const JsonObject o = *parse_json_object(R"({"a": [1, {"x": "q\"", "y": [true, null]}, []], "b": {}, "c": 2})");
  EXPECT_EQ(json_text(o, "a", "FILE"), R"([1,{"x":"q\"","y":[true,null]},[]])");
  EXPECT_EQ(json_text(o, "b", "FILE"), "{}");
  EXPECT_EQ(json_int(o, "c", "FILE"), 2);
}

// One object with many keys, and a list of many objects: each took time with the square of its length.
TEST(Json, ReadsLongTextsInLinearTime) {
  std::string head = "{\"k\":0";
  for (int i = 0; i < 100000; ++i) head += str(",\"k", i, "\":1");
  JsonObject small{{"name", std::string("parameters/a")}, {"offset", int64_t{64}}};
  const std::string list = json_list(std::vector<JsonObject>(200000, small));
  const std::clock_t begun = std::clock();
  EXPECT_EQ(parse_json_object(head + "}")->size(), 100001u);
  EXPECT_EQ(parse_json_list(list)->size(), 200000u);
  // Some 0.3 s, and minutes where time grows with the square.
  EXPECT_LT(static_cast<double>(std::clock() - begun) / CLOCKS_PER_SEC, testing::time_bound(3));
}

}  // namespace
}  // namespace lockstep::base_test
