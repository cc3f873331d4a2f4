// safetensors: values survive a round trip, and each file that the format or this reader forbids is refused by name.
#include "core/io/safetensors.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>

#include "core/base/log.h"
#include "core/io/json.h"
#include "tests/support/files.h"

namespace lockstep::safetensors_test {
namespace {

using test::content;
using test::expect_error;
using test::TemporaryFolder;
using test::write_file;

std::string file_of(const std::string& header, const std::string& data = {}) {
  const uint64_t length = header.size();
  std::string out(8, '\0');
  std::memcpy(out.data(), &length, 8);
  return out + header + data;
}

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

class Safetensors : public testing::Test {
 protected:
  std::string write(const std::string& content) {
    write_file(folder / "x.safetensors", content);
    return folder / "x.safetensors";
  }
  WeightFiles open(const std::string& header, const std::string& data = {}) {
    return WeightFiles::open(write(file_of(header, data)));
  }
  void refuse(const std::string& header, const std::string& data, const std::string& why) {
    SCOPED_TRACE(header);
    expect_error(ExitCode::kBadData, {"x.safetensors", why}, [&] { open(header, data); });
  }
  std::vector<float> values(const WeightFiles& files, const std::string& name) {
    const StoredWeight* w = files.find(name);
    if (!w) throw std::runtime_error("no " + name);
    std::vector<float> out(static_cast<size_t>(w->shape.numel()));
    files.read(*w, {0, w->shape.numel()}, out.data());
    return out;
  }
  TemporaryFolder folder;
};

TEST_F(Safetensors, WhatIsWrittenIsRead) {
  std::vector<float> a(24);
  std::iota(a.begin(), a.end(), 0.5f);
  const std::vector<int64_t> count{7};
  WeightWriter writer(folder / "w.safetensors", {{"a", {4, 6}}, {"empty", {0, 3}}, {"count", {}, "I64"}, {"b", {2}}});
  writer.write(a.data(), 10);
  writer.write(a.data() + 10, 14);
  writer.write(count.data(), 1);
  writer.write(a.data(), 2);
  EXPECT_EQ(folder.files(), 1);  // the temporary one
  writer.commit();
  const WeightFiles files = WeightFiles::open(folder / "w.safetensors");
  EXPECT_EQ(files.weights().size(), 4u);
  EXPECT_EQ(values(files, "a"), a);
  EXPECT_EQ(values(files, "b"), (std::vector<float>{0.5f, 1.5f}));
  EXPECT_EQ(files.find("empty")->shape, (Shape{0, 3}));
  EXPECT_EQ(files.find("count")->shape, Shape{});
  EXPECT_EQ(files.find("c"), nullptr);
  std::vector<float> part(3);
  files.read(*files.find("a"), {5, 8}, part.data());
  EXPECT_EQ(part, (std::vector<float>{5.5f, 6.5f, 7.5f}));
  expect_error(ExitCode::kBadData, {"tensor count has type I64"}, [&] { values(files, "count"); });
}

TEST_F(Safetensors, AFileThatIsNotCommittedLeavesNothing) {
  { WeightWriter writer(folder / "w.safetensors", {{"a", {4}}}); }
  EXPECT_EQ(folder.files(), 0);
}

TEST_F(Safetensors, OtherTypesAreConverted) {
  const std::vector<uint16_t> half{0x3c00, 0xc000, 0x0001, 0x8001, 0x03ff, 0x7bff, 0x0000, 0x7c00, 0xfc00};
  EXPECT_EQ(values(open(R"({"h":{"dtype":"F16","shape":[9],"data_offsets":[0,18]}})", bytes_of(half)), "h"),
            (std::vector<float>{1, -2, 0x1p-24f, -0x1p-24f, 0x3ffp-24f, 65504, 0, INFINITY, -INFINITY}));
  EXPECT_EQ(values(open(R"({"b":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}})",
                        bytes_of(std::vector<uint16_t>{0x3f80, 0xc049})),
                   "b"),
            (std::vector<float>{1, -3.140625f}));
  EXPECT_EQ(
      values(open(R"({"d":{"dtype":"F64","shape":[2],"data_offsets":[0,16]}})", bytes_of(std::vector<double>{0.1, -3})),
             "d"),
      (std::vector<float>{0.1f, -3}));
}

TEST_F(Safetensors, WhatTheFormatAllowsIsRead) {
  EXPECT_EQ(open("{}").weights().size(), 0u);
  EXPECT_EQ(open("{}   ").weights().size(), 0u);
  EXPECT_EQ(
      open(R"({"__metadata__":{"format":"pt"},"":{"dtype":"F32","shape":[],"data_offsets":[0,4],"more":1}})", "0000")
          .weights()
          .size(),
      1u);
  const WeightFiles odd = open(R"({"four":{"dtype":"F4","shape":[2,1],"data_offsets":[0,1]}})", "0");
  expect_error(ExitCode::kBadData, {"type F4"}, [&] { values(odd, "four"); });
}

TEST_F(Safetensors, WhatTheFormatForbidsIsRefused) {
  expect_error(ExitCode::kMissingInput, {"none.safetensors"}, [&] { WeightFiles::open(folder / "none.safetensors"); });
  expect_error(ExitCode::kBadData, {"too few"}, [&] { WeightFiles::open(write("1234567")); });
  expect_error(ExitCode::kBadData, {"more than 100000000"}, [&] { WeightFiles::open(write(std::string(64, '\xff'))); });
  expect_error(ExitCode::kBadData, {"ends before"},
               [&] { WeightFiles::open(write(std::string("\x40\0\0\0\0\0\0\0{}", 10))); });
  for (const char* header : {"", "[]", "{", " {}", "{}}", "{\"a\":1,\"a\":1}", "{\"\xff\":1}", "null"})
    refuse(header, "", "header is no JSON object");
  const std::string f32 = R"({"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  refuse(R"({"a":)" + f32 + R"(,"a":)" + f32 + "}", "0000", "distinct keys");
  refuse(R"({"a":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "0000", "tensor a");
  refuse(R"({"__metadata__":{"a":"1","a":"1"}})", "", "__metadata__");
  refuse(R"({"__metadata__":{"a":1}})", "", "__metadata__");
  refuse(R"({"__metadata__":1})", "", "__metadata__");
  refuse(R"({"a":1})", "", "tensor a");
  refuse(R"({"a":{"shape":[1],"data_offsets":[0,4]}})", "0000", "dtype");
  refuse(R"({"a":{"dtype":"F33","shape":[1],"data_offsets":[0,4]}})", "0000", "no type F33");
  refuse(R"({"a":{"dtype":"F32","data_offsets":[0,4]}})", "0000", "\"shape\"");
  for (const char* extent : {"-1", "1.0", "1e0", "18446744073709551615", "9223372036854775808", "\"1\"", "null", "[1]"})
    refuse(str(R"({"a":{"dtype":"F32","shape":[)", extent, R"(],"data_offsets":[0,4]}})"), "0000", "\"shape\" holds");
  refuse(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", "0000", "begin and end");
  refuse(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", "0000", "begin and end");
  refuse(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,-4]}})", "0000", "data_offsets");
  refuse(R"({"a":{"dtype":"F32","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,4]}})", "0000", "9 dimensions");
}

TEST_F(Safetensors, PlacesThatDoNotFitAreRefused) {
  const auto entry = [](const std::string& shape, int64_t begin, int64_t end) {
    return str(R"({"dtype":"F32","shape":)", shape, R"(,"data_offsets":[)", begin, ",", end, "]}");
  };
  refuse("{\"a\":" + entry("[2]", 0, 4) + "}", "0000", "does not take the 4 bytes");
  refuse("{\"a\":" + entry("[2]", 0, 8) + "}", "0000", "truncated");
  refuse("{\"a\":" + entry("[1]", 0, 4) + "}", "00001", "of no tensor");
  refuse("{\"a\":" + entry("[1]", 4, 8) + "}", "00000000", "gap or overlap");
  refuse("{\"a\":" + entry("[1]", 0, 4) + ",\"b\":" + entry("[1]", 8, 12) + "}", "000000000000", "tensor b");
  refuse("{\"a\":" + entry("[2]", 0, 8) + ",\"b\":" + entry("[1]", 4, 8) + "}", "00000000", "tensor b");
  refuse("{\"a\":" + entry("[1]", 0, 4) + ",\"b\":" + entry("[1]", 0, 4) + "}", "0000", "tensor b");
  refuse("{\"a\":" + entry("[4611686018427387904,4]", 0, 0) + "}", "", "overflows");
  refuse("{\"a\":" + entry("[4611686018427387904,4,0]", 0, 0) + "}", "", "overflows");
  refuse("{\"a\":" + entry("[4294967296,4294967296]", 0, 4) + "}", "0000", "overflows");
  refuse(R"({"a":{"dtype":"F4","shape":[3],"data_offsets":[0,1]}})", "0", "does not take");
}

TEST_F(Safetensors, SeveralFilesBesideAnIndex) {
  const std::vector<WeightToWrite> weights{{"a", {3}}, {"b", {5}}, {"c", {1}}, {"d", {2}}};
  const auto files = files_for(weights, 16);
  ASSERT_EQ(files, (std::vector<std::vector<size_t>>{{0}, {1}, {2, 3}}));
  for (size_t f = 0; f < files.size(); ++f) {
    std::vector<WeightToWrite> here;
    for (size_t i : files[f]) here.push_back(weights[i]);
    WeightWriter writer(folder / weights_file_name(f, files.size()), here);
    for (const auto& w : here) writer.write(std::vector<float>(8, static_cast<float>(f)).data(), w.shape.numel());
    writer.commit();
  }
  const std::string index = folder / kWeightsIndex, text = weights_index(weights, files);
  write_file(index, text);
  const WeightFiles all = WeightFiles::open(folder / "");
  EXPECT_EQ(all.weights().size(), 4u);
  EXPECT_EQ(values(all, "b"), std::vector<float>(5, 1));
  EXPECT_EQ(values(all, "a"), std::vector<float>(3, 0));
  EXPECT_EQ(values(all, "d"), std::vector<float>(2, 2));

  const auto refuse_index = [&](const std::string& from, const std::string& to, ExitCode code, const std::string& why) {
    SCOPED_TRACE(to);
    std::string changed = text;
    changed.replace(changed.find(from), from.size(), to);
    write_file(index, changed);
    expect_error(code, {why}, [&] { WeightFiles::open(folder / ""); });
  };
  const std::string first = "\"a\":\"model-00001-of-00003.safetensors\"", bad = "is in no file NAME.safetensors";
  refuse_index(first, "\"a\":\"../model-00001-of-00003.safetensors\"", ExitCode::kBadData, bad);
  refuse_index(first, "\"a\":\"/etc/passwd\"", ExitCode::kBadData, bad);
  refuse_index(first, "\"a\":\"..\"", ExitCode::kBadData, bad);
  refuse_index(first, "\"a\":\"\"", ExitCode::kBadData, bad);
  refuse_index(first, "\"a\":\"x\\u0000.safetensors\"", ExitCode::kBadData, bad);
  refuse_index(first, "\"a\":1", ExitCode::kBadData, bad);
  refuse_index(first, "\"a\":\"other.safetensors\"", ExitCode::kMissingInput, "other.safetensors");
  refuse_index(first, first + "," + first, ExitCode::kBadData, "distinct keys");
  refuse_index(first, "\"a\":\"model-00002-of-00003.safetensors\"", ExitCode::kBadData, "tensor a is not in");
  refuse_index("\"a\":", "\"e\":", ExitCode::kBadData, "tensor e is not in");
  refuse_index("\"c\":\"model-00003-of-00003.safetensors\",", "", ExitCode::kBadData, "does not name tensor c");
  refuse_index("weight_map", "weights", ExitCode::kBadData, "weight_map");
  std::filesystem::copy(folder / weights_file_name(0, 3), folder / "again.safetensors");
  refuse_index("\"c\":\"model-00003-of-00003.safetensors\"", "\"c\":\"again.safetensors\"", ExitCode::kBadData, "too");
}

// As transformers chooses, which looks for the file first; an index beside it may be out of date.
TEST_F(Safetensors, OneFileGoesBeforeAnIndex) {
  const auto save = [&](const std::string& name, float value) {
    WeightWriter writer(folder / name, {{"a", {2}}});
    writer.write(std::vector<float>(2, value).data(), 2);
    writer.commit();
  };
  save(kWeightsFile, 1);
  save("model-00001-of-00001.safetensors", 2);
  open_log_file(folder / "log.txt");
  for (const char* index : {R"({"weight_map":{"a":"model-00001-of-00001.safetensors"}})",
                            R"({"weight_map":{"b":"model-00001-of-00009.safetensors"}})", "{"}) {
    SCOPED_TRACE(index);
    write_file(folder / kWeightsIndex, index);
    const WeightFiles files = WeightFiles::open(folder / "");
    EXPECT_EQ(values(files, "a"), std::vector<float>(2, 1));
  }
  close_log_file();
  const std::string log = content(folder / "log.txt");
  const size_t at = log.find("model.safetensors: is read, as transformers does, and model.safetensors.index.json");
  ASSERT_NE(at, log.npos) << log;
  EXPECT_EQ(log.find("is read", at + 30), log.npos) << "once: " << log;
}

TEST_F(Safetensors, AFileThatShrinksMeanwhileIsAnError) {
  const std::string path =
      write(file_of(R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}})", std::string(16, 'x')));
  const WeightFiles files = WeightFiles::open(path);
  std::filesystem::resize_file(path, 60);
  expect_error(ExitCode::kBadData, {"x.safetensors"}, [&] { values(files, "a"); });
}

}  // namespace
}  // namespace lockstep::safetensors_test
