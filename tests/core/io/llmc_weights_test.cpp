// Files of llm.c: values survive a round trip in both precisions, and what does not follow from the header is refused.
#include "core/io/llmc_weights.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <filesystem>

#include "tests/support/files.h"

namespace lockstep::llmc_weights_test {
namespace {

using test::expect_error;
using test::TemporaryFolder;

constexpr LlmcHeader kSmall{6, 130, 2, 2, 4, false};

// Element i of every tensor.
float value_of(const LlmcTensor& t, int64_t i) {
  return static_cast<float>(t.name.size() * 100 + static_cast<size_t>(i)) / 4;
}

class LlmcWeights : public ::testing::Test {
 protected:
  void write(const LlmcHeader& header) {
    std::filesystem::remove(path);
    write_llmc_weights(path, header, [](const LlmcTensor& t, IndexRange r, float* out) {
      for (int64_t i = r.begin; i < r.end; ++i) out[i - r.begin] = value_of(t, i);
    });
  }
  // The small file with one number of its header changed.
  void refuse_with(int64_t place, int32_t number, const std::string& why) {
    write(kSmall);
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(place * 4);
    file.write(reinterpret_cast<const char*>(&number), 4);
    file.close();
    expect_error(ExitCode::kBadData, {path, why}, [&] { llmc_weights(path); });
  }
  TemporaryFolder folder;
  const std::string path = folder / "gpt2.bin";
};

TEST_F(LlmcWeights, WhatIsWrittenIsRead) {
  for (const bool bf16 : {false, true}) {
    LlmcHeader header = kSmall;
    header.bf16 = bf16;
    write(header);
    EXPECT_TRUE(has_llmc_magic(path));
    EXPECT_EQ(read_llmc_header(path).bf16, bf16);
    const WeightFiles files = WeightFiles::open(path);
    const auto tensors = llmc_tensors(header);
    ASSERT_EQ(files.weights().size(), tensors.size());
    EXPECT_EQ(tensors.size(), 4u + 12 * 2);
    for (const LlmcTensor& t : tensors) {
      SCOPED_TRACE(t.name);
      const StoredWeight* w = files.find(t.name);
      ASSERT_NE(w, nullptr);
      EXPECT_EQ(w->shape, t.shape);
      std::vector<float> values(static_cast<size_t>(t.shape.numel()));
      files.read(*w, {0, t.shape.numel()}, values.data());
      for (int64_t i = 0; i < t.shape.numel(); ++i) {
        const float v = value_of(t, i);  // bf16 has 8 bits of it
        EXPECT_NEAR(values[static_cast<size_t>(i)], v, bf16 ? v / 256 : 0);
      }
    }
  }
}

TEST_F(LlmcWeights, TheEmbeddingIsPaddedWithZeros) {
  write(kSmall);
  // 1024 bytes, then 130 rows of 4, and zeros up to 256 rows.
  std::ifstream file(path, std::ios::binary);
  file.seekg(1024 + 129 * 16);
  std::array<float, 12> rows{};
  file.read(reinterpret_cast<char*>(rows.data()), sizeof rows);
  EXPECT_EQ(rows[3], value_of(llmc_tensors(kSmall)[0], 519));
  for (size_t i = 4; i < 12; ++i) EXPECT_EQ(rows[i], 0);
  EXPECT_EQ(WeightFiles::open(path).find("wpe.weight")->begin, 1024 + 256 * 16);
}

TEST_F(LlmcWeights, WhatDoesNotFollowFromTheHeaderIsRefused) {
  refuse_with(0, 20240520, "is no file of llm.c: it begins with 20240520");  // tokens, not weights
  refuse_with(1, 1, "has version 1; 3 (GPT-2 in fp32) and 5 (GPT-2 in bf16) are read");
  refuse_with(1, 5, "truncated or damaged");
  refuse_with(2, 0, "its header says 0 positions");
  refuse_with(2, 7, "truncated or damaged");
  refuse_with(3, 120, "pads 120 tokens to 256");
  refuse_with(4, -1, "its header says -1 layers");
  refuse_with(4, 1 << 24, "too few for 16777216 layers");
  refuse_with(6, 1 << 24, "too few for 2 layers");
  refuse_with(7, 130, "pads 130 tokens to 130");
  write(kSmall);
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  expect_error(ExitCode::kBadData, {path, "truncated or damaged"}, [&] { llmc_weights(path); });
  std::filesystem::resize_file(path, 1000);
  EXPECT_FALSE(has_llmc_magic(path));
  expect_error(ExitCode::kBadData, {path, "too few for the header"}, [&] { llmc_weights(path); });
  write(kSmall);
  expect_error(ExitCode::kOutputLocked, {path},
               [&] { write_llmc_weights(path, kSmall, [](const LlmcTensor&, IndexRange, float*) {}); });
}

}  // namespace
}  // namespace lockstep::llmc_weights_test
