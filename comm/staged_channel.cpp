#include "comm/staged_channel.h"

#include <algorithm>
#include <utility>

#include "core/base/partition.h"
#include "core/device/backend.h"

namespace lockstep {
namespace {

bool on_gpu(const Device& device) { return device.type == DeviceType::kCuda; }

// Pinned host memory for one GPU, and the queue that copies to and from it.
class Staging {
 public:
  explicit Staging(int index) : index_(index), queue_(device_backend().make_queue(index, true)) {}
  ~Staging() { release(); }
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  int index() const { return index_; }
  // Memory of at least `wanted` bytes, contents undefined.
  char* memory(int64_t bytes) {
    if (bytes <= bytes_) return data_;
    release();
    const int64_t wanted = round_up(bytes, kPiece);
    data_ = static_cast<char*>(device_backend().allocate_pinned(index_, wanted));
    require(data_ != nullptr, ExitCode::kDevice, "no ", wanted, " bytes of pinned memory for what ranks exchange on ",
            to_text(Device{DeviceType::kCuda, index_}),
            ": raise the limit of locked memory (ulimit -l), or lower "
            "comm.bucket");
    bytes_ = wanted;
    return data_;
  }
  void copy(void* to, const void* from, int64_t bytes) {
    if (bytes > 0) queue_->copy(to, from, bytes);
  }
  void wait() { queue_->record()->wait(); }

 private:
  static constexpr int64_t kPiece = 2 << 20;
  void release() {
    if (data_) device_backend().release_pinned(index_, std::exchange(data_, nullptr));
    bytes_ = 0;
  }

  const int index_;
  const std::shared_ptr<DeviceQueue> queue_;
  char* data_ = nullptr;
  int64_t bytes_ = 0;
};

// The elements that a call reads or writes, as ranges [begin, end); adjacent ranges are merged.
using Spans = std::vector<std::pair<int64_t, int64_t>>;

Spans spans_of(const std::vector<int64_t>& counts, const std::vector<int64_t>& offsets) {
  Spans spans;
  for (size_t r = 0; r < counts.size(); ++r) {
    if (counts[r] == 0) continue;
    if (!spans.empty() && spans.back().second == offsets[r]) spans.back().second += counts[r];
    else spans.emplace_back(offsets[r], offsets[r] + counts[r]);
  }
  return spans;
}

Spans what_is_read(const Call& call, int rank) {
  switch (call.kind) {
    case CallKind::kReduceScatter: return spans_of(call.counts, call.offsets);
    case CallKind::kAllGather: return {{0, call.counts[static_cast<size_t>(rank)]}};
    case CallKind::kAllToAll: return spans_of(call.send_counts, call.send_offsets);
    case CallKind::kBroadcast: return call.peer == rank ? Spans{{0, call.numel}} : Spans{};
    case CallKind::kAllReduce:
    case CallKind::kSend: return {{0, call.numel}};
    default: return {};
  }
}

Spans what_is_written(const Call& call, int rank) {
  switch (call.kind) {
    case CallKind::kReduceScatter: return {{0, call.counts[static_cast<size_t>(rank)]}};
    case CallKind::kAllGather:
    case CallKind::kAllToAll: return spans_of(call.counts, call.offsets);
    case CallKind::kBroadcast: return call.peer == rank ? Spans{} : Spans{{0, call.numel}};
    case CallKind::kAllReduce:
    case CallKind::kReceive: return {{0, call.numel}};
    default: return {};
  }
}

int64_t extent(const Spans& spans) {
  int64_t end = 0;
  for (const auto& span : spans) end = std::max(end, span.second);
  return end;
}

class StagedChannel final : public Channel {
 public:
  explicit StagedChannel(std::shared_ptr<Channel> inner) : inner_(std::move(inner)) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  std::string_view backend() const override { return inner_->backend(); }
  bool shares_memory() const override { return inner_->shares_memory(); }
  std::vector<int> machines() const override { return inner_->machines(); }
  std::shared_ptr<const PeerMemory> peer_memory() const override { return inner_->peer_memory(); }
  void run(const Call& call) override {
    if (on_gpu(call.in_device) || on_gpu(call.out_device)) run_staged(call);
    else inner_->run(call);
  }
  std::shared_ptr<Channel> split(const Call& call) override {
    auto part = inner_->split(call);
    return part ? make_staged_channel(std::move(part)) : nullptr;
  }
  void finish_sends(const std::function<bool()>& more) override { inner_->finish_sends(more); }
  void abort(const Error& why) override { inner_->abort(why); }
  std::optional<Error> failure() const override { return inner_->failure(); }
  std::shared_ptr<const Work::Watch> watch() override { return inner_->watch(); }
  bool close(Stream& stream) override { return inner_->close(stream); }

 private:
  void run_staged(const Call& call);

  const std::shared_ptr<Channel> inner_;
  std::unique_ptr<Staging> staging_;  // for the first GPU in a call: a rank has one GPU
};

void StagedChannel::run_staged(const Call& call) {
  const Spans read = what_is_read(call, rank()), written = what_is_written(call, rank());
  const int64_t width = size_of(call.dtype);
  const bool in = on_gpu(call.in_device), out = on_gpu(call.out_device);
  const int index = in ? call.in_device.index : call.out_device.index;
  if (!staging_ || staging_->index() != index) staging_ = std::make_unique<Staging>(index);

  // A reduction in place stays in place; all other calls get separate input and output, even if they share GPU memory.
  const bool in_place = call.kind == CallKind::kAllReduce;
  constexpr int64_t kAlign = 256;
  const int64_t in_bytes = in ? round_up(extent(read) * width, kAlign) : 0;
  const int64_t out_bytes = out && !in_place ? extent(written) * width : 0;
  char* memory = staging_->memory(in_bytes + out_bytes);
  Call inner = call;
  if (in) inner.in = memory;
  if (out && call.out) inner.out = in_place ? memory : memory + in_bytes;
  if (in)
    for (const auto& [begin, end] : read)
      staging_->copy(memory + begin * width, call.in_at(begin), (end - begin) * width);
  staging_->wait();
  inner_->run(inner);
  if (out)
    for (const auto& [begin, end] : written)
      staging_->copy(call.out_at(begin), inner.out_at(begin), (end - begin) * width);
  staging_->wait();
}

}  // namespace

std::shared_ptr<Channel> make_staged_channel(std::shared_ptr<Channel> inner) {
  return std::make_shared<StagedChannel>(std::move(inner));
}

}  // namespace lockstep
