#include "tests/fuzz/fuzz.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

namespace lockstep::fuzz {
namespace {

class Folder {
 public:
  Folder() = default;
  Folder(const Folder&) = delete;
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  const std::string path = make_folder();
};

}  // namespace

void report(const std::string& what) {
  std::fprintf(stderr, "FINDING: %s\n", what.c_str());
  std::abort();
}

Outcomes& outcomes() {
  static Outcomes counts;
  return counts;
}

void count_refusal(const Error& e) {
  static const bool say = std::getenv("LOCKSTEP_FUZZ_SAY") != nullptr;
  if (say) std::fprintf(stderr, "refused with %d: %s\n", static_cast<int>(e.code()), e.what());
  ++outcomes().refused;
  outcomes().last_refusal = e.what();
}

std::string make_folder() {
  struct stat about = {};
  const char* given = std::getenv("TMPDIR");
  const bool memory = ::stat("/dev/shm", &about) == 0 && (about.st_mode & S_IWOTH) != 0;
  std::string path = given && *given ? given : memory ? "/dev/shm" : "/tmp";
  path += "/lockstep-fuzz-XXXXXX";
  if (!::mkdtemp(path.data())) report(str("no folder ", path, " can be made"));
  return path;
}

std::string scratch(const std::string& name) {
  static const Folder folder;
  return str(folder.path, "/", name);
}

void write_file(const std::string& path, std::string_view bytes) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  out.close();
  expect(out.good(), path, ": cannot be written");
}

std::vector<std::string_view> with_json_words(const std::vector<std::string_view>& more) {
  std::vector<std::string_view> out{"{", "}", "[", "]", ",", ":", "\"", "null", "true", "false", "-1", "0"};
  out.insert(out.end(), more.begin(), more.end());
  return out;
}

size_t mutate_with_words(uint8_t* data, size_t size, size_t capacity, unsigned seed,
                         const std::vector<std::string_view>& words) {
  std::minstd_rand random(seed);
  if (random() % 2 == 0) return LLVMFuzzerMutate(data, size, capacity);
  const std::string_view word = words[random() % words.size()];
  const size_t at = random() % (size + 1);
  const size_t replaced = random() % 2 == 0 ? std::min(size - at, random() % (word.size() + 4)) : 0;
  if (size - replaced + word.size() > capacity) return LLVMFuzzerMutate(data, size, capacity);
  std::memmove(data + at + word.size(), data + at + replaced, size - at - replaced);
  std::memcpy(data + at, word.data(), word.size());
  return size - replaced + word.size();
}

}  // namespace lockstep::fuzz
