#include "comm/mpi/mpi_comm.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>

#include "comm/mpi/mpi_channel.h"
#include "comm/mpi/mpi_start.h"
#include "comm/staged_channel.h"
#include "core/base/flight_recorder.h"
#include "core/base/log.h"
#include "core/base/trace.h"

namespace lockstep {
namespace {

std::vector<int> ranks_in_job(MPI_Comm comm, int size) {
  std::vector<int> own(static_cast<size_t>(size)), out(own.size());
  for (int r = 0; r < size; ++r) own[static_cast<size_t>(r)] = r;
  MPI_Group members, all;
  MPI_Comm_group(comm, &members);
  MPI_Comm_group(MPI_COMM_WORLD, &all);
  MPI_Group_translate_ranks(members, size, own.data(), all, out.data());
  MPI_Group_free(&members);
  MPI_Group_free(&all);
  return out;
}

}  // namespace

MpiChannel::MpiChannel(MPI_Comm comm, const CommOptions& options, std::shared_ptr<const CallWatch> parent)
    : comm_(comm), options_(options) {
  MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
  MPI_Comm_rank(comm_, &rank_);
  MPI_Comm_size(comm_, &size_);
  state_ = std::make_shared<CallWatch>(rank_, size_, options_.deadline, std::move(parent));
  watch_ = std::make_shared<const Work::Watch>([state = state_](Seconds, const std::string&) {
    try {
      state->look();
    } catch (...) {
      session().broken = true;
      throw;
    }
  });
  job_ranks_ = ranks_in_job(comm_, size_);
  make_board();
  session().open.fetch_add(1);
}

void MpiChannel::make_board() {
  static std::atomic<int> boards{0};
  MPI_Comm host = MPI_COMM_NULL;
  must(MPI_Comm_split_type(comm_, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &host), "MPI_Comm_split_type");
  if (const int ranks = planted_machine_ranks(); ranks > 0) {
    MPI_Comm part = MPI_COMM_NULL;
    must(MPI_Comm_split(host, job_ranks_[static_cast<size_t>(rank_)] / ranks, rank_, &part), "MPI_Comm_split");
    MPI_Comm_free(&host);
    host = part;
  }
  int place = 0, count = 0;
  MPI_Comm_rank(host, &place);
  MPI_Comm_size(host, &count);
  std::unique_ptr<ProgressBoard> board;
  char name[64] = {};
  if (place == 0) {
    const std::string text = str("/lockstep-", getpid(), "-", boards++, "-", Clock::now().time_since_epoch().count());
    board = ProgressBoard::create(text, count);
    memcpy(name, text.data(), std::min(text.size(), sizeof name - 1));
  }
  must(MPI_Bcast(name, sizeof name, MPI_CHAR, 0, host), "MPI_Bcast");
  if (place != 0) board = ProgressBoard::open(name, count);
  int good = board != nullptr;
  must(MPI_Allreduce(MPI_IN_PLACE, &good, 1, MPI_INT, MPI_MIN, host), "MPI_Allreduce");
  if (place == 0) ProgressBoard::unlink(name);
  if (!good) board.reset();
  // Finds the ranks on this host, in the order of their numbers.
  here_.resize(static_cast<size_t>(count));
  must(MPI_Allgather(&rank_, 1, MPI_INT, here_.data(), 1, MPI_INT, host), "MPI_Allgather");
  std::vector<int> places(static_cast<size_t>(size_), -1);
  for (int i = 0; i < count; ++i) places[static_cast<size_t>(here_[static_cast<size_t>(i)])] = i;
  state_->set_board(std::move(board), std::move(places));

  machines_.resize(static_cast<size_t>(size_));
  must(MPI_Allgather(here_.data(), 1, MPI_INT, machines_.data(), 1, MPI_INT, comm_), "MPI_Allgather");
  machines_ = MachineGrid::numbered(std::move(machines_));
  grid_ = MachineGrid::of(machines_);
  if (size_ > 1) open_peers(host);
  MPI_Comm_free(&host);
}

void MpiChannel::open_peers(MPI_Comm host) {
  std::string why;
  const PeerMemory::Address mine = PeerMemory::own();
  std::vector<PeerMemory::Address> all(here_.size());
  static_assert(std::is_trivially_copyable_v<PeerMemory::Address>);
  must(MPI_Allgather(&mine, sizeof mine, MPI_BYTE, all.data(), sizeof mine, MPI_BYTE, host), "MPI_Allgather");
  const auto place = static_cast<int>(std::find(here_.begin(), here_.end(), rank_) - here_.begin());
  const char* wanted = std::getenv("LOCKSTEP_PEER_MEMORY");
  if (wanted && std::string_view(wanted) == "off") why = "LOCKSTEP_PEER_MEMORY=off";
  else if (!state_->has_board()) why = "there is no shared memory left for a board";
  else peers_ = PeerMemory::open(all, place, &why);
  int good = peers_ != nullptr;
  must(MPI_Allreduce(MPI_IN_PLACE, &good, 1, MPI_INT, MPI_MIN, comm_), "MPI_Allreduce");
  static std::atomic<bool> told{false};
  if (!peers_ && !told.exchange(true))
    log_info(str("the ranks of this machine exchange by messages, since they cannot read each other's memory: ", why));
  if (!good) peers_.reset();
}

// What `call` lets other ranks read. Puts this rank's part of a gather into its place.
const void* MpiChannel::offer(const Call& call) const {
  switch (call.kind) {
    case CallKind::kShare: return call.in;
    case CallKind::kBroadcast: return call.peer == rank_ ? call.in : nullptr;
    case CallKind::kAllGather: return put_own_part(call, rank_);
    default: return nullptr;
  }
}

template <class F>
void MpiChannel::while_running(const Call& call, F&& work) {
  struct Under {
    CallWatch& state;
    ~Under() {
      state.end();
      session().running.fetch_sub(1);
    }
  };
  state_->begin(call);
  session().running.fetch_add(1);
  Under under{*state_};
  try {
    work();
  } catch (const Error& error) {
    session().broken = true;
    state_->poison(error);
    throw;
  }
}

void MpiChannel::run(const Call& call) {
  while_running(call, [&] {
    if (call.kind == CallKind::kSend) return send(call);
    if (call.kind == CallKind::kReceive) return receive(call);
    const std::vector<const void*> places = check_agreement(call);
    if (reads_all()) switch (call.kind) {
        case CallKind::kShare:
        case CallKind::kAllGather:
        case CallKind::kBroadcast: return read_parts(call, places);
        case CallKind::kBarrier: return;
        default: break;
      }
    switch (call.kind) {
      case CallKind::kAllReduce: return all_reduce(call);
      case CallKind::kReduceScatter: return reduce_scatter(call);
      case CallKind::kAllGather:
        if (is_small(call)) return gather_small(call);
        return has_stages() ? gather_in_stages(call) : gather_parts(call);
      case CallKind::kAllToAll: return gather_parts(call);
      case CallKind::kBroadcast: return broadcast(call);
      case CallKind::kBarrier: return must(MPI_Barrier(comm_), to_text(call));
      default: return;
    }
  });
}

std::vector<const void*> MpiChannel::check_agreement(const Call& call) {
  if (reads_all()) return state_->meet(call, offer(call), progress_);
  if (!options_.check_calls || size_ == 1) return {};
  const auto n = static_cast<size_t>(size_);
  const uint64_t print = fingerprint(call);
  CallSummary all = {print, print, call.kind == CallKind::kAllToAll ? exchange_balance(call, rank_) : 0};
  must(MPI_Allreduce(MPI_IN_PLACE, &all, 1, session().summary_type, session().summary, comm_), to_text(call));
  state_->advance();
  if (all.least == all.largest && all.balance == 0) return {};
  // Every rank detects the mismatch, so they can still exchange their texts.
  constexpr size_t kText = 200;
  char text[kText] = {};
  const std::string details = details_of(call);
  memcpy(text, details.data(), std::min(details.size(), kText - 1));
  std::vector<char> texts(n * kText);
  must(MPI_Allgather(text, kText, MPI_CHAR, texts.data(), kText, MPI_CHAR, comm_), to_text(call));
  std::vector<std::string> list;
  for (size_t r = 0; r < n; ++r) list.emplace_back(&texts[r * kText]);
  throw Error(ExitCode::kRanksDisagree, disagreement_text(list));
}

// Each rank copies what it needs from where it lies.
void MpiChannel::read_parts(const Call& call, const std::vector<const void*>& places) {
  if (call.kind == CallKind::kShare) {
    *call.shared = places;
    return;
  }
  trace_mark();
  const int64_t width = size_of(call.dtype);
  const auto read = [&](int from, void* to, int64_t bytes) {
    const auto begun = Clock::now();
    peers_->read(from, places[static_cast<size_t>(from)], to, bytes);
    state_->advance();
    record_flight_transfer(job_ranks_[static_cast<size_t>(from)], bytes,
                           std::chrono::duration<double>(Clock::now() - begun).count());
  };
  if (call.kind == CallKind::kBroadcast) {
    if (rank_ != call.peer) read(call.peer, call.out, call.numel * width);
  } else {
    // Beginning with the next rank, so that the ranks do not all read from the same one.
    for (int i = 1; i < size_; ++i) {
      const int from = (rank_ + i) % size_;
      const auto f = static_cast<size_t>(from);
      if (call.counts[f] > 0) read(from, call.out_at(call.offsets[f]), call.counts[f] * width);
    }
  }
  state_->meet(progress_);  // all have read
}

std::shared_ptr<Channel> MpiChannel::split(const Call& call) {
  std::shared_ptr<Channel> made;
  while_running(call, [&] {
    check_agreement(call);
    MPI_Comm comm = MPI_COMM_NULL;
    must(MPI_Comm_split(comm_, call.color < 0 ? MPI_UNDEFINED : call.color, call.key, &comm), to_text(call));
    if (comm != MPI_COMM_NULL) made = std::make_shared<MpiChannel>(comm, options_, state_);
  });
  return made;
}

bool MpiChannel::close(Stream& stream) {
  const auto start = Clock::now();
  const bool told = state_->poisoned();
  bool idle = false, hangs = false;
  while (!idle && !hangs) {
    try {
      idle = stream.synchronize(Seconds(0.1));
    } catch (...) {
      idle = true;  // the error has already reached those that waited for that work
    }
    if (idle) break;
    try {
      state_->look();
      require(!state_->idle() || Clock::now() - start < options_.deadline, ExitCode::kRankLost, pending_.size(),
              " messages of rank ", rank_, " found no receiver");
    } catch (const Error& error) {
      if (!told) log_warning(str("an MPI communicator cannot be closed: ", error.what()));
      hangs = true;
    }
  }
  state_->leave();
  if (hangs || state_->poisoned()) session().broken = true;
  MPI_Comm comm = comm_;
  if (!session().broken) MPI_Comm_free(&comm);
  session().open.fetch_sub(1);
  return !hangs;
}

std::unique_ptr<Communicator> make_mpi_communicator(const CommOptions& options) {
  session();
  const MpiStart watch;
  MPI_Comm comm = MPI_COMM_NULL;
  must(MPI_Comm_dup(MPI_COMM_WORLD, &comm), "MPI_Comm_dup");
  return std::make_unique<QueuedComm>(make_staged_channel(std::make_shared<MpiChannel>(comm, options, nullptr)));
}

}  // namespace lockstep
