#include "launch/doctor/measure.h"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <limits>
#include <optional>
#include <set>
#include <sstream>

#include "comm/call.h"
#include "comm/mpi/mpi_comm.h"
#include "core/base/host.h"
#include "core/base/median.h"
#include "core/base/plain_file.h"
#include "core/base/system_call.h"
#include "core/base/text_table.h"
#include "core/device/backend.h"
#include "core/device/thread_pool.h"
#include "core/io/files.h"
#include "core/kernels/kernels.h"
#include "core/ops/ops.h"
#include "core/tensor/raw_ops.h"
#include "launch/app.h"
#include "launch/world/fail_together.h"
#include "launch/world/memory_report.h"
#include "launch/world/shared_folder.h"
#include "launch/world/world.h"

namespace lockstep {
namespace {

constexpr int64_t kMiB = 1 << 20, kLargest = 64 * kMiB;
constexpr int kRounds = 20;         // of small messages; the fastest counts
constexpr int kMostForPairs = 16;   // with more ranks, only neighbours in a ring are measured
constexpr double kMostSeconds = 1;  // for a large message
constexpr int64_t kExtent = 768;    // of the matrices

using Clock = std::chrono::steady_clock;
double elapsed_seconds(Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); }
double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

template <class Work>
double fastest_of(int times, const Work& work) {
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < times; ++i) {
    const auto begin = Clock::now();
    work();
    best = std::min(best, elapsed_seconds(begin));
  }
  return best;
}

template <class Work>
double average_of(int times, const Work& work) {
  const auto begin = Clock::now();
  for (int i = 0; i < times; ++i) work();
  return elapsed_seconds(begin) / times;
}

std::string first_line_with(const std::string& path, const std::string& word) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(word) && line.find(':') != line.npos)
      return line.substr(std::min(line.size(), line.find_first_not_of(" \t", line.find(':') + 1)));
  return "?";
}

// "0-3,8", as the system writes lists of cores.
std::string ranges_text(const std::set<int>& numbers) {
  std::string out;
  for (auto at = numbers.begin(); at != numbers.end();) {
    const int first = *at;
    int last = first;
    while (++at != numbers.end() && *at == last + 1) ++last;
    out += str(out.empty() ? "" : ",", first, last > first ? str("-", last) : std::string());
  }
  return out;
}
std::set<int> parse_list(const std::string& text) {
  std::set<int> out;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    int first = 0, last = 0;
    const int read = std::sscanf(part.c_str(), "%d-%d", &first, &last);
    for (int i = first; read > 0 && i <= (read == 2 ? last : first); ++i) out.insert(i);
  }
  return out;
}

std::set<int> allowed_cores() {
  std::set<int> out;
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (::sched_getaffinity(0, sizeof mask, &mask) == 0)
    for (int i = 0; i < CPU_SETSIZE; ++i)
      if (CPU_ISSET(i, &mask)) out.insert(i);
  return out;
}

std::string numa_nodes(const std::set<int>& cores) {
  std::string all;
  std::ifstream("/sys/devices/system/node/online") >> all;
  std::set<int> out;
  for (int node : parse_list(all)) {
    std::string list;
    std::ifstream(str("/sys/devices/system/node/node", node, "/cpulist")) >> list;
    for (int core : parse_list(list))
      if (cores.count(core)) out.insert(node);
  }
  return ranges_text(out);
}

// GF/s of products of matrices, by all ranks at the same time: on the average, since ranks may share cores.
double compute_rate(Communicator& comm) {
  const Tensor a = Tensor::full({kExtent, kExtent}, 0.5), b = Tensor::full({kExtent, kExtent}, 0.25);
  const auto multiply = [&] {
    matmul(a, b);
    current_stream().synchronize();
  };
  multiply();
  comm.barrier("doctor: compute");
  const double seconds = average_of(20, multiply);
  return 2 * std::pow(static_cast<double>(kExtent), 3) / seconds / 1e9;
}

// GB/s that adding large tensors reads and writes, by all ranks at the same time.
double memory_rate(Communicator& comm) {
  const Tensor a = Tensor::full({kLargest / 4}, 0.5), b = Tensor::full({kLargest / 4}, 0.25);
  const Tensor sum = Tensor::zeros({kLargest / 4});
  comm.barrier("doctor: memory");
  const double seconds = average_of(5, [&] {
    raw::add(sum, a, b);
    current_stream().synchronize();
  });
  return 3 * static_cast<double>(kLargest) / seconds / 1e9;
}

// One rank's part of sending a tensor there and back; `first` begins.
void bounce(Communicator& comm, const Tensor& t, int peer, bool first) {
  if (first) comm.send(t, peer, "doctor").finish();
  comm.receive(t, peer, "doctor").finish();
  if (!first) comm.send(t, peer, "doctor").finish();
}

LinkHealth measure_link(Communicator& comm, int a, int b) {
  const bool first = comm.rank() == a;
  const int peer = first ? b : a;
  const Tensor small = Tensor::zeros({2}), medium = Tensor::zeros({kMiB / 4});
  const double latency = fastest_of(kRounds, [&] { bounce(comm, small, peer, first); }) / 2;
  const double mib = fastest_of(3, [&] { bounce(comm, medium, peer, first); }) / 2;
  // A size that both know, which a slow link carries in time.
  const double fits = first ? std::clamp(std::floor(kMostSeconds / mib), 1.0, static_cast<double>(kLargest / kMiB)) : 0;
  const Tensor size = Tensor::full({1}, fits);
  bounce(comm, size, peer, first);
  const auto bytes = static_cast<int64_t>(size.to_vector<float>()[0]) * kMiB;
  const Tensor large = Tensor::zeros({bytes / 4});
  const double seconds = fastest_of(2, [&] { bounce(comm, large, peer, first); }) / 2;
  return {a, b, 1e6 * latency, static_cast<double>(bytes) / seconds / 1e6};
}

std::vector<LinkHealth> measure_links(Communicator& comm) {
  std::vector<LinkHealth> mine;
  const int n = comm.size();
  const auto measure = [&](int a, int b) {
    comm.barrier("doctor: link");
    if (comm.rank() != a && comm.rank() != b) return;
    const LinkHealth link = measure_link(comm, a, b);
    if (comm.rank() == a) mine.push_back(link);
  };
  if (n <= kMostForPairs) {
    for (int a = 0; a < n; ++a)
      for (int b = a + 1; b < n; ++b) measure(a, b);
  } else {
    for (int a = 0; a < n; ++a) measure(std::min(a, (a + 1) % n), std::max(a, (a + 1) % n));
  }
  comm.barrier("doctor: links");
  std::ostringstream text;
  for (const LinkHealth& l : mine) text << l.a << " " << l.b << " " << l.latency_us << " " << l.mb_s << "\n";
  std::vector<LinkHealth> all;
  for (const std::string& part : all_gather_text(comm, text.str(), "doctor: links")) {
    std::istringstream in(part);
    for (LinkHealth l; in >> l.a >> l.b >> l.latency_us >> l.mb_s;) all.push_back(l);
  }
  return all;
}

// MB/s that the machine with the fewest ranks sends while all ranks send to those of all other machines, without what
// the rounds of its calls take by latency alone: `lockstep plan --time` counts those by themselves.
double exchange_rate(Communicator& comm, const std::vector<LinkHealth>& links) {
  const std::vector<int> machines = comm.machines();
  if (*std::max_element(machines.begin(), machines.end()) == 0) return 0;
  const auto away = [&](int a, int b) { return machines[static_cast<size_t>(a)] != machines[static_cast<size_t>(b)]; };
  double slowest = std::numeric_limits<double>::infinity();
  std::vector<double> latencies;
  for (const LinkHealth& l : links)
    if (away(l.a, l.b)) {
      slowest = std::min(slowest, l.mb_s);
      latencies.push_back(l.latency_us / 1e6);
    }
  std::vector<int64_t> ranks(machines.size());  // by machine
  for (const int m : machines) ++ranks[static_cast<size_t>(m)];
  // Such that the busiest machine sends for about half a second.
  int64_t pairs = 1, fewest = std::numeric_limits<int64_t>::max();
  for (const int m : machines) {
    const int64_t here = ranks[static_cast<size_t>(m)], leaving = here * (comm.size() - here);
    pairs = std::max(pairs, leaving);
    fewest = std::min(fewest, leaving);
  }
  const auto fits = static_cast<int64_t>(std::min(slowest, 1e9) * 1e6 / 2) / pairs / 4;
  // In messages like those of steps, one exchange after the other.
  const int64_t count = std::clamp<int64_t>(fits, kMiB / 256, kMiB / 8);
  const int64_t calls = std::clamp<int64_t>(fits / count, 2, 64);
  std::vector<int64_t> counts, offsets;
  int64_t total = 0;
  for (int r = 0; r < comm.size(); ++r) {
    counts.push_back(away(comm.rank(), r) ? count : 0);
    offsets.push_back(total);
    total += counts.back();
  }
  const Tensor sent = Tensor::zeros({total}), received = Tensor::zeros({total});
  const double seconds = fastest_of(3, [&] {
    comm.barrier("doctor: exchange");
    Work last;
    for (int64_t i = 0; i < calls; ++i)
      last = comm.all_to_all(received, counts, offsets, sent, counts, offsets, "doctor");
    last.finish();
    comm.barrier("doctor: exchange");
  });
  // All compare their calls, and then send.
  const double rounds = std::ceil(std::log2(comm.size())) + std::ceil((comm.size() - 1.0) / kMessagesUnderWay);
  const double waits = latencies.empty() ? 0 : rounds * median(latencies) * static_cast<double>(calls);
  return static_cast<double>(fewest * count * calls * 4) / std::max(seconds - waits, seconds / 4) / 1e6;
}

// By round trips with rank 0, of which the fastest says most.
void compare_clocks(Communicator& comm, RankHealth& mine) {
  const auto ask = [&](int peer, double say) {
    const Tensor t = Tensor::of(std::vector<double>{say}, {1});
    if (comm.rank() == 0) {
      comm.receive(t, peer, "doctor: clock").finish();
      const Tensor answer = Tensor::of(std::vector<double>{wall_seconds()}, {1});
      comm.send(answer, peer, "doctor: clock").finish();
      return 0.0;
    }
    comm.send(t, 0, "doctor: clock").finish();
    comm.receive(t, 0, "doctor: clock").finish();
    return t.to_vector<double>()[0];
  };
  double best = std::numeric_limits<double>::infinity();
  for (int peer = 1; peer < comm.size(); ++peer) {
    comm.barrier("doctor: clock");
    for (int round = 0; round < kRounds && (comm.rank() == 0 || comm.rank() == peer); ++round) {
      const double begin = wall_seconds(), theirs = ask(peer, 0), end = wall_seconds();
      if (comm.rank() == 0 || end - begin >= best) continue;
      best = end - begin;
      mine.clock_s = (begin + end) / 2 - theirs;
      mine.clock_error_s = best / 2;
    }
  }
}

[[noreturn]] void fail_disk(const std::string& dir, int error) {
  throw Error(is_storage_error(error) ? ExitCode::kStorage : ExitCode::kOutputLocked,
              str(dir, ": a file of ", kLargest / kMiB, " MiB cannot be written: ", std::strerror(error),
                  "; choose another --dir"));
}

// Writes, syncs and reads a temporary file in `dir`.
void measure_disk(const std::string& dir, RankHealth& mine) {
  const std::string name = temporary_name(dir + "/lockstep", "doctor");
  const std::string piece(static_cast<size_t>(kMiB), 'x');
  const Descriptor file = create_new(name);
  if (!file) fail_disk(dir, errno);
  const auto begin = Clock::now();
  bool good = true;
  for (int64_t done = 0; good && done < kLargest; done += kMiB) good = write_all(file, piece);
  good = good && ::fsync(file.number()) == 0;
  const int error = errno;
  mine.write_mb_s = static_cast<double>(kLargest) / elapsed_seconds(begin) / 1e6;
  if (good) {
    ::posix_fadvise(file.number(), 0, 0, POSIX_FADV_DONTNEED);  // so that the disk is read, where the system does that
    const InputFile input(name);
    std::string read(piece.size(), ' ');
    const auto since = Clock::now();
    for (int64_t at = 0; at < kLargest; at += kMiB) input.read(at, read.data(), kMiB);
    mine.read_mb_s = static_cast<double>(kLargest) / elapsed_seconds(since) / 1e6;
  }
  ::unlink(name.c_str());
  if (!good) fail_disk(dir, error);
}

// The ranks of the machine before this one.
int64_t local_rank_of(Communicator& comm, const std::string& machine) {
  const auto all = all_gather_text(comm, machine, "doctor: machines");
  return std::count(all.begin(), all.begin() + comm.rank(), machine);
}

}  // namespace

Health examine(Communicator& comm, const std::string& dir) {
  RankHealth mine;
  mine.host = host_name();
  mine.machine = machine_id();
  mine.local_rank = local_rank_of(comm, mine.machine);
  mine.cpu = first_line_with("/proc/cpuinfo", "model name");
  const std::set<int> cores = allowed_cores();
  mine.cores = ranges_text(cores);
  mine.core_count = static_cast<int64_t>(cores.size());
  mine.numa = numa_nodes(cores);
  mine.version = kVersion;
  mine.isa = kernels().isa;
  mine.mpi = mpi_built() ? mpi_version() : "none";
  if (current_device().type == DeviceType::kCuda) mine.gpu = device_backend().properties(current_device().index).name;
  mine.gflops = compute_rate(comm);
  mine.memory_gb_s = memory_rate(comm);

  Health health;
  if (comm.size() > 1) {
    health.links = measure_links(comm);
    const Tensor small = Tensor::zeros({2}), large = Tensor::zeros({kLargest / 4});
    const auto reduce = [&](const Tensor& t) { comm.all_reduce(t, ReduceOp::kSum, "doctor").finish(); };
    reduce(small);
    health.small_reduce_us = 1e6 * fastest_of(kRounds, [&] { reduce(small); });
    health.large_reduce_mb_s = static_cast<double>(kLargest) / fastest_of(2, [&] { reduce(large); }) / 1e6;
    health.exchange_mb_s = exchange_rate(comm, health.links);
    compare_clocks(comm, mine);
  }
  // One machine after the other: they may share the file system.
  for (int r = 0; r < comm.size(); ++r)
    fail_together(comm, [&] {
      if (r == comm.rank() && mine.local_rank == 0) measure_disk(dir, mine);
    });
  mine.not_shared = why_not_shared(comm, dir);
  for (const std::string& line : all_gather_text(comm, to_line(mine), "doctor: ranks"))
    health.ranks.push_back(parse_rank_health(line));
  return health;
}

}  // namespace lockstep
