// QueuedComm: the part of a communicator that all backends share. It checks arguments, orders each call after the work
// of the current stream, and runs it on the communicator's own stream, where a Channel, the part that differs between
// backends, executes it. Owned by a rank, like any Communicator.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/call.h"
#include "comm/communicator.h"

namespace lockstep {

// The backend of one communicator on one rank. Shared with work in progress, which may outlive the communicator if it
// hangs.
class Channel {
 public:
  virtual ~Channel() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::string_view backend() const = 0;
  // Do the ranks read each other's host memory (Communicator::share)? And by what; null where it is of one process.
  virtual bool shares_memory() const { return false; }
  virtual std::vector<int> machines() const { return std::vector<int>(static_cast<size_t>(size())); }
  virtual std::shared_ptr<const PeerMemory> peer_memory() const { return nullptr; }
  // Executes this rank's share of the call. On a stream thread, blocks until the share is done; with a GPU stream,
  // where the rank's own thread calls it, only launches the share. An error that it throws ends the communicator.
  virtual void run(const Call& call) = 0;
  // The same for CallKind::kSplit; returns null for color < 0.
  virtual std::shared_ptr<Channel> split(const Call& call) = 0;
  // Runs on the stream thread, between calls: progresses buffered sends until they are done, or until `more` returns
  // true because a call is waiting.
  virtual void finish_sends(const std::function<bool()>& more) = 0;
  // From any thread.
  virtual void abort(const Error& why) = 0;
  virtual std::optional<Error> failure() const = 0;
  // The watch of this channel's Work (communicator.h); null if run() enforces the deadline itself.
  virtual std::shared_ptr<const Work::Watch> watch() = 0;
  // Where time is simulated: when a call that may begin at `begin_s` would be done.
  virtual double simulated_end(const Call&, double begin_s) { return begin_s; }
  // Called when the rank makes no more calls. Returns false if a thread may hang in run() forever, so that the stream
  // must not be joined.
  virtual bool close(Stream& stream) = 0;
};

class QueuedComm final : public Communicator {
 public:
  // Stream::Mode::kInline is for a channel that never waits: its calls are done when they return. bytes_sent() of
  // `parent`, if given, includes what this one sends.
  explicit QueuedComm(std::shared_ptr<Channel> channel, Stream::Mode mode = Stream::Mode::kThread,
                      const QueuedComm* parent = nullptr);
  // For a channel that launches work on `stream`, a GPU stream.
  QueuedComm(std::shared_ptr<Channel> channel, std::unique_ptr<Stream> stream, const QueuedComm* parent);
  ~QueuedComm() override;

  int rank() const override { return channel_->rank(); }
  int size() const override { return channel_->size(); }
  std::string_view backend() const override { return channel_->backend(); }
  Work all_reduce(const Tensor& tensor, ReduceOp op, std::string_view label) override;
  Work reduce_scatter(const Tensor& out, const Tensor& in, const std::vector<int64_t>& counts, ReduceOp op,
                      std::string_view label) override;
  Work all_gather(const Tensor& out, const Tensor& in, const std::vector<int64_t>& counts,
                  std::string_view label) override;
  Work all_to_all(const Tensor& out, const std::vector<int64_t>& receive_counts,
                  const std::vector<int64_t>& receive_offsets, const Tensor& in,
                  const std::vector<int64_t>& send_counts, const std::vector<int64_t>& send_offsets,
                  std::string_view label) override;
  Work broadcast(const Tensor& tensor, int root, std::string_view label) override;
  Work send(const Tensor& tensor, int to, std::string_view label) override;
  Work receive(const Tensor& tensor, int from, std::string_view label) override;
  void barrier(std::string_view label) override { fence(label).finish(); }
  Work fence(std::string_view label) override { return run(start(CallKind::kBarrier, label), {}); }
  bool shares_memory() const override { return channel_->shares_memory(); }
  std::vector<int> machines() const override { return channel_->machines(); }
  Shared share(const Tensor& tensor, const std::vector<int64_t>& counts, std::string_view label) override;
  std::unique_ptr<Communicator> split(int color, int key, std::string_view label) override;
  std::unique_ptr<Communicator> split_axis(int stride, int extent, std::string_view label) override;
  int64_t bytes_sent() const override { return sent_bytes_->own; }
  void abort(const Error& why) override { channel_->abort(why); }
  std::optional<Error> failure() const override { return channel_->failure(); }

 private:
  struct Counters;  // counts calls; shared with the stream thread
  struct SentBytes {
    std::atomic<int64_t> own{0};
    std::shared_ptr<SentBytes> parent;  // incremented together with `own`; may be in use on another thread
  };

  Call start(CallKind kind, std::string_view label);
  Call between_two(CallKind kind, const Tensor& tensor, int peer, std::string_view label);
  int64_t& number_of(const Call& call);  // the counter of calls of this kind
  Work run(Call call, std::vector<Tensor> held);
  std::unique_ptr<Communicator> make_part(Call call);
  Work enqueue(const Call& call, std::vector<Tensor> held, Stream::Task task);

  std::shared_ptr<Channel> channel_;
  std::shared_ptr<Counters> counters_;
  std::unique_ptr<Stream> stream_;
  double simulated_s_ = 0;  // when the calls so far would be done
  int64_t collectives_ = 0;
  std::vector<int64_t> sends_, receives_;  // by peer
  std::shared_ptr<SentBytes> sent_bytes_ = std::make_shared<SentBytes>();
  bool sent_ = false;
  int exceptions_;  // std::uncaught_exceptions() at construction
  // On an asynchronous device the rank's own thread must release memory, since it frees it in the order of its stream.
  std::deque<std::pair<Event, std::vector<Tensor>>> held_;
};

}  // namespace lockstep
