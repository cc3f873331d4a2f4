// State in memory that outlives the ranks: another start of the job, of other ranks on other machines, goes on from it
// with the bits of an undisturbed run. Machines are planted, and each has a holder that is a thread of the test.
#include "launch/recovery/memory_recovery.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <limits>
#include <map>
#include <mutex>
#include <thread>

#include "launch/process/unix_socket.h"
#include "launch/training/guards/sentinel.h"
#include "launch/training/step/shared_data.h"
#include "tests/launch/scratch.h"
#include "tests/support/planted_machines.h"
#include "tests/support/run_ranks.h"

namespace lockstep::memory_recovery_test {
namespace {

constexpr int64_t kAny = std::numeric_limits<int64_t>::max();

// Does what launch/recovery/memory_holder.cpp does, in a thread.
class Holder {
 public:
  explicit Holder(const std::string& name) : id_(name), socket_(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
    const UnixAddress address("@" + name);
    EXPECT_EQ(::bind(socket_.number(), address.get(), address.length), 0);
    EXPECT_EQ(::listen(socket_.number(), 64), 0);
    thread_ = std::thread([this] { serve(); });
  }
  ~Holder() {
    ends_ = true;
    thread_.join();
  }
  Holder(const Holder&) = delete;

  size_t files() const {
    std::lock_guard lock(mutex_);
    return files_.size();
  }
  void lose_all() {
    std::lock_guard lock(mutex_);
    files_.clear();
  }
  // One bit of the state after `step`: of the value in the middle of the first slice of this (or any) tensor, of the
  // shares whose names end so.
  void flip(int64_t step, const std::string& tensor, std::string_view end = {}) {
    std::lock_guard lock(mutex_);
    for (const auto& [name, file] : files_) {
      if (!name.ends_with(end)) continue;
      const StateMemory memory(file);
      for (const StoredSlice& s : memory.has(step) ? memory.slices(step) : std::vector<StoredSlice>())
        if (tensor.empty() || s.name == tensor) {
          reinterpret_cast<uint32_t*>(const_cast<float*>(s.values))[s.count / 2] ^= 1u << 13;
          return;
        }
    }
    ADD_FAILURE() << "no " << tensor << " after step " << step;
  }

 private:
  void serve() {
    std::vector<Descriptor> peers;
    while (!ends_) {
      std::vector<pollfd> all{{socket_.number(), POLLIN, 0}};
      for (const Descriptor& p : peers) all.push_back({p.number(), POLLIN, 0});
      if (::poll(all.data(), all.size(), 20) <= 0) continue;
      for (size_t i = peers.size(); i-- > 0;)
        if (all[1 + i].revents != 0 && !answer(peers[i])) peers.erase(peers.begin() + static_cast<ptrdiff_t>(i));
      if (all[0].revents != 0) peers.emplace_back(::accept4(socket_.number(), nullptr, nullptr, SOCK_CLOEXEC));
    }
  }
  bool answer(const Descriptor& peer) {
    std::string text;
    Descriptor file;
    if (!receive_message(peer.number(), text, file)) return false;
    std::lock_guard lock(mutex_);
    if (text == "id") return send_message(peer.number(), id_);
    if (text.starts_with("put ")) files_.insert_or_assign(text.substr(4), std::move(file));
    if (text.starts_with("drop ")) files_.erase(text.substr(5));
    if (text == "all")
      for (const auto& [name, held] : files_) send_message(peer.number(), name, held.number());
    return send_message(peer.number(), "done");
  }

  const std::string id_;
  Descriptor socket_;
  mutable std::mutex mutex_;
  std::map<std::string, Descriptor> files_;
  std::atomic<bool> ends_{false};
  std::thread thread_;
};

// Four machines' holders, and the environment of a job that has them.
class Job {
 public:
  Job() {
    const std::string name = str("lockstep-test-", random_digits());
    ::setenv(kMemoryHolder, str(name, " unix:@none 10").c_str(), 1);
    for (int m = 0; m < 4; ++m) holders_.push_back(std::make_unique<Holder>(str(name, "-", m)));
  }
  ~Job() {
    ::unsetenv(kMemoryHolder);
    ::unsetenv("LOCKSTEP_ATTEMPT");
  }
  Holder& machine(int m) { return *holders_[static_cast<size_t>(m)]; }
  size_t files() const {
    size_t n = 0;
    for (const auto& h : holders_) n += h->files();
    return n;
  }

  int64_t mirror_every = 0;

  // A start of the job: goes on from memory, if anything is there, and does steps up to `steps`.
  struct Start {
    int64_t from = -1;  // the step where it went on; -1: from the beginning
    std::string digest;
  };
  Start start(const std::string& yaml, int ranks, int of_machine, int64_t steps, int64_t at_most = kAny,
              int64_t recorded = kAny) {
    const std::string more = str("recovery:\n  from: memory\n  mirror_every: ", mirror_every, "\n");
    ::setenv("LOCKSTEP_ATTEMPT", str(++starts_).c_str(), 1);
    const testing::PlantedMachines planted(of_machine);
    const App app = builtin();
    const auto settings = load_settings(app, ConfigTree::parse(yaml + more, "test.yaml"), ranks);
    SharedData data(*settings);
    Start out;
    std::mutex mutex;
    Hash128 digest;
    testing::run_ranks(ranks, [&](Communicator& comm) {
      Trainer trainer(*settings, data.open(comm), comm);
      MemoryRecovery memory(*settings, comm, trainer);
      const auto found = memory.newest(at_most, recorded);
      if (found) trainer.resume(*found);
      memory.begin(trainer.info());
      const int64_t from = found ? found->info.step : -1;
      while (trainer.steps_done() < steps) {
        trainer.step();
        if (memory.after(trainer.steps_done())) memory.write(trainer.info());
      }
      Hash128 mine;
      for (const Hash128& h : digests_of(trainer.entries_to_save())) mine += h;
      std::lock_guard lock(mutex);
      digest += mine;
      if (comm.rank() == 0) digest += digest_of(trainer.info()), out.from = from;
    });
    out.digest = to_hex(digest);
    return out;
  }

 private:
  std::vector<std::unique_ptr<Holder>> holders_;
  int64_t starts_ = 0;
};

const std::string kText =
    "seed: 3\nbatch:\n  global: 12\n  micro: 2\nmodel:\n  name: gpt\n  layers: 2\n  heads: 2\n  width: 32\n  dropout: "
    "0.1\n"
    "optim:\n  lr: 0.003\n  clip_norm: 0.2\n  ema: 0.9\n"
    "data:\n  name: synthetic_tokens\n  context: 16\n  synthetic:\n    tokens: 900\n    vocabulary: 40\n";
const std::string kImages =
    "seed: 3\nbatch:\n  global: 12\n  micro: 2\nmodel:\n  name: resnet\n  depth: 18\n  stem: small\n  width: 4\n"
    "data:\n  name: synthetic_images\n  synthetic:\n    images: 60\n    height: 8\n    width: 8\n";
std::string level(const std::string& name, int group = 0) {
  return str("sharding:\n  level: ", name, "\n  group: ", group, "\n");
}
std::string undisturbed(const std::string& yaml) { return Job().start(yaml, 1, 1, 6).digest; }

TEST(MemoryRecovery, OtherRanksAndMachinesGoOnWithTheSameBits) {
  for (const std::string& yaml : {kText, kImages}) {
    const std::string wanted = undisturbed(yaml);
    for (const char* name : {"none", "optimizer", "gradients", "parameters"}) {
      Job job;
      const std::string keys = yaml + level(name);
      EXPECT_EQ(job.start(keys, 4, 2, 2).from, -1) << name;
      EXPECT_EQ(job.start(keys, 4, 2, 3).from, 2) << name;  // as before
      EXPECT_EQ(job.files(), 4u) << "the earlier ones are dropped";
      EXPECT_EQ(job.start(keys, 2, 1, 4).from, 3) << name;  // half as many, on the same machines
      EXPECT_EQ(job.start(keys, 3, 1, 5).from, 4) << name;  // one machine more, which is empty
      const Job::Start last = job.start(keys, 5, 2, 6);     // uneven
      EXPECT_EQ(last.from, 5) << name;
      EXPECT_EQ(last.digest, wanted) << name;
    }
  }
}

TEST(MemoryRecovery, AMachineWithReplicasTakesNothingWithIt) {
  const std::string wanted = undisturbed(kText);
  for (const auto& [name, group] : {std::pair("none", 0), std::pair("parameters", 2), std::pair("optimizer", 2)}) {
    Job job;
    const std::string keys = kText + level(name, group);
    job.start(keys, 4, 2, 3);
    job.machine(0).lose_all();
    const Job::Start last = job.start(keys, 4, 2, 6);
    EXPECT_EQ(last.from, 3) << name;
    EXPECT_EQ(last.digest, wanted) << name;
  }
}

TEST(MemoryRecovery, TheOnlyCopyIsOnTheNextMachineWhereThatIsWanted) {
  const std::string wanted = undisturbed(kText);
  for (const char* name : {"optimizer", "parameters"})
    for (int lost : {0, 1, 3}) {
      const std::string keys = kText + level(name);
      {
        Job job;
        job.start(keys, 4, 1, 5);
        job.machine(lost).lose_all();
        EXPECT_EQ(job.start(keys, 4, 1, 6).from, -1) << name;
      }
      Job job;
      job.mirror_every = 2;
      job.start(keys, 4, 1, 5);
      job.machine(lost).lose_all();
      EXPECT_EQ(job.start(keys, 4, 1, 5).from, 4) << name;
      job.machine((lost + 2) % 4).lose_all();
      const Job::Start last = job.start(keys, 4, 1, 6);
      EXPECT_EQ(last.from, 4) << name;
      EXPECT_EQ(last.digest, wanted) << name;
    }
}

TEST(MemoryRecovery, TwoNeighboursTakeTheOnlyCopies) {
  Job job;
  job.mirror_every = 1;
  const std::string keys = kText + level("parameters");
  job.start(keys, 4, 1, 3);
  job.machine(1).lose_all();
  job.machine(2).lose_all();
  EXPECT_EQ(job.start(keys, 4, 1, 6).from, -1);
}

// State after a step that was found bad, or that rank 0 has not recorded.
TEST(MemoryRecovery, GoesOnFromAnEarlierStepWhereItMust) {
  const std::string wanted = undisturbed(kText);
  for (const char* name : {"none", "parameters"}) {
    Job job;
    const std::string keys = kText + level(name);
    job.start(keys, 2, 1, 4);
    EXPECT_EQ(job.start(keys, 2, 1, 4, kAny, 3).from, 3) << name;
    EXPECT_EQ(job.start(keys, 2, 1, 4, 3).from, 3) << name;
    EXPECT_EQ(job.start(keys, 2, 1, 4, kAny, 1).from, 4) << name << ": nothing that early is there";
    EXPECT_EQ(job.start(keys, 2, 1, 6, 2).from, -1) << name;
    EXPECT_EQ(job.start(keys, 2, 1, 6).digest, wanted) << name;
  }
}

// A bit that changed while no rank was there: the other machine's copy, else the step before, else the disk.
TEST(MemoryRecovery, ValuesThatChangedInMemoryArePassedOver) {
  const std::string wanted = undisturbed(kText);
  for (const auto& [name, group] : {std::pair("none", 0), std::pair("parameters", 2)})
    for (const char* tensor : {"parameters/wte.weight", "adamw.v/blocks.1.up.weight", "ema/blocks.0.qkv.bias"}) {
      Job job;
      const std::string keys = kText + level(name, group);
      job.start(keys, 4, 2, 3);
      job.machine(1).flip(3, tensor);
      EXPECT_EQ(job.start(keys, 4, 2, 4).from, 3) << name << ", " << tensor;
      job.machine(0).flip(4, tensor);
      job.machine(1).flip(4, tensor);
      EXPECT_EQ(job.start(keys, 4, 2, 4).from, 3) << name << ", " << tensor;
      const Job::Start last = job.start(keys, 4, 2, 6);  // no flip is left in the memory that went on
      EXPECT_EQ(last.from, 4) << name << ", " << tensor;
      EXPECT_EQ(last.digest, wanted) << name << ", " << tensor;
      for (int machine : {0, 1})
        for (int64_t step : {5, 6}) job.machine(machine).flip(step, tensor);
      EXPECT_EQ(job.start(keys, 4, 2, 6).from, -1) << name << ", " << tensor;
    }
}

// Machine 2 has the only share of rank 2 and the copy of rank 1's; the copy of rank 2's is on machine 3.
TEST(MemoryRecovery, ACopyOnTheNextMachineTakesThePlaceOfOneThatChanged) {
  const std::string wanted = undisturbed(kText), keys = kText + level("parameters");
  for (const bool both : {false, true}) {
    Job job;
    job.mirror_every = 1;
    job.start(keys, 4, 1, 3);
    job.machine(2).flip(3, "", "/2");
    if (both) job.machine(3).flip(3, "", "/2 copy");
    EXPECT_EQ(job.start(keys, 4, 1, 4).from, both ? 2 : 3);
    EXPECT_EQ(job.start(keys, 4, 1, 6).digest, wanted);
  }
}

TEST(MemoryRecovery, IsRefusedWithoutALauncherOrAHolder) {
  const auto code_of = [](const char* name) {
    if (name) ::setenv(kMemoryHolder, name, 1);
    const App app = builtin();
    const auto settings = load_settings(app, ConfigTree::parse(kText, "test.yaml"), 1);
    SharedData data(*settings);
    ExitCode code = ExitCode::kOk;
    testing::run_ranks(1, [&](Communicator& comm) {
      Trainer trainer(*settings, data.open(comm), comm);
      code = error_of([&] { MemoryRecovery memory(*settings, comm, trainer); }).first;
    });
    ::unsetenv(kMemoryHolder);
    return code;
  };
  EXPECT_EQ(code_of(nullptr), ExitCode::kConfig);
}

}  // namespace
}  // namespace lockstep::memory_recovery_test
