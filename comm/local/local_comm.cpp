#include "comm/local/local_comm.h"

#include <algorithm>
#include <cstring>

#include "comm/local/local_group.h"
#include "comm/machine_grid.h"
#include "comm/queued_comm.h"
#include "comm/reduce.h"
#include "comm/staged_channel.h"
#include "core/base/partition.h"

namespace lockstep {
namespace {

using Calls = std::vector<const Call*>;

void copy_elements(char* to, const char* from, int64_t count, DType dtype) {
  if (count > 0 && to != from) memcpy(to, from, static_cast<size_t>(count * size_of(dtype)));
}

// Each rank reduces one slice and writes the result to every rank, in one pass over the memory.
void all_reduce(int rank, const Calls& calls) {
  const Call& mine = *calls[static_cast<size_t>(rank)];
  const int64_t line = 64;  // slices begin at multiples of a cache line of bytes
  const IndexRange lines = split_evenly(ceil_div(mine.numel, line), static_cast<int64_t>(calls.size()), rank);
  const int64_t begin = lines.begin * line, end = std::min(lines.end * line, mine.numel);
  if (begin >= end) return;
  std::vector<const void*> in;
  std::vector<void*> out;
  for (const Call* c : calls) {
    in.push_back(c->in_at(begin));
    out.push_back(c->out_at(begin));
  }
  reduce_in_order(mine.op, mine.dtype, in, out, end - begin);
}

void reduce_scatter(int rank, const Calls& calls) {
  const auto r = static_cast<size_t>(rank);
  const Call& mine = *calls[r];
  if (mine.counts[r] == 0) return;
  std::vector<const void*> in;
  for (const Call* c : calls) in.push_back(c->in_at(mine.offsets[r]));
  reduce_in_order(mine.op, mine.dtype, in, {mine.out}, mine.counts[r]);
}

// Copies the other ranks' parts, beginning with the next rank, so that the ranks do not all read from the same one.
void gather_parts(int rank, const Calls& calls) {
  const auto r = static_cast<size_t>(rank);
  const Call& mine = *calls[r];
  for (size_t i = 0; i < calls.size(); ++i) {
    const size_t q = (r + i) % calls.size();
    const Call& theirs = *calls[q];
    const int64_t at = mine.kind == CallKind::kAllToAll ? theirs.send_offsets[r] : 0;
    copy_elements(mine.out_at(mine.offsets[q]), theirs.in_at(at), mine.counts[q], mine.dtype);
  }
}

void broadcast(int rank, const Calls& calls) {
  const Call& mine = *calls[static_cast<size_t>(rank)];
  if (rank != mine.peer)
    copy_elements(mine.out_at(0), calls[static_cast<size_t>(mine.peer)]->in_at(0), mine.numel, mine.dtype);
}

class LocalChannel final : public Channel {
 public:
  LocalChannel(std::shared_ptr<LocalGroup> group, int rank) : group_(std::move(group)), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return group_->size(); }
  std::string_view backend() const override { return "local"; }
  bool shares_memory() const override { return true; }
  std::vector<int> machines() const override { return group_->machines(); }

  void run(const Call& call) override {
    switch (call.kind) {
      case CallKind::kSend: return group_->send(rank_, call);
      case CallKind::kReceive: return group_->receive(rank_, call);
      default: return group_->meet(rank_, call, [&](const Calls& calls) { share(calls); });
    }
  }

  std::shared_ptr<Channel> split(const Call& call) override {
    std::shared_ptr<LocalGroup> made;
    Call posted = call;
    posted.out = &made;
    int new_rank = 0;
    group_->meet(rank_, posted, [&](const Calls& calls) {
      if (call.color < 0) return;
      const std::vector<int> members = members_of(call.color, calls);
      new_rank = static_cast<int>(std::find(members.begin(), members.end(), rank_) - members.begin());
      if (new_rank != 0) return;
      std::vector<int> machines;
      for (const int q : members) machines.push_back(group_->machines()[static_cast<size_t>(q)]);
      auto group = std::make_shared<LocalGroup>(MachineGrid::numbered(std::move(machines)), group_->options());
      group_->add_child(group);
      for (int q : members) *static_cast<std::shared_ptr<LocalGroup>*>(calls[static_cast<size_t>(q)]->out) = group;
    });
    return made ? std::make_shared<LocalChannel>(std::move(made), new_rank) : nullptr;
  }

  void finish_sends(const std::function<bool()>&) override {}
  void abort(const Error& why) override { group_->abort(why); }
  std::optional<Error> failure() const override { return group_->failure(); }
  std::shared_ptr<const Work::Watch> watch() override { return nullptr; }
  bool close(Stream& stream) override {
    try {
      stream.synchronize();
    } catch (...) {
      // The error has already reached those that waited for the failed work.
    }
    group_->leave(rank_);
    return true;
  }

 private:
  // The ranks of each color, ordered by (key, rank).
  static std::vector<int> members_of(int color, const Calls& calls) {
    std::vector<int> members;
    for (size_t q = 0; q < calls.size(); ++q)
      if (calls[q]->color == color) members.push_back(static_cast<int>(q));
    std::stable_sort(members.begin(), members.end(), [&](int a, int b) {
      return calls[static_cast<size_t>(a)]->key < calls[static_cast<size_t>(b)]->key;
    });
    return members;
  }

  void share(const Calls& calls) {
    switch (calls[0]->kind) {
      case CallKind::kShare:
        for (size_t r = 0; r < calls.size(); ++r) (*calls[static_cast<size_t>(rank_)]->shared)[r] = calls[r]->in;
        return;
      case CallKind::kAllReduce: return all_reduce(rank_, calls);
      case CallKind::kReduceScatter: return reduce_scatter(rank_, calls);
      case CallKind::kAllGather:
      case CallKind::kAllToAll: return gather_parts(rank_, calls);
      case CallKind::kBroadcast: return broadcast(rank_, calls);
      default: return;
    }
  }

  std::shared_ptr<LocalGroup> group_;
  const int rank_;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> make_local_communicators(int size, const CommOptions& options) {
  std::vector<int> machines(static_cast<size_t>(size));  // one, unless a test says otherwise
  if (const int ranks = planted_machine_ranks(); ranks > 0)
    for (int r = 0; r < size; ++r) machines[static_cast<size_t>(r)] = r / ranks;
  auto group = std::make_shared<LocalGroup>(std::move(machines), options);
  std::vector<std::unique_ptr<Communicator>> out;
  for (int rank = 0; rank < size; ++rank)
    out.push_back(std::make_unique<QueuedComm>(make_staged_channel(std::make_shared<LocalChannel>(group, rank))));
  return out;
}

}  // namespace lockstep
