#include "core/device/context.h"

#include "core/base/error.h"
#include "core/base/hash.h"
#include "core/base/philox.h"

namespace lockstep {

Context& context() {
  thread_local Context instance;
  return instance;
}

Stream& current_stream() {
  if (Stream* s = context().stream) return *s;
  thread_local Stream fallback(Device{}, Stream::Mode::kInline, 1);
  return fallback;
}

void check_no_other_queue(const DeviceQueue& queue) {
  const Stream* now = context().stream;
  check(!now || !now->device_queue() || now->device_queue().get() == &queue,
        "a kernel is set in motion, or takes scratch memory, in one stream of a GPU while another one is current");
}

uint64_t random_site(std::string_view dotted_name) {
  const uint64_t name = hash64(dotted_name);
  for (auto& [site, calls] : context().site_calls)
    if (site == name) return mix(name, ++calls);
  context().site_calls.emplace_back(name, 0);
  return mix(name, 0);
}

}  // namespace lockstep
