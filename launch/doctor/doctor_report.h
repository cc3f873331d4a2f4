// What `lockstep doctor` measures, and what it concludes from that. Plain values and functions.
#pragma once

#include <string>
#include <vector>

#include "core/io/json.h"

namespace lockstep {

struct RankHealth {
  std::string host, machine;  // name, and an id that is the same for all ranks of a machine (machine_id)
  int64_t local_rank = 0;
  std::string cpu;    // model
  std::string cores;  // that the rank may use: "0-7"
  int64_t core_count = 0;
  std::string numa;                       // nodes of those cores; empty if not known
  std::string gpu;                        // empty: computes on the CPU
  std::string version, isa, mpi;          // of lockstep, its kernels and the MPI library
  double gflops = 0;                      // of a matrix product, all ranks at a time
  double clock_s = 0, clock_error_s = 0;  // wall clock ahead of rank 0's, and by how much that may be wrong
  double write_mb_s = 0, read_mb_s = 0;   // of the file system; 0: another rank of the machine measured it
  std::string not_shared = {};            // why_not_shared() of the folder
  double memory_gb_s = 0;                 // that large tensors are read and written with, all ranks at a time
};
std::string to_line(const RankHealth& rank);
RankHealth parse_rank_health(const std::string& line);

struct LinkHealth {
  int a = 0, b = 0;
  double latency_us = 0;  // one way, 8 bytes
  double mb_s = 0;        // one way, large messages
};

struct Health {
  std::vector<RankHealth> ranks;
  std::vector<LinkHealth> links;
  double small_reduce_us = 0, large_reduce_mb_s = 0;  // all-reduce of 8 bytes, and of many; 0: one rank
  double exchange_mb_s =
      0;  // that each machine sends while all ranks send to those of all other machines; 0: one machine
};

// A sentence for each rank, host, link, disk or clock that is slower than the others or differs from most of them.
std::vector<std::string> findings(const Health& health);

std::string tables(const Health& health);
std::string json_lines(const Health& health);  // an object for each rank, each link, the all-reduce and each finding

}  // namespace lockstep
