// What imports that work on several threads, and go on after a kill, have in common. Plain functions.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "core/base/hash.h"
#include "core/device/thread_pool.h"
#include "data/import.h"
#include "data/partial_output.h"

namespace lockstep {

inline int import_threads(const ImportOptions& options) {
  return options.threads > 0 ? options.threads : available_cores();
}

// PartialOutput's description of an import: how it reads, its vocabulary, and its inputs. Empty, so that it always
// begins anew, where one of these is standard input.
inline std::string made_of(const std::string& how, const Vocabulary& vocabulary, const std::string& separator,
                           const std::vector<std::string>& inputs) {
  std::string out = cat(how, "\nvocabulary ", hash128(vocabulary_text(&vocabulary)), "\nseparator ", separator, "\n");
  for (const std::string& path : inputs) {
    if (path == "-") return "";
    out += described_input(path);
  }
  return out;
}

// Says when to save.
class SaveTimer {
 public:
  explicit SaveTimer(int64_t every) : every_(every) {}
  bool is_due(int64_t done) {
    if (last_ < 0) last_ = done;
    if (done - last_ < every_) return false;
    last_ = done;
    return any_ = true;
  }
  bool any() const { return any_; }  // it was due

 private:
  int64_t every_, last_ = -1;
  bool any_ = false;
};

}  // namespace lockstep
