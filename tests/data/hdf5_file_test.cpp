// What the door to HDF5 promises: bytes come back, damage is named, a full disk is a storage error.
#include "core/io/hdf5/hdf5_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <thread>

#include "core/base/plain_file.h"
#include "core/base/system_call.h"
#include "core/io/llmc_weights.h"
#include "core/io/pending_file.h"
#include "tests/support/files.h"

namespace lockstep::hdf5_file_test {
namespace {

using test::content;
using test::expect_error;
using test::FileSizeLimit;
using test::flip_byte_of;
using test::TemporaryFolder;
using test::write_file;

class Hdf5FileTest : public ::testing::Test {
 protected:
  TemporaryFolder folder_;
  std::string path_ = folder_ / "a.h5";
};

std::vector<int32_t> counted(int64_t n) {
  std::vector<int32_t> v(static_cast<size_t>(n));
  std::iota(v.begin(), v.end(), 0x01020304);
  return v;
}

TEST_F(Hdf5FileTest, EveryTypeAndRangeComesBack) {
  const auto& types = all_stored_types();
  std::vector<uint8_t> bytes(1000 * 8);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i * 37 + i / 256);  // NaNs among them
  {
    auto file = Hdf5File::create(path_);
    for (StoredType t : types)
      for (int deflate : {0, 4})
        file.write_all(str("group/", t, deflate), t, {1000}, bytes.data(), {.chunk_rows = 64, .deflate = deflate});
    file.close();
  }
  auto file = Hdf5File::open(path_);
  EXPECT_EQ(file.list().size(), 20u);
  for (StoredType t : types)
    for (int deflate : {0, 4}) {
      std::string name = str("group/", t, deflate);
      EXPECT_TRUE(file.has(name));
      Hdf5Info info = file.info(name);
      EXPECT_EQ(info.type, t);
      EXPECT_EQ(info.shape, Shape({1000}));
      EXPECT_EQ(info.chunk_rows, 64);
      EXPECT_TRUE(info.checksum);
      for (IndexRange r : {IndexRange{0, 1000}, IndexRange{63, 65}, IndexRange{999, 1000}, IndexRange{5, 5}}) {
        size_t size = static_cast<size_t>(r.size() * size_of(t));
        std::vector<uint8_t> back(size, 0xAA);
        file.read(name, t, r, back.data());
        const uint8_t* from = bytes.data() + r.begin * size_of(t);
        EXPECT_TRUE(std::equal(back.begin(), back.end(), from)) << name;
      }
    }
}

TEST_F(Hdf5FileTest, RowsOfSeveralDimensionsAndPiecewiseWrites) {
  auto values = counted(7 * 2 * 3);
  {
    auto file = Hdf5File::create(path_);
    file.create_dataset("x", StoredType::kInt32, {7, 2, 3}, {.chunk_rows = 2});
    file.write("x", StoredType::kInt32, {3, 7}, values.data() + 18);
    file.write("x", StoredType::kInt32, {0, 3}, values.data());
    file.create_dataset("empty", StoredType::kFloat32, {0});
    file.close();
  }
  auto file = Hdf5File::open(path_);
  std::vector<int32_t> back(12);
  file.read("x", StoredType::kInt32, {2, 4}, back.data());
  EXPECT_TRUE(std::equal(back.begin(), back.end(), values.begin() + 12));
  EXPECT_EQ(file.info("empty").shape, Shape({0}));
  EXPECT_FALSE(file.has("y"));
  EXPECT_FALSE(file.has("y/z"));
  file.read("empty", StoredType::kFloat32, {0, 0}, nullptr);
}

TEST_F(Hdf5FileTest, AttributesComeBack) {
  {
    auto file = Hdf5File::create(path_);
    auto values = counted(3);
    file.write_all("x", StoredType::kInt32, {3}, values.data());
    for (const char* object : {"", "x"}) {
      file.set_attribute(object, "whole", int64_t{-5});
      file.set_attribute(object, "whole", int64_t{1} << 60);  // the last one counts
      file.set_attribute(object, "real", 0.1);
      file.set_attribute(object, "text", std::string("grüße"));
      file.set_attribute(object, "nothing", std::string());
      file.set_attribute(object, "list", std::vector<double>{1, 2.5});
    }
    file.close();
  }
  auto file = Hdf5File::open(path_);
  for (const char* object : {"", "x"}) {
    EXPECT_EQ(file.int_attribute(object, "whole"), int64_t{1} << 60);
    EXPECT_EQ(file.double_attribute(object, "real"), 0.1);
    EXPECT_EQ(file.string_attribute(object, "text"), "grüße");
    EXPECT_EQ(file.string_attribute(object, "nothing"), "");
    EXPECT_EQ(file.doubles_attribute(object, "list"), (std::vector<double>{1, 2.5}));
    EXPECT_FALSE(file.has_attribute(object, "other"));
  }
  expect_error(ExitCode::kBadData, {path_, "lacks attribute 'other' of dataset 'x'"},
               [&] { file.int_attribute("x", "other"); });
  expect_error(ExitCode::kBadData, {path_, "'text' is not a whole number"}, [&] { file.int_attribute("", "text"); });
  expect_error(ExitCode::kBadData, {path_, "is a list"}, [&] { file.double_attribute("x", "list"); });
}

TEST_F(Hdf5FileTest, NamesWhatIsWrongWithAFile) {
  expect_error(ExitCode::kMissingInput, {path_, "No such file"}, [&] { Hdf5File::open(path_); });
  expect_error(ExitCode::kBadData, {"is not a file"}, [&] { Hdf5File::open(folder_ / ""); });
  std::ofstream(path_).close();
  expect_error(ExitCode::kBadData, {path_, "is empty"}, [&] { Hdf5File::open(path_); });
  std::ofstream(path_) << std::string(5000, 'x');
  expect_error(ExitCode::kBadData, {path_, "not an HDF5 file"}, [&] { Hdf5File::open(path_); });
  auto values = counted(100000);
  {
    auto file = Hdf5File::create(path_);
    file.write_all("x", StoredType::kInt32, {100000}, values.data());
    file.close();
  }
  auto file = Hdf5File::open(path_);
  expect_error(ExitCode::kBadData, {path_, "no dataset 'y'"}, [&] { file.info("y"); });
  expect_error(ExitCode::kBadData, {path_, "'x' holds int32, not fp32"}, [&] {
    file.read("x", StoredType::kFloat32, {0, 1}, values.data());
  });
  expect_error(ExitCode::kBadData, {path_, "has 100000 rows, not [99999, 100001)"}, [&] {
    file.read("x", StoredType::kInt32, {99999, 100001}, values.data());
  });
}

TEST_F(Hdf5FileTest, EveryTruncationIsNoticedAndNeverCrashes) {
  auto values = counted(20000);
  {
    auto file = Hdf5File::create(path_);
    file.write_all("x", StoredType::kInt32, {20000}, values.data(), {.chunk_rows = 1000});
    file.close();
  }
  auto whole = std::filesystem::file_size(path_);
  std::vector<int32_t> back(20000);
  for (auto size = whole - 1; size > 0; size = size > 3000 ? size - 2777 : size / 2) {
    std::filesystem::resize_file(path_, size);
    expect_error(ExitCode::kBadData, {path_}, [&] {
      auto file = Hdf5File::open(path_);
      file.read("x", StoredType::kInt32, {0, 20000}, back.data());
    });
  }
}

TEST_F(Hdf5FileTest, AFlippedByteFailsItsChunkOnly) {
  auto values = counted(20000);
  {
    auto file = Hdf5File::create(path_);
    file.write_all("x", StoredType::kInt32, {20000}, values.data(), {.chunk_rows = 1000});
    file.close();
  }
  flip_byte_of(path_, values.data() + 4500, 40, 17);
  auto file = Hdf5File::open(path_);
  std::vector<int32_t> back(20000);
  file.read("x", StoredType::kInt32, {0, 4000}, back.data());
  file.read("x", StoredType::kInt32, {5000, 20000}, back.data());
  expect_error(ExitCode::kBadData, {path_, "dataset 'x', rows [4000, 4001)", "checksum differs"}, [&] {
    file.read("x", StoredType::kInt32, {4000, 4001}, back.data());
  });
}

TEST_F(Hdf5FileTest, AFullDiskIsAStorageErrorWhereverItStrikes) {
  auto values = counted(1 << 20);
  // Limits from the first bytes of metadata to the last chunk.
  for (uint64_t limit : {0u, 100u, 3000u, 300000u, 2000000u, 4190000u}) {
    test::FileSizeLimit full(limit);
    expect_error(ExitCode::kStorage, {path_}, [&] {
      auto file = Hdf5File::create(path_);
      file.create_dataset("x", StoredType::kInt32, {1 << 20});
      for (int64_t i = 0; i < 16; ++i)
        file.write("x", StoredType::kInt32, {i << 16, (i + 1) << 16}, values.data() + (i << 16));
      file.close();
    });
  }
  // And the door still works.
  auto file = Hdf5File::create(path_);
  file.write_all("x", StoredType::kInt32, {1 << 20}, values.data());
  file.close();
  std::vector<int32_t> back(1 << 20);
  Hdf5File::open(path_).read("x", StoredType::kInt32, {0, 1 << 20}, back.data());
  EXPECT_EQ(back, values);
}

// The ranges of the seal name all chunks and nothing else: so a large file is not read when it is opened, and no byte
// of metadata is left out.
TEST_F(Hdf5FileTest, TheSealLeavesOutTheChunksAlone) {
  const std::vector<int32_t> values = counted(1 << 17);
  {
    auto file = Hdf5File::create(path_);
    for (const char* name : {"a", "group/b", "c"}) file.write_all(name, StoredType::kInt32, {1 << 17}, values.data());
    for (int i = 0; i < 300; ++i)
      file.write_all(str("packed", i), StoredType::kInt32, {100}, values.data(), {.chunk_rows = 10, .deflate = 1});
    file.close();
  }
  const std::string good = test::content(path_);
  const auto number = [&](size_t at) {
    int64_t v;
    std::memcpy(&v, good.data() + at, sizeof v);
    return v;
  };
  const int64_t ranges = number(8) >> 32;
  ASSERT_GT(ranges, 0);
  ASSERT_LE(ranges, 253);
  int64_t left_out = 0;
  for (int64_t i = 0; i < ranges; ++i)
    left_out += number(56 + static_cast<size_t>(i) * 16) - number(48 + static_cast<size_t>(i) * 16);
  EXPECT_GE(left_out, 3 * (1 << 17) * 4);
  EXPECT_LT(left_out, 3 * ((1 << 17) * 4 + 2 * 4) + 300 * 10 * 60);
  Hdf5File::open(path_);
  const auto flip = [&](int64_t at) {
    std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(at);
    const int byte = file.get() ^ 16;
    file.seekp(at);
    file.put(static_cast<char>(byte));
  };
  const auto size = static_cast<int64_t>(good.size());
  int64_t at = 0, outside = 0;
  for (int64_t i = 0; i <= ranges; ++i) {
    const int64_t begin = i < ranges ? number(48 + static_cast<size_t>(i) * 16) : size;
    for (; at < begin; at += 409, ++outside) {
      flip(at);
      expect_error(ExitCode::kBadData, {path_}, [&] { Hdf5File::open(path_); });
      flip(at);
    }
    if (i == ranges) break;
    flip(begin);
    Hdf5File::open(path_);  // a chunk: found when it is read
    flip(begin);
    at = number(56 + static_cast<size_t>(i) * 16);
  }
  EXPECT_GT(outside, 100);
  Hdf5File::open(path_);
}

// As an older version wrote it, or h5py.
TEST_F(Hdf5FileTest, AFileWithoutASealOpensWithAWarning) {
  const auto values = counted(1000);
  {
    auto file = Hdf5File::create(path_);
    file.write_all("x", StoredType::kInt32, {1000}, values.data());
    file.close();
  }
  const std::string sealed = test::content(path_);
  test::write_file(path_, sealed.substr(4096));
  ::testing::internal::CaptureStderr();
  std::vector<int32_t> back(1000);
  Hdf5File::open(path_).read("x", StoredType::kInt32, {0, 1000}, back.data());
  Hdf5File::open(path_);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(back, values);
  EXPECT_NE(said.find(path_ + ": has no hash of its structure"), said.npos) << said;
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << "once: " << said;
  // Behind a block of another program's, such as MATLAB's of 512 bytes.
  for (const size_t block : {512, 2048, 8192}) {
    test::write_file(path_, std::string(block, 'M') + sealed.substr(4096));
    back.assign(1000, 0);
    Hdf5File::open(path_).read("x", StoredType::kInt32, {0, 1000}, back.data());
    EXPECT_EQ(back, values) << block;
  }
  test::write_file(path_, std::string(700, 'M') + sealed.substr(4096));
  expect_error(ExitCode::kBadData, {path_, "is not an HDF5 file"}, [&] { Hdf5File::open(path_); });
  // No other begin passes for an unsealed file: what stood in the seal's place is damage.
  for (const std::string& begin : {std::string(4096, '\0'), std::string(512, 'x'), std::string("locksteP")}) {
    test::write_file(path_, begin + sealed.substr(begin.size()));
    expect_error(ExitCode::kBadData, {path_, "is not an HDF5 file"}, [&] { Hdf5File::open(path_); });
  }
}

TEST_F(Hdf5FileTest, ManyThreadsReadOneFile) {
  auto values = counted(50000);
  {
    auto file = Hdf5File::create(path_);
    file.write_all("x", StoredType::kInt32, {50000}, values.data(), {.chunk_rows = 999});
    file.close();
  }
  auto file = Hdf5File::open(path_);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      std::vector<int32_t> back(5000);
      for (int64_t i = t; i < 10; i += 2) {
        file.read("x", StoredType::kInt32, {i * 5000, (i + 1) * 5000}, back.data());
        EXPECT_TRUE(std::equal(back.begin(), back.end(), values.begin() + i * 5000));
      }
    });
  for (auto& t : threads) t.join();
}

TEST_F(Hdf5FileTest, APendingFileShowsOnlyWhenWhole) {
  std::ofstream(path_) << "earlier";
  auto text = [&] {
    std::ifstream in(path_);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  std::string temporary;
  {
    PendingFile pending(path_, true);
    std::ofstream(temporary = pending.temporary()) << "half";
  }
  EXPECT_EQ(text(), "earlier");
  EXPECT_FALSE(std::filesystem::exists(temporary));
  expect_error(ExitCode::kOutputLocked, {path_, "already there"}, [&] { PendingFile(path_, false); });
  expect_error(ExitCode::kOutputLocked, {"its folder"}, [&] { PendingFile(folder_ / "no/a.h5", false); });
  PendingFile pending(path_, true);
  std::ofstream(pending.temporary()) << "whole";
  pending.commit();
  EXPECT_EQ(text(), "whole");
}

// The last one cannot get its name, since that is a folder by then.
TEST_F(Hdf5FileTest, PendingFilesAppearTogetherOrNotAtAll) {
  const std::string replaced = folder_ / "a", fresh = folder_ / "b", last = folder_ / "c";
  write_file(replaced, "earlier");
  {
    PendingFile a(replaced, true), b(fresh, false), c(last, true);
    for (PendingFile* f : {&a, &b, &c}) write_file(f->temporary(), "new");
    std::filesystem::create_directory(last);
    expect_error(ExitCode::kStorage, {last, "could not be renamed", "Is a directory"}, [&] {
      PendingFile::commit_all({&a, &b, &c});
    });
    EXPECT_EQ(content(replaced), "earlier");
    EXPECT_FALSE(std::filesystem::exists(fresh));
  }
  std::filesystem::remove(last);
  EXPECT_EQ(folder_.files(), 1);
  PendingFile a(replaced, true), b(fresh, false), c(last, true);
  for (PendingFile* f : {&a, &b, &c}) write_file(f->temporary(), "new");
  PendingFile::commit_all({&a, &b, &c});
  for (const std::string& path : {replaced, fresh, last}) EXPECT_EQ(content(path), "new");
  EXPECT_EQ(folder_.files(), 3);
}

// What a process that was killed left goes with the next; what one that lives writes, and what others made, stays.
TEST_F(Hdf5FileTest, WhatAKillLeftIsRemovedByTheNextPendingFile) {
  const auto other = [&](const std::string& name) { write_file(folder_ / name, "a user's"); };
  other("test.h5.part-2"), other("test.h5.part-0123456789abcdeX"), other("other.h5.part-0123456789abcdef");
  const std::string path = folder_ / "test.h5";
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const auto start = [&] {
    const pid_t child = ::fork();
    if (child == 0) {
      const PendingFile pending(path, true);
      write_file(pending.temporary(), "half");
      (void)!::write(ready[1], "x", 1);
      for (;;) ::pause();
    }
    char byte;
    EXPECT_EQ(::read(ready[0], &byte, 1), 1);
    return child;
  };
  const auto end = [](pid_t child) {
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
  };
  const pid_t living = start(), killed = start();
  EXPECT_EQ(folder_.files(), 5);
  end(killed);
  EXPECT_EQ(folder_.files(), 5);
  { const PendingFile next(path, true); }
  EXPECT_EQ(folder_.files(), 4);
  end(living);
  { const PendingFile next(path, true); }
  EXPECT_EQ(folder_.files(), 3);
  std::filesystem::create_directory(folder_ / "test.h5.part-0123456789abcdef");
  { const PendingFile next(path, true); }
  EXPECT_EQ(folder_.files(), 4);
}

// The reason is that of the call that failed, not of one before.
TEST_F(Hdf5FileTest, TheReasonOfAFailureIsItsOwn) {
  const Descriptor full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  ASSERT_TRUE(full);
  errno = ENOTTY;
  expect_error(ExitCode::kStorage, {"a.bin: cannot be written: No space left on device"},
               [&] { require_done(write_all(full, "x"), ExitCode::kStorage, "a.bin", ": cannot be written"); });
  write_file(path_, "x");
  errno = ENOTTY;
  expect_error(ExitCode::kMissingInput, {"No such file or directory"}, [&] { InputFile(path_ + ".not"); });
  errno = ENOTTY;
  expect_error(ExitCode::kStorage, {"File too large"}, [&] {
    const FileSizeLimit limit(10);
    write_llmc_weights(folder_ / "w.bin", {}, {});
  });
}

}  // namespace
}  // namespace lockstep::hdf5_file_test
