#include "comm/progress_board.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>

#include "comm/mpi/mpi_launch.h"

namespace lockstep {

// Zeroed pages are a valid, empty board.
struct ProgressBoard::Shared {
  std::atomic<int> state;  // 0: none, 1: being written, 2: aborted
  int code;
  bool secondary;
  char why[1000];
  // Counts arrivals of all ranks, modulo 2^32: what those who wait sleep on.
  alignas(64) std::atomic<uint32_t> arrivals;
  std::atomic<int> sleepers;
};

struct alignas(64) ProgressBoard::Entry {
  static constexpr size_t kWords = 20;
  std::atomic<int64_t> number;
  std::atomic<uint32_t> version;  // odd while the text is written
  std::atomic<bool> left;
  std::atomic<int64_t> process, arrived;
  std::atomic<uint64_t> text[kWords];
  struct MarkedCall {
    static constexpr size_t kWords = 13;
    std::atomic<int64_t> number;  // 0 while the rest is written
    std::atomic<uint64_t> fingerprint, balance, details[kWords];
    std::atomic<const void*> place;
  };
  MarkedCall marks[kMarks];
};

namespace {

constexpr size_t kHeader = 1088;

std::unique_ptr<ProgressBoard> no_board() { return nullptr; }

std::string path_of(const std::string& name) {
  const char* folder = std::getenv(kSharedFolder);
  return (folder && *folder ? std::string(folder) : "/dev/shm") + name;
}

}  // namespace

std::string stopped_text(int64_t process) {
  if (process <= 0) return {};
  std::ifstream stat(str("/proc/", process, "/stat"));
  const std::string text((std::istreambuf_iterator<char>(stat)), {});
  const size_t after_name = text.rfind(") ");
  if (after_name == text.npos || after_name + 2 >= text.size()) return {};
  const char state = text[after_name + 2];
  if (state != 'T' && state != 't') return {};
  return str("its process ", process, " is stopped, by SIGSTOP or a debugger");
}

ProgressBoard::ProgressBoard(void* memory, size_t bytes) : memory_(memory), bytes_(bytes) {
  static_assert(sizeof(Shared) <= kHeader && std::atomic<uint64_t>::is_always_lock_free);
}

ProgressBoard::~ProgressBoard() { munmap(memory_, bytes_); }

ProgressBoard::Entry& ProgressBoard::at(int place) const {
  return reinterpret_cast<Entry*>(static_cast<char*>(memory_) + kHeader)[place];
}

std::unique_ptr<ProgressBoard> ProgressBoard::create(const std::string& name, int ranks) {
  const int file = ::open(path_of(name).c_str(), O_CREAT | O_EXCL | O_RDWR | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (file < 0) return no_board();
  // Reserves the memory now: otherwise a full /dev/shm would end the process with a signal at the first write.
  const bool there =
      posix_fallocate(file, 0, static_cast<off_t>(kHeader + sizeof(Entry) * static_cast<size_t>(ranks))) == 0;
  close(file);
  if (there)
    if (auto board = open(name, ranks)) return board;
  unlink(name);
  return no_board();
}

std::unique_ptr<ProgressBoard> ProgressBoard::open(const std::string& name, int ranks) {
  const size_t bytes = kHeader + sizeof(Entry) * static_cast<size_t>(ranks);
  const int file = ::open(path_of(name).c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC);
  if (file < 0) return no_board();
  struct stat about {};
  if (fstat(file, &about) != 0 || about.st_uid != geteuid() || about.st_size < static_cast<off_t>(bytes)) {
    close(file);  // another user made it
    return no_board();
  }
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (memory == MAP_FAILED) return no_board();
  return std::unique_ptr<ProgressBoard>(new ProgressBoard(memory, bytes));
}

void ProgressBoard::unlink(const std::string& name) { ::unlink(path_of(name).c_str()); }

void ProgressBoard::post(int place, int64_t number, const std::string& call) {
  Entry& p = at(place);
  uint64_t words[Entry::kWords] = {};
  memcpy(words, call.data(), std::min(call.size(), sizeof words - 1));
  p.version.fetch_add(1);
  for (size_t i = 0; i < Entry::kWords; ++i) p.text[i].store(words[i]);
  p.version.fetch_add(1);
  p.number.store(number);
}

void ProgressBoard::enter(int place) { at(place).process.store(getpid()); }
void ProgressBoard::leave(int place) { at(place).left.store(true); }

int64_t ProgressBoard::number(int place) const { return at(place).number.load(); }
bool ProgressBoard::left(int place) const { return at(place).left.load(); }
std::string ProgressBoard::stopped(int place) const { return stopped_text(at(place).process.load()); }

std::string ProgressBoard::last(int place) const {
  const Entry& p = at(place);
  uint64_t words[Entry::kWords + 1] = {};
  for (int attempt = 0; attempt < 100; ++attempt) {
    const uint32_t before = p.version.load();
    for (size_t i = 0; i < Entry::kWords; ++i) words[i] = p.text[i].load();
    if (before % 2 == 0 && p.version.load() == before) break;
  }
  return reinterpret_cast<const char*>(words);
}

void ProgressBoard::mark(int place, int64_t number, const Mark& mark) {
  Entry::MarkedCall& call = at(place).marks[number % kMarks];
  uint64_t words[Entry::MarkedCall::kWords] = {};
  memcpy(words, mark.details.data(), std::min(mark.details.size(), sizeof words - 1));
  call.number.store(0);
  call.fingerprint.store(mark.fingerprint);
  call.balance.store(mark.balance);
  call.place.store(mark.place);
  for (size_t i = 0; i < Entry::MarkedCall::kWords; ++i) call.details[i].store(words[i]);
  call.number.store(number);
}

std::optional<ProgressBoard::Mark> ProgressBoard::mark_of(int place, int64_t number) const {
  const Entry::MarkedCall& call = at(place).marks[number % kMarks];
  if (call.number.load() != number) return {};
  uint64_t words[Entry::MarkedCall::kWords + 1] = {};
  Mark mark{call.fingerprint.load(), call.balance.load(), {}, call.place.load()};
  for (size_t i = 0; i < Entry::MarkedCall::kWords; ++i) words[i] = call.details[i].load();
  if (call.number.load() != number) return {};  // overwritten meanwhile
  mark.details = reinterpret_cast<const char*>(words);
  return mark;
}

void ProgressBoard::arrive(int place) {
  Shared& s = *static_cast<Shared*>(memory_);
  at(place).arrived.fetch_add(1);
  s.arrivals.fetch_add(1);
  // Not FUTEX_PRIVATE: other processes sleep on it.
  if (s.sleepers.load() > 0) syscall(SYS_futex, &s.arrivals, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

bool ProgressBoard::all_arrived(int place, int ranks) const {
  const int64_t mine = at(place).arrived.load(std::memory_order_relaxed);
  for (int i = 0; i < ranks; ++i)
    if (at(i).arrived.load() < mine) return false;
  return true;
}

void ProgressBoard::wait_for_arrivals(int place, int ranks, std::chrono::milliseconds patience) const {
  // Yielding for a short time avoids the sleep of a core, which takes longer to end than most waits last.
  constexpr std::chrono::microseconds kYielding{30};
  const auto begun = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - begun < kYielding) {
    if (all_arrived(place, ranks)) return;
    sched_yield();
  }
  Shared& s = *static_cast<Shared*>(memory_);
  s.sleepers.fetch_add(1);
  while (std::chrono::steady_clock::now() - begun < patience) {
    const uint32_t seen = s.arrivals.load();
    if (all_arrived(place, ranks)) break;
    const timespec limit{0, std::chrono::nanoseconds(patience).count()};
    syscall(SYS_futex, &s.arrivals, FUTEX_WAIT, seen, &limit, nullptr, 0);
  }
  s.sleepers.fetch_sub(1);
}

void ProgressBoard::abort(const Error& why) {
  Shared& s = *static_cast<Shared*>(memory_);
  int none = 0;
  if (!s.state.compare_exchange_strong(none, 1)) return;
  s.code = static_cast<int>(why.code());
  s.secondary = why.is_secondary();
  const std::string_view text = why.what();
  memcpy(s.why, text.data(), std::min(text.size(), sizeof s.why - 1));
  s.state.store(2);
}

std::optional<Error> ProgressBoard::aborted() const {
  const Shared& s = *static_cast<const Shared*>(memory_);
  if (s.state.load() != 2) return {};
  const auto code = static_cast<ExitCode>(s.code);
  return s.secondary ? Error::secondary(code, s.why) : Error(code, s.why);
}

}  // namespace lockstep
