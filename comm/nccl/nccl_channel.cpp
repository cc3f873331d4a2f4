#include "comm/nccl/nccl_channel.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <future>
#include <utility>

#include "core/base/hash.h"
#include "core/base/host.h"
#include "core/base/log.h"
#include "core/device/allocator.h"
#include "core/device/context.h"
#include "core/device/graph.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

constexpr Seconds kWatchInterval{0.1};  // polling interval of the watch thread and of waits
constexpr Seconds kCleanUpLimit{10};    // time limit for NCCL calls that only clean up
constexpr Seconds kHandOver{1};         // time for the rank's thread to return from NCCL before an abort

// Runs `work` on a separate thread, since NCCL may hang in it. Returns false and abandons the thread if it is not done
// within `limit`. `glance` is called repeatedly meanwhile, and may throw to end the wait. Rethrows what `work` threw.
template <class Work, class Glance>
bool done_within(Seconds limit, Work work, const Glance& glance) {
  auto task = std::make_shared<std::packaged_task<void()>>(std::move(work));
  std::future<void> result = task->get_future();
  const auto start = Clock::now();
  std::thread([task] { (*task)(); }).detach();
  while (result.wait_for(std::min(limit, kWatchInterval)) != std::future_status::ready) {
    glance();
    if (Clock::now() - start >= limit) return false;
  }
  result.get();
  return true;
}

bool all_equal(const std::vector<int64_t>& counts) {
  return std::all_of(counts.begin(), counts.end(), [&](int64_t c) { return c == counts[0]; });
}

// A group of NCCL operations, which is also ended if one of them throws.
class Group {
 public:
  explicit Group(NcclApi& api) : api_(api) { api_.group_start(); }
  ~Group() {
    if (!open_) return;
    try {
      api_.group_end();
    } catch (...) {
      // Another error is being thrown already.
    }
  }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  void run() {
    open_ = false;
    api_.group_end();
  }

 private:
  NcclApi& api_;
  bool open_ = true;
};

[[noreturn]] void end_process(const std::string& why) {
  log_error(why);
  close_log_file();
  std::fflush(nullptr);
  _exit(static_cast<int>(ExitCode::kRankLost));
}

}  // namespace

NcclChannel::NcclChannel(NcclApi& api, std::shared_ptr<Communicator> host, Stream& stream, const CommOptions& options,
                         const Part* part)
    : api_(api),
      host_(std::move(host)),
      stream_(stream),
      queue_(*stream.device_queue()),
      options_(options),
      rank_(host_->rank()),
      size_(host_->size()),
      state_(std::make_shared<CallWatch>(rank_, size_, options.deadline, part ? part->parent.state() : nullptr)),
      watch_(std::make_shared<const Work::Watch>([state = state_](Seconds, const std::string&) { state->look(); })) {
  make_board();
  connect(part);
  thread_ = std::thread([this, prefix = log_prefix()] {
    set_log_prefix(prefix);
    watch_calls();
  });
}

NcclChannel::~NcclChannel() { stop_watching(); }

void NcclChannel::make_board() {
  static std::atomic<int> boards{0};
  const std::vector<std::string> machines = all_gather_text(*host_, machine_id(), "machines");
  std::vector<int> places(machines.size(), -1);
  const std::string& mine = machines[static_cast<size_t>(rank_)];
  int count = 0, first = -1;
  for (size_t r = 0; r < machines.size(); ++r) {
    if (machines[r] != mine) continue;
    if (first < 0) first = static_cast<int>(r);
    places[r] = count++;
  }
  std::string name;
  std::unique_ptr<ProgressBoard> board;
  if (rank_ == first) {
    name = str("/lockstep-", getpid(), "-nccl-", boards++, "-", Clock::now().time_since_epoch().count());
    board = ProgressBoard::create(name, count);
  }
  name = all_gather_text(*host_, name, "board")[static_cast<size_t>(first)];
  if (rank_ != first) board = ProgressBoard::open(name, count);
  const std::vector<int64_t> good = all_gather_values(*host_, board != nullptr, "board");
  if (rank_ == first) ProgressBoard::unlink(name);
  for (size_t r = 0; r < machines.size(); ++r)
    if (machines[r] == mine && !good[r]) board.reset();
  state_->set_board(std::move(board), std::move(places));
}

// Marks that the rank's thread is inside an NCCL call. Before the watch thread aborts the communicator it waits, for at
// most kHandOver, until the call returns.
class NcclChannel::InLibrary {
 public:
  explicit InLibrary(NcclChannel& channel) : channel_(channel) { set(true); }
  ~InLibrary() {
    set(false);
    channel_.changed_.notify_all();
  }
  InLibrary(const InLibrary&) = delete;
  InLibrary& operator=(const InLibrary&) = delete;

 private:
  void set(bool in) {
    std::lock_guard lock(channel_.mutex_);
    channel_.in_library_ = in;
  }
  NcclChannel& channel_;
};

void NcclChannel::connect(const Part* part) {
  if (part && options_.nccl_shares) {
    InLibrary here(part->parent);
    if (!part->parent.comm_) part->parent.state_->look();  // aborted in the meantime
    comm_ = made_within_deadline([&api = api_, from = part->parent.comm_, color = part->color, key = part->key] {
      return api.split(from, color, key);
    });
    return;
  }
  const std::string id = broadcast_text(*host_, rank_ == 0 ? api_.new_id() : "", 0, "NCCL id");
  comm_ = made_within_deadline([&api = api_, id, rank = rank_, size = size_, gpu = stream_.device().index] {
    return api.connect(id, rank, size, gpu);
  });
}

void NcclChannel::stay_out() {
  if (!options_.nccl_shares) return;
  InLibrary here(*this);
  if (!comm_) state_->look();
  (void)made_within_deadline([&api = api_, from = comm_] { return api.split(from, -1, 0); });
}

NcclApi::Handle NcclChannel::made_within_deadline(const std::function<NcclApi::Handle()>& make) {
  auto made = std::make_shared<NcclApi::Handle>(nullptr);
  try {
    const bool connected = done_within(
        options_.deadline, [make, made] { *made = make(); },
        [&] {
          if (auto error = host_->failure()) throw *error;
        });
    require(connected, ExitCode::kRankLost, "NCCL did not connect the ", size_, " ranks within ",
            options_.deadline.count(),
            " s, though all have started: NCCL_DEBUG=INFO in the environment says what it waits ",
            "for, NCCL_SOCKET_IFNAME names the network interface to use");
  } catch (const Error& error) {
    host_->abort(error);
    throw;
  }
  return *made;
}

std::string NcclChannel::history() const {
  char hash[17];
  std::snprintf(hash, sizeof hash, "%016llx", static_cast<unsigned long long>(calls_hash_));
  return str(calls_, " calls of GPUs, ", hash);
}

std::shared_ptr<Channel> NcclChannel::split(const Call& call) {
  check(false, to_text(call), ": NcclComm splits the host's communicator instead");
  return nullptr;
}

// Memory that NCCL allocates, counted by the allocator.
struct NcclChannel::Registered {
  Registered(NcclApi& api, std::shared_ptr<const CallWatch> state, const Device& device, int64_t bytes)
      : api(api),
        state(std::move(state)),
        device(device),
        bytes(bytes),
        data(take_from_library([&] { return api.allocate(device.index, bytes); }, bytes, device,
                               context().memory_use)) {}
  ~Registered() {
    if (!data) return;
    forget_bytes(data, device);
    // Freeing waits for the GPU, which may hang together with the other ranks. The process is about to end and frees
    // the memory.
    if (state->failure()) return;
    try {
      api.free(device.index, data);
    } catch (const Error& error) {
      log_warning(str(bytes, " bytes registered with NCCL on ", device, " cannot be freed: ", error.what()));
    }
  }
  Registered(const Registered&) = delete;
  Registered& operator=(const Registered&) = delete;

  NcclApi& api;
  const std::shared_ptr<const CallWatch> state;
  const Device device;
  const int64_t bytes;
  void* const data;
  NcclApi::Window window = nullptr;
};

std::shared_ptr<void> NcclChannel::registered_memory(int64_t bytes) {
  if (!registers_) return nullptr;
  const auto memory = std::make_shared<Registered>(api_, state_, stream_.device(), bytes);
  const std::vector<int64_t> got = all_gather_values(*host_, memory->data ? bytes : 0, "memory to register");
  if (std::find(got.begin(), got.end(), 0) != got.end()) return nullptr;
  require(all_equal(got), ExitCode::kRanksDisagree, "ranks register memory of different sizes: ", bytes,
          " bytes on rank ", rank_);
  const std::vector<int64_t> added = all_gather_values(*host_, add_window(memory), "registered memory");
  registers_ = std::find(added.begin(), added.end(), 0) == added.end();
  if (registers_) {
    registered_.push_back(memory);
    return {memory, memory->data};
  }
  if (memory->window) {
    InLibrary here(*this);
    if (comm_) api_.remove_window(comm_, memory->window);
  }
  return nullptr;
}

// False if NCCL gives this rank no window. If it fails here, other ranks may be waiting in it for this rank.
bool NcclChannel::add_window(const std::shared_ptr<Registered>& memory) {
  InLibrary here(*this);
  if (!comm_) state_->look();
  check(comm_ != nullptr, "memory is registered with a closed communicator");
  constexpr std::string_view kWithout = "NCCL_WIN_ENABLE=0 in the environment disables registration";
  try {
    const bool met = done_within(
        options_.deadline,
        [&api = api_, comm = comm_, memory, kWithout] {
          try {
            memory->window = api.add_window(comm, memory->data, memory->bytes);
          } catch (const Error& error) {
            throw error.with_message(str(error.what(), "; ", kWithout));
          }
        },
        [&] {
          state_->look();
          if (auto error = host_->failure()) throw *error;
        });
    require(met, ExitCode::kRankLost, "NCCL did not register memory on all ranks within ", options_.deadline.count(),
            " s: NCCL_DEBUG=INFO in the environment says why, ", kWithout);
    return memory->window != nullptr;
  } catch (const Error& error) {
    // An error on another rank may be the cause of NCCL's failure on this one.
    if (auto first = state_->failure()) throw *first;
    if (auto first = host_->failure()) throw *first;
    poison(error);
    throw;
  }
}

void NcclChannel::run(const Call& call) {
  state_->post(call);
  const uint64_t print = fingerprint(call);
  calls_hash_ = hash64(&print, sizeof print, calls_hash_);
  ++calls_;
  try {
    if (options_.check_calls) state_->compare(call);
    {
      InLibrary here(*this);
      if (!comm_) state_->look();  // aborted in the meantime
      check(comm_ != nullptr, to_text(call), ": the communicator is closed");
      issue(call);
    }
    std::lock_guard lock(mutex_);
    if (flights_.empty()) state_->follow(call);
    flights_.push_back({call, queue_.record()});
  } catch (const Error& error) {
    poison(error);
    throw;
  }
}

void NcclChannel::issue(const Call& call) {
  switch (call.kind) {
    case CallKind::kAllReduce:
      if (call.numel > 0) api_.all_reduce(comm_, call.in, call.out, call.numel, call.dtype, call.op, queue_);
      return;
    case CallKind::kReduceScatter: return reduce_parts(call);
    case CallKind::kAllGather: return gather_parts(call);
    case CallKind::kAllToAll: return exchange_parts(call);
    case CallKind::kBroadcast:
      if (call.numel > 0)
        api_.broadcast(comm_, call.in, call.out ? call.out : const_cast<void*>(call.in), call.numel, call.dtype,
                       call.peer, queue_);
      return;
    default: check(false, to_text(call), ": must run on the host's communicator");
  }
}

// NCCL's all-gather needs parts of equal size. Otherwise each rank broadcasts its part, one after the other.
void NcclChannel::gather_parts(const Call& call) {
  if (all_equal(call.counts)) {
    if (call.counts[0] > 0) api_.all_gather(comm_, call.in, call.out, call.counts[0], call.dtype, queue_);
    return;
  }
  Group group(api_);
  for (int r = 0; r < size_; ++r) {
    const auto i = static_cast<size_t>(r);
    char* place = call.out_at(call.offsets[i]);
    if (call.counts[i] > 0)
      api_.broadcast(comm_, r == rank_ ? call.in : place, place, call.counts[i], call.dtype, r, queue_);
  }
  group.run();
}

void NcclChannel::reduce_parts(const Call& call) {
  if (all_equal(call.counts)) {
    if (call.counts[0] > 0) api_.reduce_scatter(comm_, call.in, call.out, call.counts[0], call.dtype, call.op, queue_);
    return;
  }
  Group group(api_);
  for (int r = 0; r < size_; ++r) {
    const auto i = static_cast<size_t>(r);
    if (call.counts[i] > 0)
      api_.reduce(comm_, call.in_at(call.offsets[i]), r == rank_ ? call.out : nullptr, call.counts[i], call.dtype,
                  call.op, r, queue_);
  }
  group.run();
}

// Every rank begins with its neighbours, so that the ranks do not all send to the same one.
void NcclChannel::exchange_parts(const Call& call) {
  const auto me = static_cast<size_t>(rank_), n = static_cast<size_t>(size_);
  if (call.counts[me] > 0)
    queue_.copy(call.out_at(call.offsets[me]), call.in_at(call.send_offsets[me]),
                call.counts[me] * size_of(call.dtype));
  Group group(api_);
  for (size_t i = 1; i < n; ++i) {
    const size_t to = (me + i) % n, from = (me + n - i) % n;
    if (call.send_counts[to] > 0)
      api_.send(comm_, call.in_at(call.send_offsets[to]), call.send_counts[to], call.dtype, static_cast<int>(to),
                queue_);
    if (call.counts[from] > 0)
      api_.receive(comm_, call.out_at(call.offsets[from]), call.counts[from], call.dtype, static_cast<int>(from),
                   queue_);
  }
  group.run();
}

void NcclChannel::poison(const Error& error) {
  state_->poison(error);
  if (!host_->failure()) host_->abort(error);
  {
    std::lock_guard lock(mutex_);
    look_now_ = true;
  }
  changed_.notify_all();
}

void NcclChannel::watch_calls() {
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, kWatchInterval, [&] { return stopping_ || look_now_; });
      look_now_ = false;
      if (stopping_) return;
    }
    try {
      look();
    } catch (const Error& error) {
      poison(error);
      return end_hanging_work(error);
    }
  }
}

void NcclChannel::look() {
  follow_flights();
  state_->look();
  if (auto error = host_->failure()) throw *error;
  const std::string error = api_.async_error(comm_);
  require(error.empty(), ExitCode::kRankLost, "NCCL on rank ", rank_, ": ", error);
}

void NcclChannel::follow_flights() {
  std::lock_guard lock(mutex_);
  bool moved = false;
  while (!flights_.empty() && flights_.front().done->done()) {
    flights_.pop_front();
    moved = true;
  }
  if (flights_.empty()) state_->end();
  else if (moved) state_->follow(flights_.front().call);
}

// Aborts NCCL's communicator. Otherwise the GPU's kernels would wait forever, and the rank would wait for them.
void NcclChannel::end_hanging_work(const Error& cause) {
  stream_.fail(std::make_exception_ptr(cause));  // first, so that nothing uses results that were not computed
  const Seconds limit = std::min(kCleanUpLimit, 10 * options_.deadline);
  NcclApi::Handle comm = nullptr;
  {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kHandOver, [&] { return !in_library_; });  // the abort ends a call that hangs
    comm = std::exchange(comm_, nullptr);
  }
  // NCCL's abort waits until no CUDA graph holds operations of the communicator.
  if (const int graphs = drop_graphs(stream_.device()); graphs > 0)
    log_warning(str("rank ", rank_, " drops ", graphs, " recorded step", graphs > 1 ? "s" : "",
                    ", as NCCL cannot be aborted before"));
  std::string problem = "it hangs";
  try {
    if (done_within(
            limit, [&api = api_, comm] { api.abort(comm); }, [] {}))
      return;
  } catch (const Error& error) {
    problem = error.what();
  }
  end_process(str("rank ", rank_, " ends immediately, since NCCL's communicator cannot be aborted (", problem,
                  "); the cause: ", cause.what()));
}

void NcclChannel::stop_watching() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

bool NcclChannel::close(Stream& stream) {
  // Once the communicator is poisoned, the watch thread ends the work or the process; if the wait does not return after
  // that, the GPU itself hangs.
  bool idle = false;
  std::optional<Clock::time_point> poisoned;
  while (!idle && !(poisoned && Clock::now() - *poisoned > 2 * kCleanUpLimit)) {
    try {
      idle = stream.synchronize(kWatchInterval);
    } catch (...) {
      idle = true;  // the error has already reached those that waited for that work
    }
    if (!poisoned && state_->poisoned()) poisoned = Clock::now();
  }
  stop_watching();
  state_->leave();
  const auto look = [&] {
    if (auto error = state_->failure()) throw *error;
  };
  if (comm_ && state_->failure()) end_hanging_work(*state_->failure());
  if (!comm_) return idle;
  const NcclApi::Handle comm = std::exchange(comm_, nullptr);
  try {
    // If that call hangs, the memory stays allocated. Freeing it is not under the time limit, because it waits for the
    // GPU's other streams.
    const auto memory = std::make_shared<std::vector<std::shared_ptr<Registered>>>(std::move(registered_));
    if (done_within(
            kCleanUpLimit,
            [&api = api_, comm, memory] {
              for (const auto& m : *memory) api.remove_window(comm, m->window);
              api.close(comm);
            },
            look))
      memory->clear();
    else log_warning("an NCCL communicator cannot be closed: another rank has not closed it");
  } catch (const Error& error) {
    if (!state_->poisoned()) log_warning(str("an NCCL communicator cannot be closed: ", error.what()));
  }
  return idle;
}

}  // namespace lockstep
