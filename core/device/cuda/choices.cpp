#include "core/device/cuda/choices.h"

#include <map>
#include <mutex>

#include "core/base/error.h"

namespace lockstep::cuda {
namespace {

struct Choices {
  std::mutex mutex;
  std::map<std::string, std::string> of_shape;
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

std::string algorithm_choices() {
  std::lock_guard lock(choices().mutex);
  std::string out;
  for (const auto& [shape, choice] : choices().of_shape) out += cat(shape, ": ", choice, "\n");
  return out;
}

}  // namespace lockstep::cuda
