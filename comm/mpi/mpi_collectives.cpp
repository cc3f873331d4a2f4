#include <sched.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <thread>

#include "comm/mpi/mpi_channel.h"
#include "comm/reduce.h"
#include "core/base/flight_recorder.h"
#include "core/base/trace.h"
#include "core/device/allocator.h"

namespace lockstep {
namespace {

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

}  // namespace

char* put_own_part(const Call& call, int rank) {
  const auto me = static_cast<size_t>(rank);
  char* own = call.out_at(call.offsets[me]);
  if (call.in != own && call.counts[me] > 0)
    memcpy(own, call.in, static_cast<size_t>(call.counts[me] * size_of(call.dtype)));
  return own;
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

}  // namespace lockstep
