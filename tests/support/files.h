// What tests of files share: a temporary folder, damage, a full disk, an expected error.
// Owned by each test.
#pragma once

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <string>
#include <utility>

#include "core/base/error.h"

namespace lockstep::test {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "lockstep-XXXXXX").string();
    if (!::mkdtemp(name.data())) throw std::runtime_error("no temporary folder");
    path_ = name;
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  int64_t files() const {
    return std::distance(std::filesystem::directory_iterator(path_), std::filesystem::directory_iterator());
  }

 private:
  std::string path_;
};

// `action` throws an Error of this code whose message holds every part, on one line.
template <class Action>
void expect_error(ExitCode code, std::initializer_list<std::string> parts, Action action) {
  try {
    action();
  } catch (const Error& e) {
    std::string text = e.what();
    EXPECT_EQ(static_cast<int>(e.code()), static_cast<int>(code)) << text;
    EXPECT_EQ(text.find('\n'), text.npos) << text;
    for (const std::string& part : parts) EXPECT_NE(text.find(part), text.npos) << text << "\nlacks: " << part;
    return;
  }
  ADD_FAILURE() << "no error where code " << static_cast<int>(code) << " was due";
}

inline std::string content(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

inline void write_file(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary).write(text.data(), static_cast<std::streamsize>(text.size()));
}

// For an import's progress: at the first call another file takes the place of `path`, as where a program writes a new
// file and renames it.
inline std::function<void(int64_t, int64_t)> replaces_once(std::string path, std::string text) {
  return [path = std::move(path), text = std::move(text), done = false](int64_t, int64_t) mutable {
    if (std::exchange(done, true)) return;
    write_file(path + ".new", text);
    std::filesystem::rename(path + ".new", path);
  };
}

// Flips a bit of byte `offset` within the place where `bytes` lie in the file.
inline void flip_byte_of(const std::string& path, const void* bytes, size_t size, size_t offset) {
  std::string all = content(path);
  size_t at = all.find(std::string(static_cast<const char*>(bytes), size));
  ASSERT_NE(at, all.npos) << "those bytes are not in " << path;
  all[at + offset] = static_cast<char>(all[at + offset] ^ 4);
  write_file(path, all);
}

// While it lives no file of this process grows beyond `bytes`: writing more fails as on a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(uint64_t bytes) {
    handler_ = std::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &before_);
    rlimit limit{static_cast<rlim_t>(bytes), before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*handler_)(int) = nullptr;
};

}  // namespace lockstep::test
