// NcclChannel: a communicator of NCCL: carries calls on a GPU's memory out, and watches them. Owned by NcclComm's
// queue; the rank's thread calls, a thread of its own watches.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "comm/call_watch.h"
#include "comm/nccl_api.h"
#include "comm/queued_comm.h"

namespace lockstep {

class NcclChannel final : public Channel {
 public:
  // Collective among the ranks of `host`, by which they find each other. `stream`, a GPU's, is the one that calls will
  // be in, until close().
  NcclChannel(NcclApi& api, std::shared_ptr<Communicator> host, Stream& stream, const CommOptions& options,
              std::shared_ptr<const CallWatch> parent);
  ~NcclChannel() override;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string_view backend() const override { return "nccl"; }
  void run(const Call& call) override;
  std::shared_ptr<Channel> split(const Call&) override;
  void finish_sends(const std::function<bool()>&) override {}
  void abort(std::string_view why) override;
  std::optional<Error> failure() const override { return state_->failure(); }
  std::shared_ptr<const Work::Watch> watch() override { return watch_; }
  bool close(Stream& stream) override;

  // Collective: `bytes` of the GPU's memory that are a window of the library, until close(); they are free once nobody
  // holds them and the channel is closed. Counted by the allocator, under the current use. Null, on every rank alike,
  // where some rank cannot have them: its memory ends, or the library or the GPUs have no windows.
  std::shared_ptr<void> registered_memory(int64_t bytes);

  const std::shared_ptr<CallWatch>& state() const { return state_; }
  // Which calls this rank made so far: "17 calls of GPUs, 0123456789abcdef". Equal on all ranks.
  std::string history() const;

 private:
  struct Flight {
    Call call;
    std::shared_ptr<DeviceEvent> done;
  };

  class InLibrary;
  struct Registered;

  void make_board();
  void connect();
  bool add_window(const std::shared_ptr<Registered>& memory);
  void issue(const Call& call);
  void gather_parts(const Call& call);
  void reduce_parts(const Call& call);
  void exchange_parts(const Call& call);
  void poison(const Error& error);
  void stop_watching();
  // Of the watch thread:
  void watch_calls();
  void look();
  void follow_flights();
  void end_hanging_work(const Error& cause);

  NcclApi& api_;
  const std::shared_ptr<Communicator> host_;
  Stream& stream_;
  DeviceQueue& queue_;
  const CommOptions options_;
  const int rank_, size_;
  const std::shared_ptr<CallWatch> state_;
  std::shared_ptr<const Work::Watch> watch_;
  std::vector<std::shared_ptr<Registered>> registered_;
  bool registers_ = true;  // until it fails once
  int64_t calls_ = 0;
  uint64_t calls_hash_ = 0;

  mutable std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  NcclApi::Handle comm_ = nullptr;  // null once aborted or closed
  bool in_library_ = false;         // the rank's thread is
  std::deque<Flight> flights_;      // set in motion, not known to be done
  bool stopping_ = false, look_now_ = false;
  std::thread thread_;
};

}  // namespace lockstep
