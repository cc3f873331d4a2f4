// What imports that work on several threads, and go on after a kill, have in common. Plain functions.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "core/base/hash.h"
#include "core/device/thread_pool.h"
#include "data/import/import.h"
#include "data/store/partial_output.h"

namespace lockstep {

inline int import_threads(const ImportOptions& options) {
  return options.threads > 0 ? options.threads : available_cores();
}

// PartialOutput's description of an import: how it reads, its vocabulary, and its inputs. Empty, so that it always
// begins anew, where one of these is standard input.
inline std::string made_of(const std::string& how, const Vocabulary& vocabulary, const std::string& separator,
                           const std::vector<std::string>& inputs) {
  // Earlier versions let the SentencePiece library choose among equal cuts.
  std::string out = str(how, "\nvocabulary ", hash128(vocabulary_text(&vocabulary)),
                        vocabulary.pieces() ? ", own search" : "", "\nseparator ", separator, "\n");
  for (const std::string& path : inputs) {
    if (path == "-") return "";
    out += described_input(path);
  }
  return out;
}

// Says when to save.
class SaveTimer {
 public:
  explicit SaveTimer(double every) : every_(every) {}
  bool is_due() {
    const auto now = std::chrono::steady_clock::now();
    if (std::chrono::duration<double>(now - last_).count() < every_) return false;
    return any_ = true;
  }
  void saved() { last_ = std::chrono::steady_clock::now(); }
  bool any() const { return any_; }  // it was due

 private:
  double every_;  // seconds, from the end of a save on
  bool any_ = false;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

}  // namespace lockstep
