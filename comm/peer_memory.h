// PeerMemory: the memory of the other ranks of one machine, read from where it lies by process_vm_readv: one copy, and
// none through a pipe or a buffer that both map. Shared by the channels of one communicator and what they give out.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace lockstep {

class PeerMemory {
 public:
  // How this process is found. A plain value that ranks exchange; `probe` lies in its memory and holds `mark`.
  struct Address {
    int64_t process = 0;
    const uint64_t* probe = nullptr;
    uint64_t mark = 0;
  };
  // Also lets the other processes of this user read, where the kernel asks for that (Yama).
  static Address own();
  // Null where another rank's memory cannot be read: `why`.
  static std::shared_ptr<const PeerMemory> open(const std::vector<Address>& ranks, int me, std::string* why);

  bool is_own(int rank) const { return rank == me_; }
  // Copies `bytes` from `from`, an address of rank `rank`. Throws ExitCode::kRankLost where they cannot be read; a
  // secondary error where its process has ended.
  void read(int rank, const void* from, void* to, int64_t bytes) const;

 private:
  std::vector<int64_t> processes_;  // by rank
  int me_ = 0;
};

}  // namespace lockstep
