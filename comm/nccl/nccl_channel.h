// NcclChannel: one NCCL communicator. It executes calls on GPU memory and monitors them. Owned by NcclComm's queue; the
// rank's thread makes the calls, and the channel's own watch thread monitors them.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "comm/call_watch.h"
#include "comm/nccl/nccl_api.h"
#include "comm/queued_comm.h"

namespace lockstep {

class NcclChannel final : public Channel {
 public:
  // Of what a channel is a part: the ranks of `parent` that gave this color, in the order of their keys.
  struct Part {
    NcclChannel& parent;
    int color, key;
  };
  // Collective among the ranks of `host`, which is used to connect them. Calls run on `stream`, a GPU stream, until
  // close(). With CommOptions::nccl_shares a part shares its parent's resources, and every rank of the parent takes
  // part in making it: those without a color of their own by stay_out().
  NcclChannel(NcclApi& api, std::shared_ptr<Communicator> host, Stream& stream, const CommOptions& options,
              const Part* part);
  ~NcclChannel() override;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string_view backend() const override { return "nccl"; }
  void run(const Call& call) override;
  std::shared_ptr<Channel> split(const Call&) override;
  void finish_sends(const std::function<bool()>&) override {}
  void abort(const Error& why) override { poison(why); }
  std::optional<Error> failure() const override { return state_->failure(); }
  std::shared_ptr<const Work::Watch> watch() override { return watch_; }
  bool close(Stream& stream) override;

  // Collective: allocates `bytes` of GPU memory, registered as a window of NCCL until close(). The memory is freed once
  // there are no references to it and the channel is closed. The allocator counts it under the current use. Returns
  // null on every rank if any rank cannot register it: not enough memory, or no support for windows by the library or
  // the GPUs.
  std::shared_ptr<void> registered_memory(int64_t bytes);

  // Collective with those ranks that make a part of this channel: this one belongs to none.
  void stay_out();

  const std::shared_ptr<CallWatch>& state() const { return state_; }
  // The number of calls that this rank has made and a hash of them: "17 calls of GPUs, 0123456789abcdef". Equal on all
  // ranks that have made the same calls.
  std::string history() const;

 private:
  struct Flight {
    Call call;
    std::shared_ptr<DeviceEvent> done;
  };

  class InLibrary;
  struct Registered;

  void make_board();
  void connect(const Part* part);
  NcclApi::Handle made_within_deadline(const std::function<NcclApi::Handle()>& make);
  bool add_window(const std::shared_ptr<Registered>& memory);
  void issue(const Call& call);
  void gather_parts(const Call& call);
  void reduce_parts(const Call& call);
  void exchange_parts(const Call& call);
  void poison(const Error& error);
  void stop_watching();
  // These run on the watch thread:
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
  bool registers_ = true;  // false after the first failure
  int64_t calls_ = 0;
  uint64_t calls_hash_ = 0;

  mutable std::mutex mutex_;  // guards the following members
  std::condition_variable changed_;
  NcclApi::Handle comm_ = nullptr;  // null once aborted or closed
  bool in_library_ = false;         // the rank's thread is inside an NCCL call
  std::deque<Flight> flights_;      // launched, not known to be done
  bool stopping_ = false, look_now_ = false;
  std::thread thread_;
};

}  // namespace lockstep
