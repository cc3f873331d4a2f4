// The main() of a fuzz target where there is no libFuzzer: runs every file that is named or lies in a named folder,
// then mutations of them that depend on their number and the seed alone. A child process runs them and is replaced when
// it dies: what it was at lies in memory that is shared with it. A death is a finding: a signal, an uncaught exception,
// one allocation above 256 MiB, more than 512 MiB in all (with AddressSanitizer 2 GiB), or more than 30 s of processor
// time for one input. Inputs above 1 s of processor time are named and kept.
#include <dirent.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <random>

#include "core/base/hash.h"
#include "tests/fuzz/fuzz.h"

#ifdef __SANITIZE_ADDRESS__
#define LOCKSTEP_FUZZ_ASAN 1
#else
#define LOCKSTEP_FUZZ_ASAN 0
#endif

extern "C" __attribute__((weak)) size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t capacity,
                                                                unsigned seed);

#if LOCKSTEP_FUZZ_ASAN
// Deaths end in abort(), so that the place is found in one way; no single allocation above 256 MiB.
extern "C" const char* __asan_default_options() {
  return "abort_on_error=1:max_allocation_size_mb=256:quarantine_size_mb=16";
}
#else
// Every allocation of this process, those of C libraries too.
void check_allocation(size_t size);
extern "C" void* __libc_malloc(size_t size);
extern "C" void* __libc_calloc(size_t count, size_t size);
extern "C" void* __libc_realloc(void* old, size_t size);
extern "C" void* malloc(size_t size) {
  check_allocation(size);
  return __libc_malloc(size);
}
extern "C" void* calloc(size_t count, size_t size) {
  size_t all = 0;
  check_allocation(__builtin_mul_overflow(count, size, &all) ? SIZE_MAX : all);
  return __libc_calloc(count, size);
}
extern "C" void* realloc(void* old, size_t size) {
  check_allocation(size);
  return __libc_realloc(old, size);
}
#endif

namespace lockstep::fuzz {
namespace {

constexpr size_t kCapacity = 1 << 20;                         // bytes of the largest input
constexpr double kSlow = 1;                                   // s of processor time
constexpr int64_t kMemory = LOCKSTEP_FUZZ_ASAN ? 2048 : 512;  // MiB

struct Options {
  uint64_t runs = 0, seed = 1;
  unsigned timeout = 30;  // s of processor time for one input; one that waits may take ten times as long
  double seconds = 0;     // go on with mutations for so long; 0: `runs` alone decide
  std::string artifacts = "./";
  std::string tolerate;  // deaths within a library of this name are listed and do not fail
  bool keep_going = false;
  std::vector<std::string> paths;
};

// Written by the child, read by its parent.
struct Shared {
  uint64_t at = 0;                     // number of the input under way
  uint64_t accepted = 0, refused = 0;  // Outcomes
  double slowest = 0;                  // s
  int64_t memory_kib = 0;              // the most that was resident
  char place[256] = {};                // where it died: library and function
  size_t size = 0;                     // of the input under way
  uint8_t input[kCapacity];
};
Shared* shared = nullptr;

using Bytes = std::vector<uint8_t>;
std::vector<Bytes> seeds;
std::minstd_rand* random_of_mutation = nullptr;

size_t below(size_t n) { return n > 0 ? (*random_of_mutation)() % n : 0; }

double processor_seconds() {
  timespec t = {};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

int64_t resident_kib() {
  rusage use = {};
  ::getrusage(RUSAGE_SELF, &use);
  return use.ru_maxrss;
}

// The innermost frame that is neither the C library's, nor a sanitizer's, nor one of this file: these are the first 3.
void note_place() {
  if (shared->place[0] != '\0') return;
  void* frames[64];
  const int count = ::backtrace(frames, 64);
  Dl_info own = {};
  ::dladdr(reinterpret_cast<void*>(&note_place), &own);
  for (int i = 0; i < count; ++i) {
    Dl_info info = {};
    if (::dladdr(frames[i], &info) == 0 || !info.dli_fname) continue;
    const char* slash = std::strrchr(info.dli_fname, '/');
    const char* name = slash ? slash + 1 : info.dli_fname;
    if (std::strncmp(name, "libc.", 5) == 0 || std::strncmp(name, "libstdc++", 9) == 0 || std::strstr(name, "san.so") ||
        std::strncmp(name, "libgcc_s", 8) == 0)
      continue;
    if (i < 3 && std::strcmp(info.dli_fname, own.dli_fname) == 0) continue;
    if (info.dli_sname && std::strstr(info.dli_sname, "fuzz6report")) continue;
    std::snprintf(shared->place, sizeof shared->place, "%s: %s", name, info.dli_sname ? info.dli_sname : "?");
    return;
  }
}

void on_death(int signal) {
  note_place();
  std::signal(signal, SIG_DFL);
  ::raise(signal);
}

void watch_deaths() {
  static char stack[1 << 16];
  stack_t alternate = {};
  alternate.ss_sp = stack, alternate.ss_size = sizeof stack;
  ::sigaltstack(&alternate, nullptr);
  struct sigaction action = {};
  action.sa_handler = on_death;
  action.sa_flags = SA_ONSTACK | SA_NODEFER;
  for (int signal : {SIGABRT, SIGALRM, SIGPROF}) ::sigaction(signal, &action, nullptr);
  if (!LOCKSTEP_FUZZ_ASAN)
    for (int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) ::sigaction(signal, &action, nullptr);
  void* frame;
  ::backtrace(&frame, 1);  // loads what it needs now, not in the handler
}

size_t mutate_once(uint8_t* data, size_t size, size_t capacity) {
  const size_t at = below(size + 1);
  auto insert = [&](const uint8_t* bytes, size_t n) {
    n = std::min(n, capacity - size);
    if (n == 0) return size;
    std::memmove(data + at + n, data + at, size - at);
    std::memcpy(data + at, bytes, n);
    return size + n;
  };
  switch (below(9)) {
    case 0:  // a bit
      if (at < size) data[at] ^= static_cast<uint8_t>(1u << below(8));
      return size;
    case 1:  // a byte
      if (at < size) data[at] = static_cast<uint8_t>(below(256));
      return size;
    case 2: {  // a number at its limits, of 1 to 8 bytes, in both orders
      constexpr uint64_t kLimits[] = {0,
                                      1,
                                      0x7f,
                                      0x80,
                                      0xff,
                                      0x7fff,
                                      0xffff,
                                      0x10000,
                                      0x7fffffff,
                                      0x80000000,
                                      0xffffffff,
                                      0x100000000,
                                      0x7fffffffffffffff,
                                      0x8000000000000000,
                                      UINT64_MAX};
      const uint64_t value = kLimits[below(std::size(kLimits))];
      const size_t width = size_t{1} << below(4);
      const bool big = below(2) == 0;
      for (size_t i = 0; i < width && at + i < size; ++i)
        data[at + i] = static_cast<uint8_t>(value >> (8 * (big ? width - 1 - i : i)));
      return size;
    }
    case 3: {  // a few bytes more
      uint8_t bytes[16];
      for (uint8_t& b : bytes) b = static_cast<uint8_t>(below(256));
      return insert(bytes, 1 + below(sizeof bytes));
    }
    case 4: {  // some bytes less
      const size_t n = std::min(size - at, 1 + below(below(4) == 0 ? size : 16));
      std::memmove(data + at, data + at + n, size - at - n);
      return size - n;
    }
    case 5: {  // a piece once more, here or in place of what is here
      const size_t from = below(size), n = std::min(size - from, 1 + below(64));
      const Bytes piece(data + from, data + from + n);
      if (below(2) == 0) return insert(piece.data(), n);
      std::copy_n(piece.begin(), std::min(n, size - at), data + at);
      return size;
    }
    case 6: {  // a piece of another seed
      const Bytes& other = seeds[below(seeds.size())];
      const size_t from = below(other.size());
      return insert(other.data() + from, std::min(other.size() - from, 1 + below(64)));
    }
    case 7:  // a digit
      for (size_t i = at; i < size; ++i)
        if (data[i] >= '0' && data[i] <= '9') {
          data[i] = static_cast<uint8_t>('0' + below(10));
          break;
        }
      return size;
    default: return below(8) == 0 ? at : size;  // cut short, not too often
  }
}

// Input number `n`, into `shared`: the files first, then their mutations.
void make_input(uint64_t n, const Options& o) {
  const Bytes& seed = seeds[n % seeds.size()];
  std::copy(seed.begin(), seed.end(), shared->input);
  size_t size = seed.size();
  if (n >= seeds.size()) {
    std::minstd_rand random(static_cast<unsigned>(hash64(&n, sizeof n, o.seed)));
    random_of_mutation = &random;
    const size_t capacity = std::min(kCapacity, 2 * seed.size() + 4096);
    for (size_t edits = size_t{1} << below(4); edits > 0; --edits)
      size = LLVMFuzzerCustomMutator
                 ? LLVMFuzzerCustomMutator(shared->input, size, capacity, static_cast<unsigned>(random()))
                 : LLVMFuzzerMutate(shared->input, size, capacity);
  }
  shared->size = size;
}

void keep_input(const Options& o, const std::string& kind) {
  const std::string path = str(o.artifacts, kind, "-", to_hex(hash128(shared->input, shared->size)).substr(0, 16));
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(shared->input), static_cast<std::streamsize>(shared->size));
  std::fprintf(stderr, "input %llu of %zu bytes is kept in %s\n", static_cast<unsigned long long>(shared->at),
               shared->size, path.c_str());
}

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

// Ends the process by SIGPROF after so many seconds of processor time, or by SIGALRM where it waits; 0: no longer.
void limit_time(unsigned seconds) {
  itimerval limit{};
  limit.it_value.tv_sec = seconds;
  ::setitimer(ITIMER_PROF, &limit, nullptr);
  ::alarm(10 * seconds);
}

// The child: from shared->at on. Returns when all is done.
void work(const Options& o, Clock::time_point begin) {
  watch_deaths();
  const uint64_t accepted = shared->accepted, refused = shared->refused;
  auto more = [&] {
    if (shared->at < seeds.size() + o.runs) return true;
    return o.seconds > 0 && seconds_since(begin) < o.seconds;
  };
  for (; more(); ++shared->at) {
    make_input(shared->at, o);
    const Bytes input(shared->input, shared->input + shared->size);  // of exactly this size, for AddressSanitizer
    limit_time(o.timeout);
    const double start = processor_seconds();
    LLVMFuzzerTestOneInput(input.data(), input.size());
    const double seconds = processor_seconds() - start;
    limit_time(0);
    shared->accepted = accepted + outcomes().accepted;
    shared->refused = refused + outcomes().refused;
    shared->slowest = std::max(shared->slowest, seconds);
    if (seconds > kSlow) {
      std::fprintf(stderr, "SLOW: %.1f s of processor time\n", seconds);
      keep_input(o, "slow");
    }
    shared->memory_kib = std::max(shared->memory_kib, resident_kib());
    if (shared->memory_kib > kMemory << 10) report(str("more than ", kMemory, " MiB are resident"));
  }
}

std::string death_text(int status, const Options& o) {
  if (!WIFSIGNALED(status)) return str("exit code ", WEXITSTATUS(status));
  const int signal = WTERMSIG(status);
  const std::string name = ::strsignal(signal);
  if (signal == SIGPROF) return str("more than ", o.timeout, " s of processor time");
  return signal == SIGALRM ? str("more than ", 10 * o.timeout, " s") : str("signal ", signal, " (", name, ")");
}

std::string list_text(const std::map<std::string, int64_t>& places) {
  std::string out;
  for (const auto& [place, count] : places) out += str("  ", count, " times ", place, "\n");
  return out;
}

void load(const std::string& path, bool named) {
  namespace fs = std::filesystem;
  if (fs::is_directory(path)) {
    std::vector<std::string> files;
    for (const auto& entry : fs::directory_iterator(path)) files.push_back(entry.path().string());
    std::sort(files.begin(), files.end());
    for (const std::string& file : files) load(file, false);
    return;
  }
  std::ifstream in(path, std::ios::binary);
  Bytes bytes{std::istreambuf_iterator<char>(in), {}};
  require(!in.bad() && (!named || fs::is_regular_file(path)), ExitCode::kMissingInput, path, ": cannot be read");
  require(bytes.size() <= kCapacity, ExitCode::kUsage, path, ": is larger than ", kCapacity, " bytes");
  seeds.push_back(std::move(bytes));
}

Options parse(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    const std::string given = argv[i];
    const size_t equals = given.find('=');
    const std::string value = equals == given.npos ? "" : given.substr(equals + 1);
    if (given.rfind("-runs=", 0) == 0) o.runs = std::stoull(value);
    else if (given.rfind("-seed=", 0) == 0) o.seed = std::stoull(value);
    else if (given.rfind("-timeout=", 0) == 0) o.timeout = static_cast<unsigned>(std::stoul(value));
    else if (given.rfind("-max_total_time=", 0) == 0) o.seconds = std::stod(value);
    else if (given.rfind("-artifact_prefix=", 0) == 0) o.artifacts = value;
    else if (given.rfind("-tolerate=", 0) == 0) o.tolerate = value;
    else if (given.rfind("-ignore_crashes=", 0) == 0) o.keep_going = value == "1";
    else if (given.rfind("-", 0) != 0) o.paths.push_back(given);
    else throw Error(ExitCode::kUsage, str("there is no option ", given));
  }
  require(!o.paths.empty(), ExitCode::kUsage,
          "usage: PROGRAM [-runs=N] [-seed=N] [-max_total_time=SECONDS] [-timeout=SECONDS]"
          " [-artifact_prefix=FOLDER/] [-ignore_crashes=1] [-tolerate=LIBRARY] FILE|FOLDER...");
  return o;
}

int supervise(const Options& o) {
  for (const std::string& path : o.paths) load(path, true);
  require(!seeds.empty(), ExitCode::kMissingInput, o.paths[0], ": holds no files");
  void* memory = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  require(memory != MAP_FAILED, ExitCode::kInternal, "mmap failed");
  shared = new (memory) Shared;
  // Whatever the children leave in scratch folders is removed with this one.
  const std::string folder = make_folder();
  ::setenv("TMPDIR", folder.c_str(), 1);

  const auto begin = Clock::now();
  std::map<std::string, int64_t> findings, tolerated;
  for (;;) {
    std::fflush(nullptr);
    const pid_t child = ::fork();
    require(child >= 0, ExitCode::kInternal, "fork failed");
    if (child == 0) {
      shared->place[0] = '\0';
      work(o, begin);
      std::exit(0);
    }
    int status = 0;
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) std::filesystem::remove_all(entry.path());
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) break;
    const std::string death = str(death_text(status, o), " in ", shared->place[0] ? shared->place : "an unknown place");
    if (!o.tolerate.empty() && std::string_view(shared->place).starts_with(o.tolerate)) {
      if (++tolerated[death] == 1) keep_input(o, "tolerated");
    } else {
      std::fprintf(stderr, "CRASH: %s\n", death.c_str());
      keep_input(o, "crash");
      ++findings[death];
      if (!o.keep_going) break;
    }
    ++shared->at;
  }
  std::filesystem::remove_all(folder);
  const double seconds = seconds_since(begin);
  std::printf(
      "%llu inputs, %zu of them seeds, in %.1f s, %.0f a second; %llu times accepted, %llu times refused;"
      " slowest %.2f s, at most %lld MiB\n",
      static_cast<unsigned long long>(shared->at), seeds.size(), seconds,
      static_cast<double>(shared->at) / std::max(seconds, 1e-3), static_cast<unsigned long long>(shared->accepted),
      static_cast<unsigned long long>(shared->refused), shared->slowest,
      static_cast<long long>(shared->memory_kib >> 10));
  if (!tolerated.empty()) std::printf("deaths within %s:\n%s", o.tolerate.c_str(), list_text(tolerated).c_str());
  if (!findings.empty()) std::printf("findings:\n%s", list_text(findings).c_str());
  return findings.empty() ? 0 : 1;
}

}  // namespace
}  // namespace lockstep::fuzz

#if !LOCKSTEP_FUZZ_ASAN
__attribute__((noinline)) void check_allocation(size_t size) {
  if (size <= (size_t{256} << 20)) return;
  if (lockstep::fuzz::shared) lockstep::fuzz::note_place();
  lockstep::fuzz::report("one allocation of more than 256 MiB");
}
#endif

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t capacity) {
  return lockstep::fuzz::mutate_once(data, size, capacity);
}

int main(int argc, char** argv) {
  try {
    return lockstep::fuzz::supervise(lockstep::fuzz::parse(argc, argv));
  } catch (const lockstep::Error& e) {
    std::fprintf(stderr, "%s: %s\n", argv[0], e.what());
    return static_cast<int>(e.code());
  }
}
