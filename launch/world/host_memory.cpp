// Replaces the global operator new: as the standard library's, but its exception says how many bytes were requested,
// and for what. A program that defines its own operator new replaces this one.
#include <cstdio>
#include <cstdlib>
#include <new>

#include "core/device/context.h"

// Sanitizers define their own.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

namespace lockstep {
namespace {

class Refused final : public std::bad_alloc {
 public:
  explicit Refused(std::size_t bytes) {
    const std::string_view whom = context().memory_for;
    std::snprintf(text_, sizeof text_, "%zu bytes asked for%s%.*s", bytes, whom.empty() ? "" : " for ",
                  static_cast<int>(whom.size()), whom.data());
  }
  const char* what() const noexcept override { return text_; }

 private:
  char text_[160];
};

}  // namespace
}  // namespace lockstep

void* operator new(std::size_t bytes) {
  for (;;) {
    if (void* memory = std::malloc(bytes > 0 ? bytes : 1)) return memory;
    const auto handler = std::get_new_handler();
    if (!handler) throw lockstep::Refused(bytes);
    handler();
  }
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

#endif
