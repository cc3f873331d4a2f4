#include "comm/peer_memory.h"

#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/base/system_call.h"

namespace lockstep {
namespace {

// Of one system call: the kernel takes at most 2 GiB.
constexpr int64_t kMost = int64_t(1) << 30;

}  // namespace

PeerMemory::Address PeerMemory::own() {
  static const uint64_t mark = [] {
    uint64_t random = 0;
    require_done(getrandom(&random, sizeof random, 0) == sizeof random, ExitCode::kDevice, "no random numbers");
    return random;
  }();
  // As Open MPI asks for its own copies; a process has one such entry. Fails where Yama is not in use, which then is
  // not needed.
  prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
  return {getpid(), &mark, mark};
}

std::shared_ptr<const PeerMemory> PeerMemory::open(const std::vector<Address>& ranks, int me, std::string* why) {
  auto out = std::make_shared<PeerMemory>();
  out->me_ = me;
  for (const Address& a : ranks) out->processes_.push_back(a.process);
  for (size_t r = 0; r < ranks.size(); ++r) {
    const auto rank = static_cast<int>(r);
    if (rank == me) continue;
    uint64_t mark = 0;
    try {
      out->read(rank, ranks[r].probe, &mark, sizeof mark);
    } catch (const Error& error) {
      *why = error.what();
      return nullptr;
    }
    if (mark == ranks[r].mark) continue;
    *why = str("process ", ranks[r].process, " is not rank ", rank, ": their process numbers are of another namespace");
    return nullptr;
  }
  return out;
}

void PeerMemory::read(int rank, const void* from, void* to, int64_t bytes) const {
  if (rank == me_) {
    memcpy(to, from, static_cast<size_t>(bytes));
    return;
  }
  const int64_t process = processes_[static_cast<size_t>(rank)];
  for (int64_t at = 0; at < bytes;) {
    const auto size = static_cast<size_t>(std::min(kMost, bytes - at));
    const iovec here{static_cast<char*>(to) + at, size};
    const iovec there{const_cast<char*>(static_cast<const char*>(from)) + at, size};
    const ssize_t got = process_vm_readv(static_cast<pid_t>(process), &here, 1, &there, 1, 0);
    const int error = got < 0 ? errno : 0;
    if (got <= 0) {
      const std::string what = str("the memory of rank ", rank, " (process ", process,
                                   ") cannot be read: ", error != 0 ? std::strerror(error) : "no bytes came");
      // Where that process has ended, it or its launcher says why.
      throw error == ESRCH ? Error::secondary(ExitCode::kRankLost, what) : Error(ExitCode::kRankLost, what);
    }
    at += got;
  }
}

}  // namespace lockstep
