// Sizes as people write them, and figures that add up.
#include "launch/world/memory_report.h"

#include <gtest/gtest.h>

#include "core/base/error.h"

namespace lockstep::memory_report_test {
namespace {

TEST(MemoryReport, ReadsSizes) {
  EXPECT_EQ(parse_bytes("0", "x"), 0);
  EXPECT_EQ(parse_bytes("1000", "x"), 1000);
  EXPECT_EQ(parse_bytes("1000B", "x"), 1000);
  EXPECT_EQ(parse_bytes("512MB", "x"), 512'000'000);
  EXPECT_EQ(parse_bytes("80GiB", "x"), int64_t(80) << 30);
  EXPECT_EQ(parse_bytes("1.5 GB", "x"), 1'500'000'000);
  EXPECT_EQ(parse_bytes("2TiB", "x"), int64_t(2) << 40);
  for (const char* wrong : {"", "GB", "80 gigabytes", "80G", "-1GB", "nan", "inf", "1e30", "80GiB more", "8 0GB"}) {
    try {
      parse_bytes(wrong, "gpu-memory");
      ADD_FAILURE() << "'" << wrong << "' was taken";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ExitCode::kUsage);
      EXPECT_NE(std::string(e.what()).find(str("--gpu-memory ", wrong, ": is not a size")), std::string::npos)
          << e.what();
    }
  }
}

TEST(MemoryReport, WritesSizes) {
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(1023), "1023 B");
  EXPECT_EQ(bytes_text(1024), "1.00 KiB");
  EXPECT_EQ(bytes_text(1536), "1.50 KiB");
  EXPECT_EQ(bytes_text(int64_t(80) << 30), "80.0 GiB");
  EXPECT_EQ(bytes_text(int64_t(700) << 30), "700 GiB");
  for (int64_t bytes : {int64_t(1) << 12, int64_t(3) << 20, int64_t(80) << 30})
    EXPECT_EQ(parse_bytes(bytes_text(bytes), "x"), bytes);
}

TEST(MemoryReport, ALineHoldsEveryUseButScratch) {
  AllocatorStats stats;
  for (int i = 0; i < kMemoryUses; ++i) stats.peak_bytes += stats.peak_by_use[static_cast<size_t>(i)] = 1000 << i;
  JsonObject line;
  add_memory(line, stats, 77);
  const std::string text = json_line(line);
  int64_t sum = 0;
  for (auto& [key, value] : line)
    if (key != "peak_bytes" && key != "wire_bytes" && key != "in_host_bytes") sum += std::get<int64_t>(value);
  EXPECT_EQ(sum, json_integer(text, "peak_bytes"));
  EXPECT_EQ(sum, device_peak(stats));
  EXPECT_EQ(json_integer(text, "moments_bytes"), stats.peak_of(MemoryUse::kMoments));
  EXPECT_EQ(json_integer(text, "scratch_bytes"), std::nullopt);
  EXPECT_EQ(json_integer(text, "wire_bytes"), 77);
}

}  // namespace
}  // namespace lockstep::memory_report_test
