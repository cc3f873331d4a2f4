#include "core/device/cuda/runtime/switches.h"

#include <cstdlib>
#include <sstream>

#include "core/base/error.h"

namespace lockstep::cuda {
namespace {

constexpr std::pair<const char*, bool Switches::*> kWords[] = {
    {"split_k", &Switches::split_k},
    {"no_gelu_epilogue", &Switches::no_gelu_epilogue},
    {"no_bias_gradient_epilogue", &Switches::no_bias_gradient_epilogue},
    {"fast_attention", &Switches::fast_attention},
    {"nccl_split", &Switches::nccl_split}};

}  // namespace

Switches switches_of(const std::string& words) {
  Switches out;
  std::istringstream in(words);
  for (std::string word; in >> word;) {
    bool known = false;
    std::string all;
    for (const auto& [name, member] : kWords) {
      if (word == name) out.*member = known = true;
      all += str(all.empty() ? "" : ", ", name);
    }
    require(known, ExitCode::kConfig, "LOCKSTEP_CUDA_TRY: there is no '", word, "'; it takes ", all);
  }
  return out;
}

std::string to_text(const Switches& s) {
  std::string out;
  for (const auto& [name, member] : kWords)
    if (s.*member) out += str(out.empty() ? "" : " ", name);
  return out;
}

bool is_on(const Switches& s, const std::string& word) {
  for (const auto& [name, member] : kWords)
    if (name == word) return s.*member;
  return false;
}

Switches& switches() {
  static Switches instance = [] {
    const char* words = std::getenv("LOCKSTEP_CUDA_TRY");
    return switches_of(words ? words : "");
  }();
  return instance;
}

}  // namespace lockstep::cuda
