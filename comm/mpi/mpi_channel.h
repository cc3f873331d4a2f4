// MpiChannel: the channel of MpiComm (comm/mpi/mpi_comm.h), which runs one call after the other on the communicator's
// own stream thread. Its sources: mpi_comm.cpp begins, checks, splits and ends it; mpi_collectives.cpp has what
// travels.
#pragma once

#include <mpi.h>

#include <chrono>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "comm/call_watch.h"
#include "comm/machine_grid.h"
#include "comm/mpi/mpi_session.h"
#include "comm/peer_memory.h"
#include "comm/queued_comm.h"

namespace lockstep {

class MpiChannel final : public Channel {
 public:
  // Takes ownership of `comm`. Collective.
  MpiChannel(MPI_Comm comm, const CommOptions& options, std::shared_ptr<const CallWatch> parent);

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string_view backend() const override { return "mpi"; }
  bool shares_memory() const override { return reads_all(); }
  std::shared_ptr<const PeerMemory> peer_memory() const override { return peers_; }
  std::vector<int> machines() const override { return machines_; }
  void run(const Call& call) override;
  std::shared_ptr<Channel> split(const Call& call) override;
  void finish_sends(const std::function<bool()>& more) override;
  void abort(const Error& why) override {
    session().broken = true;
    state_->poison(why);
  }
  std::optional<Error> failure() const override { return state_->failure(); }
  std::shared_ptr<const Work::Watch> watch() override { return watch_; }
  bool close(Stream& stream) override;

 private:
  using Clock = std::chrono::steady_clock;
  // The memory of one buffered send until it is done.
  struct Header {
    int64_t numel;
    int64_t dtype;
    char details[112];
  };
  struct Pending {
    Header header;
    std::shared_ptr<void> bytes;
    std::vector<MPI_Request> requests;
  };
  // Marks a call as in progress while `work` runs; an error that `work` throws poisons the communicator.
  template <class F>
  void while_running(const Call& call, F&& work);
  void make_board();
  void open_peers(MPI_Comm host);
  bool reads_all() const { return peers_ && static_cast<int>(here_.size()) == size_; }
  bool has_stages() const { return grid_.machines > 1 && (grid_.ranks == 1 || peers_); }
  const void* offer(const Call& call) const;
  // Also waits for all ranks, and returns what they let each other read in this call, by rank, where ranks read each
  // other's memory.
  std::vector<const void*> check_agreement(const Call& call);
  void read_parts(const Call& call, const std::vector<const void*>& places);
  void all_reduce(const Call& call);
  void reduce_scatter(const Call& call);
  void broadcast(const Call& call);
  void gather_small(const Call& call);
  void gather_parts(const Call& call);
  void gather_in_stages(const Call& call);
  bool move_sends();  // what is buffered, as far as it goes; is something left?
  void send(const Call& call);
  void receive(const Call& call);
  struct Message {
    char* data;
    int64_t bytes;
    int peer;
  };
  // What a rank sends and receives in an exchange. Both lists go by rounds that all ranks have in common, and what goes
  // from one rank to another stands in the same order on both.
  struct Messages {
    std::vector<Message> sent, received;
    void send(const char* data, int64_t bytes, int to) { add(sent, const_cast<char*>(data), bytes, to); }
    void receive(char* data, int64_t bytes, int from) { add(received, data, bytes, from); }

   private:
    static void add(std::vector<Message>& list, char* data, int64_t bytes, int peer);  // in chunks
  };
  void exchange(const Call& call, const Messages& messages);

  const MPI_Comm comm_;
  const CommOptions options_;
  int rank_ = 0, size_ = 1;
  std::shared_ptr<CallWatch> state_;
  std::shared_ptr<const Work::Watch> watch_;
  std::list<Pending> pending_;  // a list, since MPI reads the headers in place
  // A rank that waits for others outside of MPI moves its messages on.
  const CallWatch::Progress progress_ = [this] { return move_sends(); };
  std::vector<char> scratch_;
  std::vector<int> job_ranks_;  // of the ranks of comm_
  std::vector<int> machines_;   // of the ranks of comm_ (Communicator::machines)
  std::vector<int> here_;       // the ranks of this machine, in order
  // Of those; null where some of them, on any machine, cannot read each other's memory.
  std::shared_ptr<const PeerMemory> peers_;
  MachineGrid grid_;
};

// Puts this rank's part of a gather into its place, which it returns.
char* put_own_part(const Call& call, int rank);

}  // namespace lockstep
