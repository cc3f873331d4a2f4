#include "comm/mpi_comm.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <list>
#include <thread>

#include "comm/call_watch.h"
#include "comm/machine_grid.h"
#include "comm/mpi_session.h"
#include "comm/mpi_start.h"
#include "comm/peer_memory.h"
#include "comm/queued_comm.h"
#include "comm/reduce.h"
#include "comm/staged_channel.h"
#include "core/base/flight_recorder.h"
#include "core/base/log.h"
#include "core/base/trace.h"
#include "core/device/allocator.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

// Large messages are sent in pieces: Open MPI is faster (64 MB in pieces: 6 GB/s, whole: 1.2 GB/s) and takes less
// memory.
constexpr int64_t kChunkBytes = 8 << 20;
constexpr size_t kUnderWay = kMessagesUnderWay;
constexpr int kExchangeTag = 1, kHeaderTag = 2, kMessageTag = 3;

MPI_Datatype mpi_type(DType dtype) {
  switch (dtype) {
    case DType::kFloat32: return MPI_FLOAT;
    case DType::kFloat64: return MPI_DOUBLE;
    case DType::kInt64: return MPI_INT64_T;
    case DType::kInt32: return MPI_INT32_T;
    case DType::kUInt8: return MPI_UINT8_T;
    default: return MPI_BYTE;  // copied, never reduced
  }
}

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

// Of a gather; returns where it then lies.
char* put_own_part(const Call& call, int rank) {
  const auto me = static_cast<size_t>(rank);
  char* own = call.out_at(call.offsets[me]);
  if (call.in != own && call.counts[me] > 0)
    memcpy(own, call.in, static_cast<size_t>(call.counts[me] * size_of(call.dtype)));
  return own;
}

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

void MpiChannel::all_reduce(const Call& call) {
  const std::string what = to_text(call);
  const bool half = call.dtype == DType::kBFloat16 || call.dtype == DType::kFloat16;
  const DType dtype = half ? DType::kFloat32 : call.dtype;
  const int64_t chunk = kChunkBytes / size_of(dtype);
  const MPI_Op op = session().op_of(call.op, dtype);
  if (half) scratch_.resize(static_cast<size_t>(std::min(chunk, call.numel) * size_of(dtype)));
  for (int64_t at = 0; at < call.numel; at += chunk) {
    const int64_t n = std::min(chunk, call.numel - at);
    float* wide = reinterpret_cast<float*>(scratch_.data());
    if (half) widen(wide, call.in_at(at), call.dtype, n);
    void* data = half ? static_cast<void*>(wide) : call.out_at(at);
    must(MPI_Allreduce(MPI_IN_PLACE, data, static_cast<int>(n), mpi_type(dtype), op, comm_), what);
    if (half) narrow_to(call.out_at(at), wide, call.dtype, n);
    state_->advance();
  }
}

// Every part goes directly to its owner, which sums in rank order: the same bits as with ranks as threads.
void MpiChannel::reduce_scatter(const Call& call) {
  const auto me = static_cast<size_t>(rank_), n = static_cast<size_t>(size_);
  const int64_t width = size_of(call.dtype);
  const int64_t piece = std::max<int64_t>(kChunkBytes / 2 / width / size_ / 64 * 64, 64);
  const int64_t most = *std::max_element(call.counts.begin(), call.counts.end());
  scratch_.resize(n * static_cast<size_t>(std::min(piece, call.counts[me]) * width));
  for (int64_t at = 0; at < most; at += piece) {
    auto size_for = [&](size_t r) { return std::clamp(call.counts[r] - at, int64_t{0}, piece); };
    const int64_t mine = size_for(me);
    std::vector<const void*> parts(n);
    parts[me] = call.in_at(call.offsets[me] + at);
    Messages messages;
    for (size_t i = 1; i < n; ++i) {
      const size_t to = (me + i) % n, from = (me + n - i) % n;
      char* place = scratch_.data() + static_cast<int64_t>(from) * mine * width;
      parts[from] = place;
      messages.send(call.in_at(call.offsets[to] + at), size_for(to) * width, static_cast<int>(to));
      messages.receive(place, mine * width, static_cast<int>(from));
    }
    exchange(call, messages);
    reduce_in_order(call.op, call.dtype, parts, {call.out_at(at)}, mine);
  }
}

void MpiChannel::broadcast(const Call& call) {
  const int64_t bytes = call.numel * size_of(call.dtype);
  char* data = call.out ? static_cast<char*>(call.out) : const_cast<char*>(static_cast<const char*>(call.in));
  for (int64_t at = 0; at < bytes; at += kChunkBytes) {
    const int n = static_cast<int>(std::min(kChunkBytes, bytes - at));
    must(MPI_Bcast(data + at, n, MPI_BYTE, call.peer, comm_), to_text(call));
    state_->advance();
  }
}

// In rounds whose number grows with log2 of the ranks: each rank passes on all parts that it has, its own and those of
// the ranks after it, until it has all (Bruck et al., "Efficient algorithms for all-to-all communications in multiport
// message-passing systems", 1997).
void MpiChannel::gather_small(const Call& call) {
  put_own_part(call, rank_);
  const int64_t width = size_of(call.dtype);
  // The parts of `count` ranks from `first` on, which go on at rank 0.
  const auto stretches = [&](int first, int count, const auto& add) {
    for (int begin = first % size_; count > 0;) {
      const int end = std::min(size_, begin + count);
      int64_t bytes = 0;
      for (int r = begin; r < end; ++r) bytes += call.counts[static_cast<size_t>(r)] * width;
      add(call.out_at(call.offsets[static_cast<size_t>(begin)]), bytes);
      count -= end - begin;
      begin = 0;
    }
  };
  for (int have = 1; have < size_; have *= 2) {
    const int count = std::min(have, size_ - have), before = (rank_ + size_ - have) % size_,
              after = (rank_ + have) % size_;
    Messages messages;
    stretches(rank_, count, [&](char* data, int64_t bytes) { messages.send(data, bytes, before); });
    stretches(after, count, [&](char* data, int64_t bytes) { messages.receive(data, bytes, after); });
    exchange(call, messages);
  }
}

void MpiChannel::gather_parts(const Call& call) {
  trace_mark();
  const auto me = static_cast<size_t>(rank_), n = static_cast<size_t>(size_);
  const bool gather = call.kind == CallKind::kAllGather;
  const int64_t width = size_of(call.dtype);
  auto source = [&](size_t to) { return gather ? call.in_at(0) : call.in_at(call.send_offsets[to]); };
  auto source_bytes = [&](size_t to) { return (gather ? call.counts[me] : call.send_counts[to]) * width; };
  char* own = call.out_at(call.offsets[me]);
  if (source(me) != own && call.counts[me] > 0) memcpy(own, source(me), static_cast<size_t>(call.counts[me] * width));
  Messages messages;
  for (size_t i = 1; i < n; ++i) {
    const size_t to = (me + i) % n, from = (me + n - i) % n;
    messages.send(source(to), source_bytes(to), static_cast<int>(to));
    messages.receive(call.out_at(call.offsets[from]), call.counts[from] * width, static_cast<int>(from));
  }
  exchange(call, messages);
}

// Rank l of each machine brings the parts of the ranks l of all machines, which each travel between two machines once,
// in the steps of the grid, the last one first, so that a rank passes on all that it has (recursive doubling), and
// within a step around a ring: a link that is always between the same two is used best. Then the ranks of a machine
// read from each other what the others brought.
void MpiChannel::gather_in_stages(const Call& call) {
  trace_mark();
  const int ranks = grid_.ranks, machine = rank_ / ranks, lane = rank_ % ranks;
  const int64_t width = size_of(call.dtype);
  const auto bytes_of = [&](int rank) { return call.counts[static_cast<size_t>(rank)] * width; };
  const auto place_of = [&](int rank) { return call.out_at(call.offsets[static_cast<size_t>(rank)]); };
  put_own_part(call, rank_);
  const std::vector<int> steps = grid_.steps();
  int stride = grid_.machines;
  for (size_t step = steps.size(); step-- > 0;) {
    const int extent = steps[step], block = stride;
    stride /= extent;
    const auto at = [&](int i) {  // the machine i places further along the step
      const int place = machine / stride % extent;
      return machine + ((place + i + extent) % extent - place) * stride;
    };
    for (int i = 0; i + 1 < extent; ++i) {
      Messages messages;
      // At first each has the parts of the machines that are at its place within a block.
      for (int first = 0; first < grid_.machines; first += block) {
        const int sent = (first + at(-i) % block) * ranks + lane,
                  received = (first + at(-1 - i) % block) * ranks + lane;
        messages.send(place_of(sent), bytes_of(sent), at(1) * ranks + lane);
        messages.receive(place_of(received), bytes_of(received), at(-1) * ranks + lane);
      }
      exchange(call, messages);
    }
  }
  if (ranks == 1) return;
  const std::vector<const void*> theirs = state_->meet(call, call.out, progress_);
  for (int i = 1; i < ranks; ++i) {
    const int place = (lane + i) % ranks;
    const auto* out = static_cast<const char*>(theirs[static_cast<size_t>(machine * ranks + place)]);
    for (int m = 0; m < grid_.machines; ++m) {
      const int part = m * ranks + place;
      if (bytes_of(part) == 0) continue;
      peers_->read(place, out + call.offsets[static_cast<size_t>(part)] * width, place_of(part), bytes_of(part));
      state_->advance();
    }
  }
  state_->meet(progress_);
}

void MpiChannel::Messages::add(std::vector<Message>& list, char* data, int64_t bytes, int peer) {
  for (int64_t at = 0; at < bytes; at += kChunkBytes)
    list.push_back({data + at, std::min(kChunkBytes, bytes - at), peer});
}

// Several rounds are under way at a time, so that a rank that is behind in one does not leave the links of the others
// idle, and latencies of many rounds overlap. The oldest message that has not arrived is posted on both sides, so that
// something always moves.
void MpiChannel::exchange(const Call& call, const Messages& messages) {
  const auto post = [&](const Message& m, bool send, MPI_Request* request) {
    const int bytes = static_cast<int>(m.bytes);
    must(send ? MPI_Isend(m.data, bytes, MPI_BYTE, m.peer, kExchangeTag, comm_, request)
              : MPI_Irecv(m.data, bytes, MPI_BYTE, m.peer, kExchangeTag, comm_, request),
         to_text(call));
  };
  // The first half of the requests receives, the other sends; each serves one message after the other.
  std::array<MPI_Request, 2 * kUnderWay> requests;
  std::array<std::pair<const Message*, Clock::time_point>, kUnderWay> receiving;
  requests.fill(MPI_REQUEST_NULL);
  Clock::time_point last_came = {};
  auto next_received = messages.received.begin();
  auto next_sent = messages.sent.begin();
  const auto fill = [&](size_t place) {
    if (place >= kUnderWay) {
      if (next_sent != messages.sent.end()) post(*next_sent++, true, &requests[place]);
    } else if (next_received != messages.received.end()) {
      receiving[place] = {&*next_received, Clock::now()};
      post(*next_received++, false, &requests[place]);
    }
  };
  for (size_t place = 0; place < requests.size(); ++place) fill(place);
  for (;;) {
    MPI_Status status;
    int which = 0;
    must(MPI_Waitany(static_cast<int>(requests.size()), requests.data(), &which, &status), to_text(call));
    if (which == MPI_UNDEFINED) return;  // none is left
    const auto place = static_cast<size_t>(which);
    if (place < kUnderWay) {
      const auto& [message, begun] = receiving[place];
      int got = 0;
      MPI_Get_count(&status, MPI_BYTE, &got);
      require(got == message->bytes, ExitCode::kRanksDisagree, to_text(call), ": rank ", message->peer, " sent ", got,
              " bytes where ", message->bytes, " were expected");
      // Until the one before came, the link may have carried that one.
      const auto now = Clock::now();
      record_flight_transfer(job_ranks_[static_cast<size_t>(message->peer)], message->bytes,
                             std::chrono::duration<double>(now - std::max(begun, last_came)).count());
      last_came = now;
    }
    state_->advance();
    fill(place);
  }
}

void MpiChannel::send(const Call& call) {
  const int64_t bytes = call.numel * size_of(call.dtype);
  Pending& p = pending_.emplace_back();
  p.header = {call.numel, static_cast<int64_t>(call.dtype), {}};
  const std::string details = details_of(call);
  memcpy(p.header.details, details.data(), std::min(details.size(), sizeof p.header.details - 1));
  if (bytes > 0) {
    p.bytes = std::shared_ptr<void>(allocate_bytes(bytes), [](void* p) { free_bytes(p); });
    memcpy(p.bytes.get(), call.in, static_cast<size_t>(bytes));
  }
  auto post = [&](const void* data, int64_t n, int tag) {
    must(MPI_Isend(data, static_cast<int>(n), MPI_BYTE, call.peer, tag, comm_, &p.requests.emplace_back()),
         to_text(call));
  };
  post(&p.header, sizeof p.header, kHeaderTag);
  for (int64_t at = 0; at < bytes; at += kChunkBytes)
    post(static_cast<const char*>(p.bytes.get()) + at, std::min(kChunkBytes, bytes - at), kMessageTag);
}

void MpiChannel::receive(const Call& call) {
  const std::string what = to_text(call);
  Header header;
  must(MPI_Recv(&header, sizeof header, MPI_BYTE, call.peer, kHeaderTag, comm_, MPI_STATUS_IGNORE), what);
  state_->advance();
  if (header.numel != call.numel || header.dtype != static_cast<int64_t>(call.dtype)) {
    throw Error(ExitCode::kRanksDisagree, str("rank ", rank_, " calls ", details_of(call), ", but rank ", call.peer,
                                              "'s matching call is ", header.details));
  }
  const int64_t bytes = call.numel * size_of(call.dtype);
  for (int64_t at = 0; at < bytes; at += kChunkBytes) {
    must(MPI_Recv(static_cast<char*>(call.out) + at, static_cast<int>(std::min(kChunkBytes, bytes - at)), MPI_BYTE,
                  call.peer, kMessageTag, comm_, MPI_STATUS_IGNORE),
         what);
    state_->advance();
  }
}

bool MpiChannel::move_sends() {
  std::erase_if(pending_, [](Pending& p) {
    int done = 0;
    must(MPI_Testall(static_cast<int>(p.requests.size()), p.requests.data(), &done, MPI_STATUSES_IGNORE),
         "MPI_Testall");
    return done != 0;
  });
  return !pending_.empty();
}

void MpiChannel::finish_sends(const std::function<bool()>& more) {
  for (int turn = 0; !pending_.empty(); ++turn) {
    move_sends();
    if (more() || state_->poisoned()) return;
    if (turn < 100) sched_yield();
    else std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
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

}  // namespace

std::unique_ptr<Communicator> make_mpi_communicator(const CommOptions& options) {
  session();
  const MpiStart watch;
  MPI_Comm comm = MPI_COMM_NULL;
  must(MPI_Comm_dup(MPI_COMM_WORLD, &comm), "MPI_Comm_dup");
  return std::make_unique<QueuedComm>(make_staged_channel(std::make_shared<MpiChannel>(comm, options, nullptr)));
}

}  // namespace lockstep
