#include "tests/support/fake_nccl.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "comm/reduce.h"
#include "tests/support/fake_gpu.h"

namespace lockstep::testing {
namespace {

enum class Kind { kAllReduce, kReduce, kReduceScatter, kAllGather, kBroadcast };

struct Operation {
  Kind kind;
  const void* in;
  void* out;
  int64_t n;
  DType dtype;
  ReduceOp op;
  int root;

  bool fits(const Operation& o) const {
    return kind == o.kind && n == o.n && dtype == o.dtype && op == o.op && root == o.root;
  }
  int64_t bytes() const { return n * size_of(dtype); }
};

struct OpenWindow {
  const char* begin;
  int64_t bytes;
  bool open = true;
};

// What the ranks of one communicator share.
struct Group {
  explicit Group(int size) : size(size), aborted(static_cast<size_t>(size)), windows(static_cast<size_t>(size)) {}

  struct Meeting {  // of all ranks at one operation
    std::vector<const Operation*> operations;
    int here = 0, gone = 0;
    bool done = false;
  };
  struct Message {
    const void* bytes;
    int64_t size;
    bool taken = false;
  };

  const int size;
  std::mutex mutex;
  std::condition_variable changed;
  int connected = 0, closed = 0;
  std::vector<bool> aborted;                    // by rank: its operations end; those of others hang
  std::vector<std::deque<OpenWindow>> windows;  // by rank, in the order in which they were added
  std::map<int64_t, Meeting> meetings;
  struct Cut {
    int here = 0;
    std::map<int, std::vector<std::pair<int, int>>> parts;  // by color: keys and ranks
  };
  std::map<int64_t, Cut> cuts;
  std::map<std::pair<int, int>, std::deque<std::shared_ptr<Message>>> mail;

  bool gone(int rank) const { return aborted[static_cast<size_t>(rank)]; }
  bool broken() const { return std::find(aborted.begin(), aborted.end(), true) != aborted.end(); }
  // Which window, and where in it; {-1, 0} for other memory.
  std::pair<int, int64_t> place(int rank, const void* data, int64_t bytes) const {
    const auto& of_rank = windows[static_cast<size_t>(rank)];
    const char* begin = static_cast<const char*>(data);
    for (size_t i = 0; i < of_rank.size(); ++i)
      if (of_rank[i].open && begin >= of_rank[i].begin && begin + bytes <= of_rank[i].begin + of_rank[i].bytes)
        return {static_cast<int>(i), begin - of_rank[i].begin};
    return {-1, 0};
  }
  void wait(std::unique_lock<std::mutex>& lock, int rank, const std::function<bool()>& ready) {
    changed.wait(lock, [&] { return gone(rank) || (ready() && !broken()); });
  }
};

struct Rank {
  std::shared_ptr<Group> group;
  int rank, gpu;
  int64_t next = 0;  // operation; only its queue's thread
  int64_t splits = 0;
};

void copy(void* to, const void* from, int64_t bytes) {
  if (to != from && bytes > 0) memmove(to, from, static_cast<size_t>(bytes));
}

// Once all are here, the last one does it all.
void carry_out(const std::vector<const Operation*>& all) {
  const Operation& first = *all[0];
  for (const Operation* o : all) check(first.fits(*o), "the ranks' operations differ: real NCCL would hang, or worse");
  const int64_t bytes = first.bytes();
  auto part = [&](const void* whole, size_t r) {
    return static_cast<char*>(fake_gpu_bytes(whole)) + static_cast<int64_t>(r) * bytes;
  };
  auto reduce = [&](size_t from, std::vector<void*> to) {
    std::vector<const void*> in;
    for (const Operation* o : all) in.push_back(part(o->in, from));
    reduce_in_order(first.op, first.dtype, in, to, first.n);
  };
  std::vector<void*> outs;
  for (const Operation* o : all) outs.push_back(o->out ? fake_gpu_bytes(o->out) : nullptr);
  const auto root = static_cast<size_t>(first.root);
  switch (first.kind) {
    case Kind::kAllReduce: return reduce(0, outs);
    case Kind::kReduce: return reduce(0, {outs[root]});
    case Kind::kReduceScatter: {
      // Not in place: an output may lie in a part that others still read.
      std::vector<std::vector<char>> sums(all.size(), std::vector<char>(static_cast<size_t>(bytes)));
      for (size_t r = 0; r < all.size(); ++r) reduce(r, {sums[r].data()});
      for (size_t r = 0; r < all.size(); ++r) copy(outs[r], sums[r].data(), bytes);
      return;
    }
    case Kind::kAllGather:
      for (size_t to = 0; to < all.size(); ++to)
        for (size_t from = 0; from < all.size(); ++from)
          copy(part(all[to]->out, from), fake_gpu_bytes(all[from]->in), bytes);
      return;
    case Kind::kBroadcast:
      for (void* out : outs) copy(out, fake_gpu_bytes(all[root]->in), bytes);
      return;
  }
}

std::atomic<int64_t> direct{0}, connected{0}, shared{0}, version_calls{0};

// On every rank the same place of the same window, or on none; what is a rank's own part lies where it likes.
void check_windows(const Group& group, const std::vector<const Operation*>& all) {
  const Kind kind = all[0]->kind;
  if (kind == Kind::kBroadcast || kind == Kind::kReduce) return;
  auto same = [&](auto buffer, int64_t parts) {
    const auto first = group.place(0, buffer(*all[0]), parts * all[0]->bytes());
    for (int r = 1; r < group.size; ++r)
      check(group.place(r, buffer(*all[static_cast<size_t>(r)]), parts * all[0]->bytes()) == first,
            "registered memory at other places on other ranks: real NCCL would hang, or worse");
    return first.first >= 0;
  };
  bool registered = true;
  if (kind != Kind::kAllGather)
    registered = same([](const Operation& o) { return o.in; }, kind == Kind::kAllReduce ? 1 : group.size);
  if (kind != Kind::kReduceScatter)
    registered =
        same([](const Operation& o) { return o.out; }, kind == Kind::kAllReduce ? 1 : group.size) && registered;
  if (registered) ++direct;
}

void meet(Group& group, int rank, int64_t number, const Operation& operation) {
  std::unique_lock lock(group.mutex);
  if (group.gone(rank)) return;
  Group::Meeting& meeting = group.meetings[number];
  meeting.operations.resize(static_cast<size_t>(group.size));
  meeting.operations[static_cast<size_t>(rank)] = &operation;
  if (++meeting.here == group.size && !group.broken()) {
    check_windows(group, meeting.operations);
    carry_out(meeting.operations);
    meeting.done = true;
    group.changed.notify_all();
  }
  group.wait(lock, rank, [&] { return meeting.done; });
  if (++meeting.gone == group.size) group.meetings.erase(number);
}

// What a thread has started and not yet run.
struct Started {
  struct Post {
    int peer;
    void* bytes;
    int64_t size;
  };
  std::shared_ptr<Rank> rank;
  DeviceQueue* queue = nullptr;
  std::vector<Operation> operations;
  std::vector<Post> sends, receives;
};
thread_local bool grouped = false;
thread_local Started started;

// All messages of a group go at once, and it ends when all have arrived. Numbered now: a graph runs it again and again.
void run(const Started& s) {
  Group& group = *s.rank->group;
  const int rank = s.rank->rank;
  for (const Operation& operation : s.operations) meet(group, rank, s.rank->next++, operation);
  std::unique_lock lock(group.mutex);
  std::vector<std::shared_ptr<Group::Message>> sent;
  for (const auto& post : s.sends) {
    sent.push_back(std::make_shared<Group::Message>(Group::Message{fake_gpu_bytes(post.bytes), post.size}));
    group.mail[{rank, post.peer}].push_back(sent.back());
  }
  group.changed.notify_all();
  for (const auto& post : s.receives) {
    auto& mail = group.mail[{post.peer, rank}];
    group.wait(lock, rank, [&] { return !mail.empty(); });
    if (group.gone(rank)) return;
    check(mail.front()->size == post.size, "a message of another size: real NCCL would hang, or worse");
    copy(fake_gpu_bytes(post.bytes), mail.front()->bytes, post.size);
    mail.front()->taken = true;
    mail.pop_front();
    group.changed.notify_all();
  }
  for (const auto& message : sent) group.wait(lock, rank, [&] { return message->taken; });
}

void enqueue() {
  if (grouped || !started.rank) return;
  DeviceQueue& queue = *started.queue;
  fake_gpu_enqueue(queue, [s = std::exchange(started, {})] { run(s); });
}

class FakeNccl final : public NcclApi {
 public:
  std::string version() const override {
    const std::string version = asked().version;
    ++version_calls;
    return version;
  }
  std::string new_id() override {
    std::lock_guard lock(mutex_);
    return str("id ", ++ids_);
  }
  Handle connect(const std::string& id, int rank, int size, int gpu) override {
    if (asked().connect_hangs) hang();
    std::shared_ptr<Group> group;
    {
      std::lock_guard lock(mutex_);
      auto& place = groups_[id];
      if (!place) place = std::make_shared<Group>(size);
      group = place;
    }
    std::unique_lock lock(group->mutex);
    ++group->connected;
    group->changed.notify_all();
    group->changed.wait(lock, [&] { return group->connected == size; });
    ++connected;
    return new std::shared_ptr<Rank>(new Rank{group, rank, gpu});
  }
  Handle split(Handle comm, int color, int key) override {
    const std::shared_ptr<Rank> rank = *static_cast<std::shared_ptr<Rank>*>(comm);
    Group& group = *rank->group;
    const int64_t number = rank->splits++;
    std::pair<int, int> mine{key, rank->rank};
    std::vector<std::pair<int, int>> part;
    {
      std::unique_lock lock(group.mutex);
      Group::Cut& cut = group.cuts[number];
      if (color >= 0) cut.parts[color].push_back(mine);
      ++cut.here;
      group.changed.notify_all();
      group.wait(lock, rank->rank, [&] { return cut.here == group.size; });
      require(!group.gone(rank->rank), ExitCode::kRankLost, "the communicator was aborted");
      if (color < 0) return nullptr;
      part = cut.parts[color];
    }
    ++shared;
    std::sort(part.begin(), part.end());
    const auto place = std::find(part.begin(), part.end(), mine) - part.begin();
    return connect(str("part ", number, " of ", reinterpret_cast<uintptr_t>(&group), ", ", color),
                   static_cast<int>(place), static_cast<int>(part.size()), rank->gpu);
  }
  void close(Handle comm) override {
    const std::unique_ptr<std::shared_ptr<Rank>> rank(static_cast<std::shared_ptr<Rank>*>(comm));
    Group& group = *(*rank)->group;
    std::unique_lock lock(group.mutex);
    for (const OpenWindow& w : group.windows[static_cast<size_t>((*rank)->rank)])
      if (w.open) blame("a communicator is closed before its windows");
    ++group.closed;
    group.changed.notify_all();
    group.changed.wait(lock, [&] { return group.closed == group.size; });
  }
  void abort(Handle comm) override {
    if (asked().abort_hangs) hang();
    const std::unique_ptr<std::shared_ptr<Rank>> rank(static_cast<std::shared_ptr<Rank>*>(comm));
    Group& group = *(*rank)->group;
    std::lock_guard lock(group.mutex);
    group.aborted[static_cast<size_t>((*rank)->rank)] = true;
    for (OpenWindow& w : group.windows[static_cast<size_t>((*rank)->rank)]) w.open = false;
    group.changed.notify_all();
  }
  std::string async_error(Handle) override { return asked().async_error; }

  void* allocate(int gpu, int64_t bytes) override {
    void* data = device_backend().allocate(gpu, bytes);
    std::lock_guard lock(mutex_);
    gpu_of_[data] = gpu;
    return data;
  }
  void free(int gpu, void* data) override {
    {
      std::lock_guard lock(mutex_);
      if (gpu_of_[data] != gpu) blame("memory is freed on another GPU");
      for (auto& [id, group] : groups_) {
        std::lock_guard lock_group(group->mutex);
        for (int r = 0; r < group->size; ++r)
          if (group->place(r, data, 1).first >= 0) blame("memory is freed that is a window");
      }
    }
    device_backend().release(gpu, data);
  }
  Window add_window(Handle comm, void* data, int64_t bytes) override {
    const FakeNcclFaults faults = asked();
    if (faults.register_hangs) hang();
    if (!faults.windows) return nullptr;
    const std::shared_ptr<Rank> held = *static_cast<std::shared_ptr<Rank>*>(comm);  // whoever aborts frees `comm`
    const Rank& rank = *held;
    if (rank.rank == faults.fails_before_meeting_on)
      throw Error(ExitCode::kDevice, "NCCL: registering memory: unhandled cuda error");
    {
      std::lock_guard lock(mutex_);
      if (gpu_of_[data] != rank.gpu) blame("a window lies on another GPU than its communicator");
    }
    Group& group = *rank.group;
    std::unique_lock lock(group.mutex);
    auto& mine = group.windows[static_cast<size_t>(rank.rank)];
    mine.push_back({static_cast<const char*>(data), bytes});
    const size_t count = mine.size();
    OpenWindow& window = mine.back();
    group.changed.notify_all();
    group.wait(lock, rank.rank, [&] {
      return std::all_of(group.windows.begin(), group.windows.end(), [&](auto& w) { return w.size() >= count; });
    });
    for (const auto& of_rank : group.windows)
      check(group.gone(rank.rank) || of_rank[count - 1].bytes == bytes, "windows of other sizes on other ranks");
    if (rank.rank != faults.no_window_on) return &window;
    window.open = false;
    return nullptr;
  }
  void remove_window(Handle comm, Window window) override {
    std::lock_guard lock((*static_cast<std::shared_ptr<Rank>*>(comm))->group->mutex);
    auto& w = *static_cast<OpenWindow*>(window);
    if (!w.open) blame("a window is removed twice");
    w.open = false;
  }

  void group_start() override { grouped = true; }
  void group_end() override {
    grouped = false;
    enqueue();
  }

  void all_reduce(Handle c, const void* in, void* out, int64_t n, DType d, ReduceOp op, DeviceQueue& q) override {
    start(c, {Kind::kAllReduce, in, out, n, d, op, 0}, q);
  }
  void reduce(Handle c, const void* in, void* out, int64_t n, DType d, ReduceOp op, int root, DeviceQueue& q) override {
    start(c, {Kind::kReduce, in, out, n, d, op, root}, q);
  }
  void reduce_scatter(Handle c, const void* in, void* out, int64_t n, DType d, ReduceOp op, DeviceQueue& q) override {
    start(c, {Kind::kReduceScatter, in, out, n, d, op, 0}, q);
  }
  void all_gather(Handle c, const void* in, void* out, int64_t n, DType d, DeviceQueue& q) override {
    start(c, {Kind::kAllGather, in, out, n, d, ReduceOp::kSum, 0}, q);
  }
  void broadcast(Handle c, const void* in, void* out, int64_t n, DType d, int root, DeviceQueue& q) override {
    start(c, {Kind::kBroadcast, in, out, n, d, ReduceOp::kSum, root}, q);
  }
  void send(Handle c, const void* in, int64_t n, DType d, int to, DeviceQueue& q) override {
    begin(c, q).sends.push_back({to, const_cast<void*>(in), n * size_of(d)});
    enqueue();
  }
  void receive(Handle c, void* out, int64_t n, DType d, int from, DeviceQueue& q) override {
    begin(c, q).receives.push_back({from, out, n * size_of(d)});
    enqueue();
  }

  void set(const FakeNcclFaults& f) {
    std::lock_guard lock(mutex_);
    faults_ = f;
  }
  std::vector<std::string> misuse() const {
    std::lock_guard lock(misuse_mutex_);
    return misuse_;
  }

 private:
  FakeNcclFaults asked() const {
    std::lock_guard lock(mutex_);
    return faults_;
  }
  void blame(const char* what) {
    std::lock_guard lock(misuse_mutex_);
    misuse_.push_back(what);
  }
  [[noreturn]] static void hang() {
    for (;;) std::this_thread::sleep_for(Seconds(3600));
  }
  static Started& begin(Handle comm, DeviceQueue& queue) {
    const auto& rank = *static_cast<std::shared_ptr<Rank>*>(comm);
    check(!started.rank || (started.rank == rank && started.queue == &queue),
          "a group of operations of several communicators");
    started.rank = rank;
    started.queue = &queue;
    return started;
  }
  static void start(Handle comm, const Operation& operation, DeviceQueue& queue) {
    begin(comm, queue).operations.push_back(operation);
    enqueue();
  }

  mutable std::mutex mutex_, misuse_mutex_;
  std::vector<std::string> misuse_;
  FakeNcclFaults faults_;
  int ids_ = 0;
  std::map<const void*, int> gpu_of_;  // what was allocated
  std::map<std::string, std::shared_ptr<Group>> groups_;
};

}  // namespace

namespace {
FakeNccl& instance() {
  static auto* api = new FakeNccl;
  return *api;
}
}  // namespace

NcclApi& fake_nccl(const FakeNcclFaults& faults) {
  instance().set(faults);
  set_nccl_api(&instance());
  return instance();
}

std::vector<std::string> fake_nccl_misuse() { return instance().misuse(); }
int64_t fake_nccl_direct() { return direct; }
int64_t fake_nccl_version_calls() { return version_calls; }
int64_t fake_nccl_connected() { return connected; }
int64_t fake_nccl_shared() { return shared; }

}  // namespace lockstep::testing
