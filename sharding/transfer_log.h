// TransferLog: when each bucket's parameters and gradients travelled in the last step, by the host's clock. Owned by
// DataParallel; the gather and reduce schedules write it.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "core/device/stream.h"

namespace lockstep {

// One collective of one bucket; times in seconds since the step began.
struct Transfer {
  enum class Kind { kGather, kReduce };
  Kind kind;
  std::string bucket;
  int64_t bytes = 0;  // of the whole bucket, as it travels
  double started_s = 0;
  double needed_s = 0, ready_s = 0;  // between these the host had to wait; what a GPU's queue waits is not in them
};

class TransferLog {
 public:
  // A step or an evaluation begins: forgets the last one's transfers.
  void restart() {
    begun_ = std::chrono::steady_clock::now();
    transfers_.clear();
  }
  double since_begin() const { return Seconds(std::chrono::steady_clock::now() - begun_).count(); }

  // Returns the transfer's index.
  size_t started(Transfer::Kind kind, const std::string& bucket, int64_t bytes) {
    transfers_.push_back({kind, bucket, bytes, since_begin()});
    return transfers_.size() - 1;
  }
  // The host asked for it at `needed_s`, and has it now.
  void ready(size_t index, double needed_s) {
    transfers_[index].needed_s = needed_s;
    transfers_[index].ready_s = since_begin();
  }
  // In the order in which they started.
  const std::vector<Transfer>& transfers() const { return transfers_; }

 private:
  std::vector<Transfer> transfers_;
  std::chrono::steady_clock::time_point begun_;
};

}  // namespace lockstep
