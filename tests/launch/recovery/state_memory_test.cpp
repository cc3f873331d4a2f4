#include "launch/recovery/state_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "core/device/allocator.h"
#include "core/device/context.h"
#include "core/device/stream.h"
#include "core/state/checkpoint_part.h"
#include "core/tensor/raw_ops.h"
#include "tests/support/fake_gpu.h"

namespace lockstep::state_memory_test {
namespace {

Descriptor again(const StateMemory& memory) { return memory.read_only(); }

std::vector<StateEntry> entries(float value) {
  std::vector<StateEntry> out;
  out.push_back({"parameters/a", Shape{3, 5}, 0, Tensor::full({15}, value)});
  out.push_back({"adamw.m/a", Shape{3, 5}, 0, Tensor::full({15}, value + 1)});
  out.push_back({"parameters/big", Shape{1 << 20}, 1 << 18, Tensor::full({1 << 19}, value + 2)});
  return out;
}

CheckpointInfo info(int64_t step) {
  CheckpointInfo i;
  i.step = step;
  i.epoch = 2;
  i.position = 3 * step;
  i.updates = step;
  i.validation.best = 1.0 / 3;
  i.validation.best_step = step;
  i.dataset = "0123";
  i.math_text = "model:\n  name: gpt\n";
  i.config = "seed: 1\n";
  i.vocabulary = std::string(100'000, 'v');
  i.input = {4};
  i.classes = 7;
  return i;
}

StateMemory::Content content() { return {slices_of(entries(0)), 3, StateMemory::text_room_of(info(0))}; }

void expect_values(const StateMemory& memory, int64_t step, float value) {
  const std::vector<StoredSlice> slices = memory.slices(step);
  ASSERT_EQ(slices.size(), 3u);
  EXPECT_EQ(slices[2].offset, 1 << 18);
  float add = 0;
  for (const StoredSlice& s : slices) {
    for (int64_t k : {int64_t{0}, s.count / 2, s.count - 1}) EXPECT_EQ(s.values[k], value + add) << s.name << " " << k;
    add += 1;
  }
}

TEST(StateMemory, HasTheLastTwoStates) {
  StateMemory memory(content(), 2);
  EXPECT_TRUE(memory.steps().empty());
  for (int64_t step : {0, 1, 2}) memory.write(entries(10.0f * static_cast<float>(step)), info(step));
  const StateMemory read(again(memory));
  EXPECT_EQ(read.steps(), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(read.content().tensors, 3);
  expect_values(read, 1, 10);
  expect_values(read, 2, 20);
  const CheckpointInfo i = read.info(2);
  EXPECT_EQ(i.step, 2);
  EXPECT_EQ(i.position, 6);
  EXPECT_EQ(i.validation.best, 1.0 / 3);
  EXPECT_EQ(i.vocabulary, info(2).vocabulary);
  EXPECT_EQ(i.math_text, info(2).math_text);
  EXPECT_EQ(i.input, (Shape{4}));
  EXPECT_THROW(read.info(0), Error);
}

// Else the host would wait for the copy of each tensor.
TEST(StateMemory, OfAGpuIsPinnedSoThatTheHostWaitsOnceAStep) {
  Stream stream(testing::fake_gpu(), Stream::Mode::kInline);
  const WithStream with(stream);
  const auto on_gpu = [](float value) {
    std::vector<StateEntry> out = entries(value);
    for (StateEntry& e : out) e.data = raw::to_device(e.data, current_device());
    return out;
  };
  const auto waits_for = [&](StateMemory& memory, int64_t step, float value) {
    const std::vector<StateEntry> state = on_gpu(value);
    const int64_t before = testing::fake_gpu_plain_copies();
    memory.write(state, info(step));
    expect_values(memory, step, value);
    return testing::fake_gpu_plain_copies() - before;
  };
  StateMemory memory(content(), 2);
  EXPECT_EQ(waits_for(memory, 1, 10), 3);
  EXPECT_TRUE(memory.pin_for(current_device()));
  EXPECT_EQ(waits_for(memory, 2, 20), 0);
  EXPECT_EQ(waits_for(memory, 3, 30), 0);
  testing::fake_gpu(0, {.pins = false});
  StateMemory plain(content(), 2);
  EXPECT_FALSE(plain.pin_for(current_device()));
  EXPECT_EQ(waits_for(plain, 1, 10), 3);
  testing::fake_gpu();
}

TEST(StateMemory, WhatIsWrittenByAnotherProcessGoesOn) {
  StateMemory first(content(), 2);
  first.write(entries(1), info(5));
  StateMemory second(again(first));
  EXPECT_TRUE(second.has_room_for(content(), 2));
  EXPECT_FALSE(second.has_room_for(content(), 3));
  StateMemory::Content other = content();
  other.tensors = 4;
  EXPECT_FALSE(second.has_room_for(other, 2));
  other = content();
  other.slices.pop_back();
  EXPECT_FALSE(second.has_room_for(other, 2));
  CheckpointInfo longer = info(6);
  longer.config += "train: {steps: 3}\n";
  second.write(entries(2), longer);
  EXPECT_EQ(second.steps(), (std::vector<int64_t>{5, 6}));
  EXPECT_EQ(second.info(6).config, longer.config);
  EXPECT_EQ(second.info(5).config, info(5).config);
  expect_values(second, 5, 1);
  second.forget_after(5);
  EXPECT_EQ(second.steps(), (std::vector<int64_t>{5}));
  second.write(entries(3), info(6));  // in the place of the one that was forgotten
  EXPECT_EQ(second.steps(), (std::vector<int64_t>{5, 6}));
  expect_values(second, 6, 3);
  second.forget_after(std::numeric_limits<int64_t>::max());
  EXPECT_EQ(second.steps().size(), 2u);
}

TEST(StateMemory, IsCountedOnceByItsWriter) {
  const int64_t before = allocator_stats().in_use(MemoryUse::kInHost);
  {
    StateMemory memory(content(), 2);
    EXPECT_EQ(allocator_stats().in_use(MemoryUse::kInHost) - before, content().bytes(2));
    const StateMemory read(again(memory));
    EXPECT_EQ(allocator_stats().in_use(MemoryUse::kInHost) - before, content().bytes(2));
  }
  EXPECT_EQ(allocator_stats().in_use(MemoryUse::kInHost), before);
}

TEST(StateMemory, WhatIsNoneIsRefused) {
  const auto refused = [](const Descriptor& file) {
    try {
      StateMemory memory{file};
    } catch (const Error& e) {
      return e.code() == ExitCode::kBadData;
    }
    return false;
  };
  const Descriptor empty(::memfd_create("empty", MFD_CLOEXEC)), zeros(::memfd_create("zeros", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(zeros.number(), 1 << 20), 0);
  EXPECT_TRUE(refused(empty));
  EXPECT_TRUE(refused(zeros));
  StateMemory memory(content(), 2);
  memory.write(entries(1), info(1));
  // Every eight bytes of the header, changed: refused, or read without a fault.
  for (int64_t at = 0; at < 96; at += 8) {
    uint64_t before = 0, after = 0xfffffffffffffff0ULL;
    ASSERT_EQ(::pread(memory.file().number(), &before, 8, at), 8);
    ASSERT_EQ(::pwrite(memory.file().number(), &after, 8, at), 8);
    try {
      const StateMemory read(again(memory));
      for (int64_t step : read.steps()) read.info(step);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ExitCode::kBadData) << at;
    }
    ASSERT_EQ(::pwrite(memory.file().number(), &before, 8, at), 8);
  }
  expect_values(StateMemory(again(memory)), 1, 1);
}

// Every byte that means something, one bit at a time: no state is taken for what was written.
TEST(StateMemory, OneBitThatChangedIsFound) {
  StateMemory::Content few = content();
  few.slices.pop_back();
  std::vector<StateEntry> values = entries(1);
  values.pop_back();
  CheckpointInfo about = info(8);
  about.vocabulary = "v";
  few.text_room = StateMemory::text_room_of(about);
  StateMemory memory(few, 2);
  memory.write(values, about);
  ASSERT_TRUE(memory.damaged(8).empty());
  const auto flip = [&](int64_t at, int bit) {
    unsigned char byte = 0;
    ASSERT_EQ(::pread(memory.file().number(), &byte, 1, at), 1);
    byte = static_cast<unsigned char>(byte ^ (1 << bit));
    ASSERT_EQ(::pwrite(memory.file().number(), &byte, 1, at), 1);
  };
  const int64_t page = 4096, place = 2 * page, texts = place + page, numbers = texts + few.text_room;
  std::vector<int64_t> bytes;
  for (int64_t at = 0; at < 72 + 16; ++at) bytes.push_back(at);  // the header, with its hash and the step
  for (int64_t at = page; at < page + 40; ++at) bytes.push_back(at);
  for (int64_t at = place; at < place + 48; ++at) bytes.push_back(at);
  for (int64_t at = texts; at < texts + 300; at += 7) bytes.push_back(at);
  for (int64_t at = numbers; at < numbers + 60; ++at) bytes.push_back(at);
  for (const int64_t at : bytes) {
    const int bit = static_cast<int>(at % 8);
    flip(at, bit);
    bool found = false;
    try {
      const StateMemory read(again(memory));
      const std::vector<int64_t> steps = read.steps();
      found = steps.empty();
      for (int64_t step : steps) {
        const std::vector<size_t> bad = read.damaged(step);
        found = at >= numbers ? bad == std::vector<size_t>{0} : bad.size() == 2;
      }
    } catch (const Error& e) {
      found = e.code() == ExitCode::kBadData;
    }
    EXPECT_TRUE(found) << "byte " << at << ", bit " << bit;
    flip(at, bit);
  }
  EXPECT_TRUE(memory.damaged(8).empty());
}

TEST(StateMemory, IsOpenedByThisUserAloneAndKeepsItsSize) {
  StateMemory memory(content(), 2);
  memory.write(entries(1), info(1));
  struct stat about {};
  ASSERT_EQ(::fstat(memory.file().number(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, 0600u);
  EXPECT_NE(::ftruncate(memory.file().number(), 4096), 0);
  EXPECT_NE(::ftruncate(memory.file().number(), about.st_size + 4096), 0);
  const Descriptor given = memory.read_only();
  EXPECT_NE(::pwrite(given.number(), "x", 1, 0), 1);
  EXPECT_EQ(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, given.number(), 0), MAP_FAILED);
  expect_values(StateMemory(given), 1, 1);
}

TEST(StateMemory, MoreThanThereIsIsRefused) {
  StateMemory::Content much = content();
  much.slices.resize(1);
  much.slices[0].region = Shape{int64_t{1} << 50};
  much.slices[0].count = int64_t{1} << 50;
  try {
    StateMemory memory(much, 2);
    FAIL() << "so much memory is there";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::kDevice);
  }
}

TEST(StateMemory, WhatIsKeptStays) {
  StateMemory memory(content(), 3);
  memory.write(entries(1), info(1));
  auto first = memory.keep(1);
  for (int64_t step : {2, 3, 4}) memory.write(entries(static_cast<float>(step)), info(step));
  EXPECT_EQ(memory.steps(), (std::vector<int64_t>{1, 3, 4}));
  expect_values(memory, 1, 1);
  auto second = memory.keep(1);
  first.reset();
  memory.write(entries(5), info(5));
  EXPECT_EQ(memory.steps(), (std::vector<int64_t>{1, 4, 5}));
  second.reset();
  memory.write(entries(6), info(6));
  EXPECT_EQ(memory.steps(), (std::vector<int64_t>{4, 5, 6}));
}

TEST(StateMemory, ACopyIsTheSameStateOnceItIsWhole) {
  StateMemory memory(content(), 3);
  StateMemory copy(memory.content(), 2);
  for (int64_t step : {7, 9}) {
    memory.write(entries(static_cast<float>(step)), info(step));
    const Tensor from = memory.bytes_of(step), to = copy.begin_copy();
    ASSERT_EQ(from.numel(), to.numel());
    EXPECT_FALSE(copy.has(step));
    std::memcpy(to.write(), from.read(), static_cast<size_t>(from.numel()) * sizeof(float));
    copy.end_copy(step);
    expect_values(copy, step, static_cast<float>(step));
    EXPECT_EQ(copy.info(step).config, info(step).config);
  }
  EXPECT_EQ(copy.steps(), (std::vector<int64_t>{7, 9}));
}

}  // namespace
}  // namespace lockstep::state_memory_test
