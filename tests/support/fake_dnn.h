// What a test says to the stand-in for cuDNN (cuda_stand_in/cudnn_frontend.h), and what was seen of it. One per
// process.
#pragma once

#include <cudnn_frontend.h>

#include <set>
#include <string>
#include <vector>

namespace lockstep::testing {

struct FakeDnn {
  size_t version = CUDNN_VERSION;
  std::set<std::string> refused = {};  // descriptions of graphs, of which none can be built: see FakeDnn::built
  bool ignores_masks = false;          // a library that is wrong
  bool ignores_windows = false;        // likewise
  int spoils_next = 0;                 // counts down with each attention; the one at which it reaches 0 has a wrong bit

  // Seen.
  int handles = 0, made = 0;             // alive, and made ever
  std::vector<std::string> built = {};   // "attention by AUTO", "attention's gradient", "convolution and bias", ...
  std::vector<std::string> ran = {};     // likewise
  int64_t most_workspace = 0;            // that an execution took
  std::vector<std::string> misuse = {};  // calls out of order, addresses that are not aligned, handles of another queue
};

FakeDnn& fake_dnn();

}  // namespace lockstep::testing
