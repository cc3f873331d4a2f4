// Weights in the codes of bitsandbytes: what they decode to, in pieces and whole, and each part that does not fit.
#include "core/io/coded_weights.h"

#include <gtest/gtest.h>

#include <cstring>

#include "core/base/nf4_levels.h"
#include "core/io/safetensors.h"
#include "tests/support/files.h"

namespace lockstep::coded_weights_test {
namespace {

using test::expect_error;
using test::TemporaryFolder;
using test::write_file;

struct Part {
  std::string name, type, shape, bytes;
};

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

std::string state(const std::string& shape, const std::string& more = {}) {
  return R"({"quant_type": "nf4", "blocksize": 4, "dtype": "bfloat16", "shape": )" + shape + more + "}";
}

// [3, 3] in nf4 with blocks of 4 elements, whose three scales are in fp32, or in 8 bits.
std::vector<Part> nf4_parts() {
  const std::string text = state("[3, 3]");
  return {{"w", "U8", "[5, 1]", bytes_of<uint8_t>({0xF0, 0x7E, 0x01, 0xFF, 0x80})},
          {"w.absmax", "F32", "[3]", bytes_of<float>({2, 0.5f, 4})},
          {"w.quant_map", "F32", "[16]", bytes_of(std::vector<float> LOCKSTEP_NF4_LEVELS)},
          {"w.quant_state.bitsandbytes__nf4", "U8", "[" + std::to_string(text.size()) + "]", text}};
}
std::vector<Part> double_parts() {
  std::vector<float> map(256);
  map[7] = 0.25f, map[200] = -0.5f, map[255] = 1;
  const std::string text =
      state("[3, 3]", R"(, "nested_blocksize": 2, "nested_dtype": "float32", "nested_offset": 1.5)");
  std::vector<Part> out = nf4_parts();
  out[1] = {"w.absmax", "U8", "[3]", bytes_of<uint8_t>({255, 200, 7})};
  out[3] = {"w.quant_state.bitsandbytes__nf4", "U8", "[" + std::to_string(text.size()) + "]", text};
  out.push_back({"w.nested_absmax", "F32", "[2]", bytes_of<float>({0.5f, 2})});
  out.push_back({"w.nested_quant_map", "F32", "[256]", bytes_of(map)});
  return out;
}
std::vector<Part> int8_parts() {
  return {{"a.weight", "I8", "[2, 3]", bytes_of<int8_t>({127, -127, 1, 0, 64, -2})},
          {"a.SCB", "F32", "[2]", bytes_of<float>({12.7f, 1})},
          {"a.weight_format", "U8", "[]", std::string(1, '\0')}};
}

class CodedWeightsTest : public ::testing::Test {
 protected:
  WeightFiles open(const std::vector<Part>& parts) {
    std::string header = "{", data;
    for (const Part& p : parts) {
      header += str(header.size() > 1 ? "," : "", "\"", p.name, "\":{\"dtype\":\"", p.type, "\",\"shape\":", p.shape,
                    ",\"data_offsets\":[", data.size(), ",", data.size() + p.bytes.size(), "]}");
      data += p.bytes;
    }
    header += "}";
    const uint64_t length = header.size();
    std::string file(8, '\0');
    std::memcpy(file.data(), &length, 8);
    write_file(folder_ / "x.safetensors", file + header + data);
    return WeightFiles::open(folder_ / "x.safetensors");
  }
  static std::vector<float> values(const WeightFiles& files, const std::string& name) {
    const StoredWeight& w = *files.find(name);
    std::vector<float> out(static_cast<size_t>(w.shape.numel())), pieces(out.size());
    files.read(w, {0, w.shape.numel()}, out.data());
    for (int64_t i = 0; i < w.shape.numel(); i += 2)
      files.read(w, {i, std::min(i + 2, w.shape.numel())}, &pieces[static_cast<size_t>(i)]);
    EXPECT_EQ(pieces, out) << "in pieces";
    files.read(w, {1, w.shape.numel()}, pieces.data());
    EXPECT_TRUE(std::equal(out.begin() + 1, out.end(), pieces.begin())) << "from the middle of a byte";
    return out;
  }
  void refuse(const std::vector<Part>& parts, std::initializer_list<std::string> why) {
    expect_error(ExitCode::kBadData, why, [&] { open(parts); });
  }
  TemporaryFolder folder_;
};

TEST_F(CodedWeightsTest, Nf4IsOneWeightOfTheShapeInItsState) {
  const WeightFiles files = open(nf4_parts());
  ASSERT_EQ(files.weights().size(), 1u);
  EXPECT_EQ(files.weights()[0].type, "NF4");
  EXPECT_EQ(files.weights()[0].shape, (Shape{3, 3}));
  const float fourteen = 0.7229568362236023f, one = -0.6961928009986877f, eight = 0.07958029955625534f;
  EXPECT_EQ(values(files, "w"), (std::vector<float>{2, -2, 0, 2 * fourteen, -0.5f, 0.5f * one, 0.5f, 0.5f, 4 * eight}));
}

TEST_F(CodedWeightsTest, ScalesMayBeInCodesThemselves) {
  const WeightFiles files = open(double_parts());
  ASSERT_EQ(files.weights().size(), 1u);
  const float fourteen = 0.7229568362236023f, one = -0.6961928009986877f, eight = 0.07958029955625534f;
  const float a = 1 * 0.5f + 1.5f, b = -0.5f * 0.5f + 1.5f, c = 0.25f * 2 + 1.5f;
  EXPECT_EQ(values(files, "w"), (std::vector<float>{a, -a, 0, a * fourteen, -b, b * one, b, b, c * eight}));
}

TEST_F(CodedWeightsTest, Int8HasAScaleForEachRow) {
  std::vector<Part> parts = int8_parts();
  parts.push_back({"b.SCB", "F32", "[1]", bytes_of<float>({7})});  // of no codes: a tensor like others
  const WeightFiles files = open(parts);
  ASSERT_EQ(files.weights().size(), 2u);
  EXPECT_EQ(files.find("a.weight")->type, "INT8");
  const float first = 12.7f / 127, second = 1.0f / 127;
  EXPECT_EQ(values(files, "a.weight"),
            (std::vector<float>{127 * first, -127 * first, first, 0, 64 * second, -2 * second}));
  EXPECT_EQ(values(files, "b.SCB"), std::vector<float>{7});
}

TEST_F(CodedWeightsTest, PartsThatDoNotFitAreRefused) {
  const auto with = [](std::vector<Part> parts, size_t index, Part part) {
    parts[index] = std::move(part);
    return parts;
  };
  const auto without = [](std::vector<Part> parts, size_t index) {
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(index));
    return parts;
  };
  const auto with_state = [&](const std::string& text) {
    return with(nf4_parts(), 3,
                {"w.quant_state.bitsandbytes__nf4", "U8", "[" + std::to_string(text.size()) + "]", text});
  };
  refuse(without(nf4_parts(), 0), {"tensor w beside it is missing"});
  refuse(without(nf4_parts(), 1), {"tensor w.absmax beside it is missing"});
  refuse(without(double_parts(), 4), {"tensor w.nested_absmax beside it is missing"});
  refuse(without(double_parts(), 5), {"tensor w.nested_quant_map beside it is missing"});
  refuse(with(nf4_parts(), 1, {"w.absmax", "F32", "[2]", bytes_of<float>({1, 2})}),
         {"tensor w.absmax: is F32 [2], but w.quant_state.bitsandbytes__nf4 needs 3 elements of F32"});
  refuse(with(nf4_parts(), 0, {"w", "U8", "[4]", "abcd"}), {"tensor w: is U8 [4]", "needs 5 elements of U8"});
  refuse(with(nf4_parts(), 0, {"w", "F32", "[5]", std::string(20, '\0')}), {"tensor w: is F32 [5]"});
  refuse(with_state("no JSON"), {"w.quant_state.bitsandbytes__nf4: is no JSON object"});
  refuse(with_state(R"({"shape": [3, 3]})"), {"blocksize"});
  refuse(with_state(R"({"blocksize": 3, "shape": [3, 3]})"), {"has a blocksize of 3"});
  refuse(with_state(R"({"blocksize": 4, "shape": []})"), {"has no list \"shape\""});
  refuse(with_state(R"({"blocksize": 4, "shape": [3, -3]})"), {"its shape has an extent that is none"});
  refuse(with_state(R"({"blocksize": 4, "shape": [4611686018427387904, 4]})"), {"or is too large"});
  refuse(with_state(state("[3, 3]", R"(, "nested_blocksize": 0, "nested_offset": 1)")), {"nested_blocksize of 0"});
  std::vector<Part> fp4 = nf4_parts();
  fp4[3].name = "w.quant_state.bitsandbytes__fp4";
  refuse(fp4, {"fp4 is not read; of bitsandbytes' codes nf4 and int8 are"});
  refuse(with(nf4_parts(), 2, {"w.quant_map", "F32", "[16]", std::string(64, '\0')}),
         {"tensor w.quant_map: has other values than nf4"});
  refuse(with(int8_parts(), 2, {"a.weight_format", "U8", "[]", std::string(1, '\2')}),
         {"tensor a.weight_format: is 2: codes in a GPU's tiles are not read"});
  refuse(with(int8_parts(), 1, {"a.SCB", "F32", "[3]", std::string(12, '\0')}),
         {"tensor a.SCB: is F32 [3], but a.weight needs 2 elements of F32"});
}

}  // namespace
}  // namespace lockstep::coded_weights_test
