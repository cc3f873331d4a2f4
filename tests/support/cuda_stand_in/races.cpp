#include "tests/support/cuda_stand_in/races.h"

#include <link.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "tests/support/cuda_stand_in/cuda_runtime.h"

namespace cuda_stand_in::races {
namespace {

// Who touched a byte, and when: how many barriers of the block lay before it, and the thread's clock within its warp.
struct Access {
  uint32_t block = 0;
  uint16_t barriers = 0, thread = 0;
  uint32_t clock = 0;  // 0: no access
};
struct Cell {
  uint32_t launch = 0, block = 0;  // block: for shared memory, whose
  Access write, read, other_read;  // other_read: by another warp than `read`
};
// What is known of a piece of memory, for every `granule` bytes together: as many as all accesses so far have allowed.
constexpr uintptr_t kPage = 1024;
struct Page {
  uintptr_t granule = 16;
  std::array<Cell, kPage> cells;  // by byte, of which each granule's first counts

  void split() {
    granule /= 2;
    for (uintptr_t i = 0; i < kPage; i += 2 * granule) cells[i + granule] = cells[i];
  }
};
constexpr size_t kMostPages = 4096;  // kept from one launch to the next

struct Range {
  uintptr_t begin = 0, end = 0;
  bool contains(uintptr_t address) const { return address >= begin && address < end; }
};

Range range_of(const void* begin, size_t bytes) {
  return {reinterpret_cast<uintptr_t>(begin), reinterpret_cast<uintptr_t>(begin) + bytes};
}

struct Warp {
  uint32_t clock[32][32] = {};  // clock[l][m]: the accesses of lane m before this clock of m are before those of lane l
};

bool is_on = [] {
  const char* given = std::getenv("LOCKSTEP_STAND_IN_RACES");
  return given && std::strcmp(given, "1") == 0;
}();
bool watching = false;
uint32_t launches_seen = 0;
Access self;
Range stack, shared, extern_shared;
std::vector<Warp> warps;
std::unordered_map<uintptr_t, std::unique_ptr<Page>> pages;
struct Cached {
  uintptr_t number = 0;
  Page* page = nullptr;
};
std::array<Cached, 256> cache;

// Where the executable lies in memory.
const dl_phdr_info& executable() {
  static const dl_phdr_info found = [] {
    dl_phdr_info out{};
    const auto take = [](dl_phdr_info* info, size_t, void* to) {
      *static_cast<dl_phdr_info*>(to) = *info;
      return 1;  // the executable is the first
    };
    dl_iterate_phdr(take, &out);
    return out;
  }();
  return found;
}

// The executable's thread-local variables, as the calling thread has them: those of kernels are their shared memory.
Range shared_memory() {
  const dl_phdr_info& program = executable();
  for (int i = 0; i < program.dlpi_phnum; ++i) {
    const auto& segment = program.dlpi_phdr[i];
    const auto end = reinterpret_cast<uintptr_t>(__builtin_thread_pointer());
    if (segment.p_type == PT_TLS) return {(end - segment.p_memsz) / segment.p_align * segment.p_align, end};
  }
  return {};
}

Page& page_of(uintptr_t address) {
  const uintptr_t number = address / kPage;
  Cached& cached = cache[number % cache.size()];
  if (cached.number != number || !cached.page) {
    auto& page = pages[number];
    if (!page) page = std::make_unique<Page>();
    cached = {number, page.get()};
  }
  return *cached.page;
}

bool comes_before_self(const Access& other) {
  if (other.clock == 0) return true;
  if (other.block != self.block) return false;
  if (other.thread == self.thread || other.barriers != self.barriers) return true;
  if (other.thread / 32 != self.thread / 32) return false;
  return warps[self.thread / 32].clock[self.thread % 32][other.thread % 32] >= other.clock;
}

std::string text_of(const Access& a) {
  return "thread " + std::to_string(a.thread) + " of block " + std::to_string(a.block);
}
// The source line of a call, by a command that prints it.
std::string line_of(const void* caller) {
  char text[64];
  std::snprintf(text, sizeof text, "addr2line -Cife PROGRAM %#zx",
                reinterpret_cast<uintptr_t>(caller) - executable().dlpi_addr - 1);
  return text;
}

[[gnu::noinline]] void report(const std::string& what, uintptr_t address, const void* caller) {
  watching = false;
  const std::string text = "a race in " + std::string(shared.contains(address) ? "shared" : "global") +
                           " memory: " + text_of(self) + " " + what + " (" + line_of(caller) + ")";
  fail(text.c_str());
}

void touch(const void* memory, size_t size, bool writes, const void* caller) {
  const auto begin = reinterpret_cast<uintptr_t>(memory);
  if (stack.contains(begin)) return;
  const bool is_shared = shared.contains(begin);
  const uintptr_t end = begin + size;
  for (uintptr_t at = begin, granule = 0; at < end; at += granule) {
    Page& page = page_of(at);
    while ((at | end) % page.granule != 0) page.split();
    granule = page.granule;
    Cell& cell = page.cells[at % kPage];
    if (cell.launch != launches_seen || (is_shared && cell.block != self.block))
      cell = Cell{launches_seen, self.block, {}, {}, {}};
    if (!comes_before_self(cell.write))
      return report((writes ? "writes what was written by " : "reads what was written by ") + text_of(cell.write), at,
                    caller);
    if (writes) {
      for (const Access& read : {cell.read, cell.other_read})
        if (!comes_before_self(read)) return report("writes what was read by " + text_of(read), at, caller);
      cell.write = self;
    } else {
      if (is_shared && cell.write.clock == 0 && !extern_shared.contains(at))
        return report("reads what no thread of the block has written", at, caller);
      if (cell.read.clock != 0 && cell.read.thread / 32 != self.thread / 32) cell.other_read = cell.read;
      cell.read = self;
    }
  }
}

}  // namespace

bool enabled() { return is_on; }
void enable(bool on) { is_on = on; }

void begin_launch(const void* extern_array, size_t bytes) {
  if (!(watching = is_on)) return;
  ++launches_seen;
  shared = shared_memory();
  extern_shared = range_of(extern_array, bytes);
  if (pages.size() > kMostPages) {
    pages.clear();
    cache = {};
  }
}

void begin_block(unsigned threads) {
  if (!watching) return;
  warps.assign((threads + 31) / 32, {});
  for (Warp& warp : warps)
    for (int lane = 0; lane < 32; ++lane) warp.clock[lane][lane] = 1;
  self.block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  self.barriers = 0;
}

void begin_thread(unsigned thread, const void* stack_bottom, size_t stack_bytes) {
  if (!watching) return;
  self.thread = static_cast<uint16_t>(thread);
  self.clock = warps[thread / 32].clock[thread % 32][thread % 32];
  stack = range_of(stack_bottom, stack_bytes);
}

void meet_warp(unsigned warp, unsigned lanes) {
  if (!watching) return;
  auto& clock = warps[warp].clock;
  uint32_t latest[32] = {};
  for (unsigned l = 0; l < 32; ++l)
    if (lanes >> l & 1)
      for (int m = 0; m < 32; ++m) latest[m] = std::max(latest[m], clock[l][m]);
  for (unsigned l = 0; l < 32; ++l)
    if (lanes >> l & 1) {
      std::copy(latest, latest + 32, clock[l]);
      ++clock[l][l];
    }
  self.clock = clock[self.thread % 32][self.thread % 32];
}

void meet_block() {
  if (watching && ++self.barriers == 0) fail("more barriers than the race detector counts");
}

void end_launch() { watching = false; }

}  // namespace cuda_stand_in::races

// What GCC calls in code that is compiled with -fsanitize=thread.
#define LOCKSTEP_TOUCH(name, writes, size, ...)                 \
  void __tsan_##name(void* memory __VA_OPT__(, ) __VA_ARGS__);  \
  void __tsan_##name(void* memory __VA_OPT__(, ) __VA_ARGS__) { \
    using namespace cuda_stand_in::races;                       \
    if (watching) [[unlikely]]                                  \
      touch(memory, size, writes, __builtin_return_address(0)); \
  }
#define LOCKSTEP_TOUCHES(size)                      \
  LOCKSTEP_TOUCH(read##size, false, size)           \
  LOCKSTEP_TOUCH(write##size, true, size)           \
  LOCKSTEP_TOUCH(unaligned_read##size, false, size) \
  LOCKSTEP_TOUCH(unaligned_write##size, true, size)
extern "C" {
LOCKSTEP_TOUCHES(1)
LOCKSTEP_TOUCHES(2)
LOCKSTEP_TOUCHES(4)
LOCKSTEP_TOUCHES(8)
LOCKSTEP_TOUCHES(16)
LOCKSTEP_TOUCH(read_range, false, size, size_t size)
LOCKSTEP_TOUCH(write_range, true, size, size_t size)
void __tsan_init();
void __tsan_init() {}
void __tsan_vptr_update(void** place, void* table);
void __tsan_vptr_update(void**, void*) {}  // of objects of the host
}
