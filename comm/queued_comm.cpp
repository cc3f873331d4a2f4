#include "comm/queued_comm.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <numeric>

#include "core/base/trace.h"
#include "core/device/graph.h"

namespace lockstep {
namespace {

void check_tensor(const Tensor& t, const Call& call) {
  check(t.defined(), to_text(call), ": the tensor is undefined");
  check(t.is_contiguous(), to_text(call), ": ", t, " is not contiguous");
}

// The range [first, second) of bytes.
std::pair<const char*, const char*> span_of(const Tensor& t) {
  const char* begin = static_cast<const char*>(t.read());
  return {begin, begin + t.bytes()};
}

bool overlap(const Tensor& a, const Tensor& b) {
  const auto [a0, a1] = span_of(a);
  const auto [b0, b1] = span_of(b);
  return a0 != a1 && b0 != b1 && a0 < b1 && b0 < a1;
}

// counts[rank] elements of `part`, all of `whole`; sets counts, offsets.
void set_counts(Call& call, const std::vector<int64_t>& counts, const Tensor& whole, const Tensor& part, int rank,
                int size) {
  check(static_cast<int>(counts.size()) == size, to_text(call), ": ", counts.size(), " counts for ", size, " ranks");
  call.counts = counts;
  int64_t total = 0;
  for (int64_t count : counts) {
    check(count >= 0, to_text(call), ": a count of ", count);
    call.offsets.push_back(total);
    total += count;
  }
  const auto mine = static_cast<size_t>(rank);
  check(total == whole.numel(), to_text(call), ": the counts' sum is ", total, ", the whole is ", whole);
  check(counts[mine] == part.numel(), to_text(call), ": count ", counts[mine], " for rank ", rank, ", its part is ",
        part);
  check(whole.dtype() == part.dtype(), to_text(call), ": the whole is ", whole, ", the part is ", part);
  const char* own = span_of(whole).first + call.offsets[mine] * size_of(whole.dtype());
  check(!overlap(whole, part) || span_of(part).first == own, to_text(call),
        ": the part overlaps the whole at a position that is not this rank's own");
}

void check_parts(const Call& call, const Tensor& t, const std::vector<int64_t>& counts,
                 const std::vector<int64_t>& offsets, int size) {
  check(static_cast<int>(counts.size()) == size && counts.size() == offsets.size(), to_text(call), ": ", counts.size(),
        " counts and ", offsets.size(), " offsets for ", size, " ranks");
  for (size_t r = 0; r < counts.size(); ++r)
    check(counts[r] >= 0 && offsets[r] >= 0 && offsets[r] + counts[r] <= t.numel(), to_text(call),
          ": the part of rank ", r, ", [", offsets[r], ", ", offsets[r] + counts[r], "), is not within ", t);
}

// By work of `now` that has not run yet. A GPU's queue does not write plain host memory after the host continues.
bool may_be_written(const Stream& now, const std::vector<Tensor>& tensors) {
  if (now.mode() != Stream::Mode::kQueue || tensors.empty()) return true;
  return std::any_of(tensors.begin(), tensors.end(), [](const Tensor& t) { return t.device() != Device{}; });
}

}  // namespace

struct QueuedComm::Counters {
  std::atomic<int64_t> queued{0}, begun{0};
};

QueuedComm::QueuedComm(std::shared_ptr<Channel> channel, Stream::Mode mode, const QueuedComm* parent)
    : QueuedComm(std::move(channel), std::make_unique<Stream>(Device{}, mode), parent) {}

QueuedComm::QueuedComm(std::shared_ptr<Channel> channel, std::unique_ptr<Stream> stream, const QueuedComm* parent)
    : channel_(std::move(channel)),
      counters_(std::make_shared<Counters>()),
      stream_(std::move(stream)),
      sends_(static_cast<size_t>(channel_->size())),
      receives_(static_cast<size_t>(channel_->size())),
      exceptions_(std::uncaught_exceptions()) {
  if (parent) sent_bytes_->parent = parent->sent_bytes_;
}

QueuedComm::~QueuedComm() {
  if (std::uncaught_exceptions() > exceptions_) channel_->abort(rank_is_ending(rank()));
  if (!channel_->close(*stream_)) (void)stream_.release();  // its thread hangs: the process is about to end
}

Call QueuedComm::start(CallKind kind, std::string_view label) {
  while (!held_.empty() && held_.front().first.done()) held_.pop_front();
  Call call;
  call.kind = kind;
  call.label = label;
  if (kind != CallKind::kSend && kind != CallKind::kReceive) call.number = collectives_ + 1;
  return call;
}

Work QueuedComm::enqueue(const Call& call, std::vector<Tensor> held, Stream::Task task) {
  if (stream_->mode() == Stream::Mode::kThread) not_in_a_graph("an exchange between ranks through host memory");
  number_of(call) = call.number;  // only now: a call with invalid arguments is not counted
  const int64_t bytes = wire_bytes(call, rank(), size());
  if (bytes > 0)
    for (SentBytes* s = sent_bytes_.get(); s; s = s->parent.get()) s->own.fetch_add(bytes, std::memory_order_relaxed);
  Stream& now = current_stream();
  const bool later = now.mode() == Stream::Mode::kThread || now.mode() == Stream::Mode::kQueue;
  if (later && may_be_written(now, held)) stream_->wait(now.record());
  counters_->queued.fetch_add(1, std::memory_order_relaxed);
  const TraceOp op(name_of(call.kind));
  stream_->enqueue(
      [counters = counters_, held, task = std::move(task)](Parallel& p) {
        counters->begun.fetch_add(1, std::memory_order_relaxed);
        task(p);
      },
      {"exchange", bytes});
  Event done = stream_->record();
  if (simulated_time) {
    simulated_s_ = channel_->simulated_end(call, std::max(simulated_s_, now.simulated_s()));
    done = Event::at(simulated_s_);
  }
  if (call.kind == CallKind::kSend) sent_ = true;
  const TraceOp rest("finish_sends");
  if (sent_)
    stream_->enqueue([counters = counters_, channel = channel_](Parallel&) {
      channel->finish_sends([&] { return counters->queued.load() > counters->begun.load(); });
    });
  if (later) held_.emplace_back(done, std::move(held));
  return Work(std::move(done), to_text(call), channel_->watch(), stream_->mode() == Stream::Mode::kQueue);
}

Work QueuedComm::run(Call call, std::vector<Tensor> held) {
  for (Tensor& t : held) t = t.detach();
  auto shared = std::make_shared<const Call>(std::move(call));
  return enqueue(*shared, std::move(held), [shared, channel = channel_](Parallel&) { channel->run(*shared); });
}

Work QueuedComm::all_reduce(const Tensor& tensor, ReduceOp op, std::string_view label) {
  Call call = start(CallKind::kAllReduce, label);
  check_tensor(tensor, call);
  call.dtype = tensor.dtype();
  call.op = op;
  call.numel = tensor.numel();
  call.in = call.out = tensor.write();
  call.in_device = call.out_device = tensor.device();
  return run(std::move(call), {tensor});
}

Work QueuedComm::reduce_scatter(const Tensor& out, const Tensor& in, const std::vector<int64_t>& counts, ReduceOp op,
                                std::string_view label) {
  Call call = start(CallKind::kReduceScatter, label);
  check_tensor(out, call);
  check_tensor(in, call);
  set_counts(call, counts, in, out, rank(), size());
  call.dtype = in.dtype();
  call.op = op;
  call.in = in.read();
  call.out = out.write();
  call.in_device = in.device();
  call.out_device = out.device();
  return run(std::move(call), {out, in});
}

Work QueuedComm::all_gather(const Tensor& out, const Tensor& in, const std::vector<int64_t>& counts,
                            std::string_view label) {
  Call call = start(CallKind::kAllGather, label);
  check_tensor(out, call);
  check_tensor(in, call);
  set_counts(call, counts, out, in, rank(), size());
  call.dtype = in.dtype();
  call.in = in.read();
  call.out = out.write();
  call.in_device = in.device();
  call.out_device = out.device();
  return run(std::move(call), {out, in});
}

Work QueuedComm::all_to_all(const Tensor& out, const std::vector<int64_t>& receive_counts,
                            const std::vector<int64_t>& receive_offsets, const Tensor& in,
                            const std::vector<int64_t>& send_counts, const std::vector<int64_t>& send_offsets,
                            std::string_view label) {
  trace_mark();
  Call call = start(CallKind::kAllToAll, label);
  check_tensor(out, call);
  check_tensor(in, call);
  check(out.dtype() == in.dtype(), to_text(call), ": receives ", out, ", sends ", in);
  check(!overlap(out, in), to_text(call), ": what is received overlaps what is sent");
  check_parts(call, out, receive_counts, receive_offsets, size());
  check_parts(call, in, send_counts, send_offsets, size());
  call.dtype = in.dtype();
  call.counts = receive_counts;
  call.offsets = receive_offsets;
  call.send_counts = send_counts;
  call.send_offsets = send_offsets;
  call.in = in.read();
  call.out = out.write();
  call.in_device = in.device();
  call.out_device = out.device();
  return run(std::move(call), {out, in});
}

Work QueuedComm::broadcast(const Tensor& tensor, int root, std::string_view label) {
  Call call = start(CallKind::kBroadcast, label);
  check_tensor(tensor, call);
  check(root >= 0 && root < size(), to_text(call), ": root ", root, " of ", size(), " ranks");
  call.dtype = tensor.dtype();
  call.peer = root;
  call.numel = tensor.numel();
  call.in_device = call.out_device = tensor.device();
  call.in = tensor.read();
  call.out = root == rank() ? nullptr : tensor.write();
  return run(std::move(call), {tensor});
}

int64_t& QueuedComm::number_of(const Call& call) {
  if (call.kind == CallKind::kSend) return sends_[static_cast<size_t>(call.peer)];
  if (call.kind == CallKind::kReceive) return receives_[static_cast<size_t>(call.peer)];
  return collectives_;
}

Call QueuedComm::between_two(CallKind kind, const Tensor& tensor, int peer, std::string_view label) {
  Call call = start(kind, label);
  call.peer = peer;
  check(peer >= 0 && peer < size(), to_text(call), ": there are ", size(), " ranks");
  call.number = number_of(call) + 1;
  check_tensor(tensor, call);
  call.dtype = tensor.dtype();
  call.numel = tensor.numel();
  call.in_device = call.out_device = tensor.device();
  return call;
}

Work QueuedComm::send(const Tensor& tensor, int to, std::string_view label) {
  Call call = between_two(CallKind::kSend, tensor, to, label);
  call.in = tensor.read();
  return run(std::move(call), {tensor});
}

Work QueuedComm::receive(const Tensor& tensor, int from, std::string_view label) {
  Call call = between_two(CallKind::kReceive, tensor, from, label);
  call.out = tensor.write();
  return run(std::move(call), {tensor});
}

Shared QueuedComm::share(const Tensor& tensor, const std::vector<int64_t>& counts, std::string_view label) {
  trace_mark();
  Call call = start(CallKind::kShare, label);
  check_tensor(tensor, call);
  check(shares_memory(), to_text(call), ": the ranks of ", backend(), " do not read each other's memory");
  check(tensor.device().type != DeviceType::kCuda, to_text(call), ": ", tensor, " is not in host memory");
  check(static_cast<int>(counts.size()) == size(), to_text(call), ": ", counts.size(), " counts for ", size(),
        " ranks");
  auto places = std::make_shared<std::vector<const void*>>(counts.size());
  call.dtype = tensor.dtype();
  call.send_counts = counts;
  call.in = tensor.numel() > 0 ? tensor.read() : nullptr;
  call.in_device = call.out_device = tensor.device();
  call.shared = places.get();
  auto shared = std::make_shared<const Call>(std::move(call));
  Work work =
      enqueue(*shared, {tensor.detach()}, [shared, places, channel = channel_](Parallel&) { channel->run(*shared); });
  return {std::move(work), std::move(places), channel_->peer_memory()};
}

std::unique_ptr<Communicator> QueuedComm::split(int color, int key, std::string_view label) {
  Call call = start(CallKind::kSplit, label);
  call.color = color;
  call.key = key;
  return make_part(std::move(call));
}

std::unique_ptr<Communicator> QueuedComm::split_axis(int stride, int extent, std::string_view label) {
  Call call = start(CallKind::kSplit, label);
  check(stride >= 1 && extent >= 1 && size() % (stride * extent) == 0, to_text(call), ": an axis of ", extent,
        " ranks, ", stride, " apart, of ", size());
  call.color = color_of_line(stride, extent);
  call.key = rank();
  call.stride = stride;
  call.extent = extent;
  return make_part(std::move(call));
}

std::unique_ptr<Communicator> QueuedComm::make_part(Call split) {
  const auto call = std::make_shared<const Call>(std::move(split));
  auto made = std::make_shared<std::shared_ptr<Channel>>();
  enqueue(*call, {}, [call, made, channel = channel_](Parallel&) { *made = channel->split(*call); }).finish();
  return *made ? std::make_unique<QueuedComm>(std::move(*made), stream_->mode(), this) : nullptr;
}

}  // namespace lockstep
