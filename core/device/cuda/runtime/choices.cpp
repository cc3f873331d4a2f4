#include "core/device/cuda/runtime/choices.h"

#include <map>
#include <mutex>
#include <set>

#include "core/base/error.h"

namespace lockstep::cuda {
namespace {

struct Choices {
  std::mutex mutex;
  std::map<std::string, std::string> of_shape;
  std::set<std::string> warned;
  void (*warn)(const std::string&) = nullptr;
};
Choices& choices() {
  static Choices all;
  return all;
}

}  // namespace

void record_choice(const std::string& shape, const std::string& choice) {
  std::lock_guard lock(choices().mutex);
  choices().of_shape[shape] = choice;
}

void set_choice_warning(void (*warn)(const std::string& line)) {
  std::lock_guard lock(choices().mutex);
  choices().warn = warn;
}

void record_fallback(const std::string& shape, const std::string& choice) {
  void (*warn)(const std::string&) = nullptr;
  {
    std::lock_guard lock(choices().mutex);
    choices().of_shape[shape] = choice;
    if (choices().warned.insert(shape).second) warn = choices().warn;
  }
  if (warn) warn(str("slower than the library's own way: ", shape, ": ", choice));
}

std::string algorithm_choices() {
  std::lock_guard lock(choices().mutex);
  std::string out;
  for (const auto& [shape, choice] : choices().of_shape) out += str(shape, ": ", choice, "\n");
  return out;
}

}  // namespace lockstep::cuda
