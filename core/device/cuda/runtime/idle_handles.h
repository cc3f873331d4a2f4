// Handles of libraries that no queue uses now, a list for each GPU: making one, and choosing its plans again, takes
// longer than all the work of a short-lived queue. Functions of one list per type and process, safe from any thread.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace lockstep::cuda {

// A handle for `gpu`, which must be current: one that is idle, or what make() returns as unique_ptr<Library>. It is the
// caller's alone, and becomes idle when its last owner lets go.
template <class Library, class Make>
std::shared_ptr<Library> take_handle(int gpu, Make make) {
  struct Idle {
    std::mutex mutex;
    std::map<int, std::vector<std::unique_ptr<Library>>> of_gpu;
  };
  static Idle& idle = *new Idle;  // never freed: at the process's end the library may be gone before
  std::unique_ptr<Library> handle;
  {
    std::lock_guard lock(idle.mutex);
    std::vector<std::unique_ptr<Library>>& mine = idle.of_gpu[gpu];
    if (!mine.empty()) {
      handle = std::move(mine.back());
      mine.pop_back();
    }
  }
  if (!handle) handle = make();
  return {handle.release(), [gpu](Library* used) {
            std::unique_ptr<Library> back(used);
            std::lock_guard lock(idle.mutex);
            idle.of_gpu[gpu].push_back(std::move(back));
          }};
}

}  // namespace lockstep::cuda
