#include "comm/nccl/nccl_comm.h"

#include <atomic>
#include <utility>

#include "comm/nccl/nccl_channel.h"
#include "core/base/host.h"
#include "core/base/partition.h"

namespace lockstep {
namespace {

bool on_gpu(const Tensor& t) { return !t.defined() || t.device().type == DeviceType::kCuda; }
bool on_gpu(const Tensor& a, const Tensor& b) { return on_gpu(a) || on_gpu(b); }

bool keeps_nan(ReduceOp op, const Tensor& t) { return op == ReduceOp::kSum || !t.defined() || !is_floating(t.dtype()); }

class NcclComm final : public Communicator {
 public:
  // `parent` and `part`: what this is split from; null for that of all ranks.
  NcclComm(std::unique_ptr<Communicator> host, Device device, const CommOptions& options, const NcclComm* parent,
           const NcclChannel::Part* part);

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  std::string_view backend() const override { return "nccl"; }
  std::vector<int> machines() const override { return host_->machines(); }

  Work all_reduce(const Tensor& tensor, ReduceOp op, std::string_view label) override {
    if (!on_gpu(tensor) || !keeps_nan(op, tensor)) return host_->all_reduce(tensor, op, label);
    return last_ = queued_->all_reduce(tensor, op, label);
  }
  Work reduce_scatter(const Tensor& out, const Tensor& in, const std::vector<int64_t>& counts, ReduceOp op,
                      std::string_view label) override {
    if (!on_gpu(out, in) || !keeps_nan(op, in)) return host_->reduce_scatter(out, in, counts, op, label);
    return last_ = queued_->reduce_scatter(out, in, counts, op, label);
  }
  Work all_gather(const Tensor& out, const Tensor& in, const std::vector<int64_t>& counts,
                  std::string_view label) override {
    if (!on_gpu(out, in)) return host_->all_gather(out, in, counts, label);
    return last_ = queued_->all_gather(out, in, counts, label);
  }
  Work all_to_all(const Tensor& out, const std::vector<int64_t>& receive_counts,
                  const std::vector<int64_t>& receive_offsets, const Tensor& in,
                  const std::vector<int64_t>& send_counts, const std::vector<int64_t>& send_offsets,
                  std::string_view label) override {
    if (!on_gpu(out, in))
      return host_->all_to_all(out, receive_counts, receive_offsets, in, send_counts, send_offsets, label);
    return last_ = queued_->all_to_all(out, receive_counts, receive_offsets, in, send_counts, send_offsets, label);
  }
  Work broadcast(const Tensor& tensor, int root, std::string_view label) override {
    if (!on_gpu(tensor)) return host_->broadcast(tensor, root, label);
    return last_ = queued_->broadcast(tensor, root, label);
  }
  Work send(const Tensor& tensor, int to, std::string_view label) override { return host_->send(tensor, to, label); }
  Work receive(const Tensor& tensor, int from, std::string_view label) override {
    return host_->receive(tensor, from, label);
  }

  void barrier(std::string_view label) override {
    last_.finish();
    host_->barrier(with_history(label));
  }
  Work fence(std::string_view label) override {
    last_.finish();
    return host_->fence(with_history(label));
  }
  std::unique_ptr<Communicator> split(int color, int key, std::string_view label) override {
    auto host = host_->split(color, key, with_history(label));
    const NcclChannel::Part part{*channel_, color, key};
    if (host) return std::make_unique<NcclComm>(std::move(host), device_, options_, this, &part);
    channel_->stay_out();
    return nullptr;
  }

  std::unique_ptr<Communicator> copy_for_host(std::string_view label) override {
    return host_->copy_for_host(with_history(label));
  }

  Tensor registered(int64_t elements, DType dtype) override {
    const int64_t before = host_->bytes_sent(), bytes = elements * size_of(dtype);
    std::shared_ptr<void> memory;
    if (size() > 1 && bytes >= kLeastRegistered && current_device() == device_ && !context().recording)
      memory = channel_->registered_memory(round_up(bytes, kPiece));
    count_setup(host_->bytes_sent() - before);
    if (!memory) return Communicator::registered(elements, dtype);
    auto storage = std::make_shared<Storage>(device_, bytes, memory.get(), memory);
    return Tensor::view_of(std::move(storage), 0, {elements}, dtype);
  }

  int64_t bytes_sent() const override { return host_->bytes_sent() + queued_->bytes_sent() - setup_->bytes; }
  void abort(const Error& why) override { channel_->abort(why); }
  std::optional<Error> failure() const override { return channel_->failure(); }

 private:
  // NCCL allocates memory in units of this size, and registering is a collective of all ranks; smaller tensors are
  // exchanged fast enough without it.
  static constexpr int64_t kPiece = int64_t(2) << 20, kLeastRegistered = kPiece / 2;

  // What connecting and registering sent through the host communicator, which is counted in those that it was split
  // from.
  struct SetupBytes {
    std::atomic<int64_t> bytes{0};
    std::shared_ptr<SetupBytes> parent;
  };

  void count_setup(int64_t sent) {
    for (SetupBytes* s = setup_.get(); s; s = s->parent.get()) s->bytes += sent;
  }
  // The history is part of the label, so ranks whose earlier calls differ disagree on this call.
  std::string with_history(std::string_view label) const {
    return options_.check_calls ? str(label, " (after ", channel_->history(), ")") : std::string(label);
  }

  const std::shared_ptr<Communicator> host_;
  const Device device_;
  const CommOptions options_;
  const std::shared_ptr<SetupBytes> setup_ = std::make_shared<SetupBytes>();
  std::shared_ptr<NcclChannel> channel_;
  std::unique_ptr<QueuedComm> queued_;
  Work last_;  // on the GPU
};

NcclComm::NcclComm(std::unique_ptr<Communicator> host, Device device, const CommOptions& options,
                   const NcclComm* parent, const NcclChannel::Part* part)
    : host_(std::move(host)), device_(device), options_(options) {
  const int64_t before = host_->bytes_sent();
  auto stream = std::make_unique<Stream>(device_, Stream::Mode::kQueue, 1, Stream::Priority::kHigh);
  channel_ = std::make_shared<NcclChannel>(nccl_api(), host_, *stream, options_, part);
  queued_ = std::make_unique<QueuedComm>(channel_, std::move(stream), parent ? parent->queued_.get() : nullptr);
  if (parent) setup_->parent = parent->setup_;
  count_setup(host_->bytes_sent() - before);
}

// What a rank tells the others: "2.28.9 | (a machine_id) | 0000:3b:00.0", or "! " and why it cannot use NCCL.
constexpr std::string_view kBetween = " | ", kCannot = "! ";

std::string introduction(const Device& device) {
  std::string why;
  const NcclApi* api = find_nccl_api(&why);
  if (!api) return str(kCannot, why);
  return str(api->version(), kBetween, machine_id(), kBetween, device_backend().properties(device.index).bus);
}

// Why these ranks cannot use NCCL; empty if they can.
std::string obstacle(const std::vector<std::string>& all) {
  for (size_t r = 0; r < all.size(); ++r)
    if (all[r].starts_with(kCannot)) return str("rank ", static_cast<int>(r), ": ", all[r].substr(kCannot.size()));
  for (size_t r = 0; r < all.size(); ++r) {
    std::vector<int> same;
    for (size_t q = 0; q < all.size(); ++q)
      if (all[q] == all[r]) same.push_back(static_cast<int>(q));
    if (same.size() > 1)
      return str("NCCL needs one GPU for each rank, but ", ranks_text(same), " share one (PCI ",
                 all[r].substr(all[r].rfind(kBetween) + kBetween.size()),
                 "): they exchange through host memory, which is slower");
  }
  return "";
}

void check_versions(const std::vector<std::string>& all) {
  auto version = [&](size_t r) { return all[r].substr(0, all[r].find(kBetween)); };
  for (size_t r = 1; r < all.size(); ++r)
    require(version(r) == version(0), ExitCode::kRanksDisagree, "the ranks' NCCL differs: rank 0 has ", version(0),
            ", rank ", static_cast<int>(r), " has ", version(r), ": give all hosts one LD_LIBRARY_PATH");
}

}  // namespace

std::unique_ptr<Communicator> make_nccl_communicator(Communicator& host, Device device, const CommOptions& options,
                                                     std::string* why) {
  check(device.type == DeviceType::kCuda, "NCCL for ", to_text(device));
  const std::vector<std::string> all = all_gather_text(host, introduction(device), "GPUs of ranks");
  if (const std::string reason = obstacle(all); !reason.empty()) {
    if (why) *why = reason;
    return nullptr;
  }
  check_versions(all);
  return std::make_unique<NcclComm>(host.split(0, host.rank(), "NCCL's host side"), device, options, nullptr, nullptr);
}

}  // namespace lockstep
