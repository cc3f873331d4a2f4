// Memory that outlives the ranks: a process of its own on each machine, the memory holder (launch/cluster/
// memory_holder.h), holds the descriptors of files in memory that ranks hand to it, and hands them to the ranks of the
// job's next start. HeldMemory is a rank's connection to it; used by one thread.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/plain_file.h"

namespace lockstep {

// The environment variable by which the launcher tells agents, ranks and holders about each other: "NAMES ADDRESS
// SECONDS". NAMES are abstract names for the holder's socket, separated by commas: it has the first that no other user
// has taken. Each is random: it cannot be taken before it is in use. ADDRESS is the launcher's, to which the holder
// stays connected; it ends with that connection. SECONDS is how long a machine may be silent before it counts as lost
// (launch.silence).
inline constexpr char kMemoryHolder[] = "LOCKSTEP_MEMORY";
std::vector<std::string> memory_holder_names();  // of the environment's; empty: no holder is meant

class HeldMemory {
 public:
  // Waits at most `seconds` for the holder of this machine, a process of this user, at one of these names. Throws
  // ExitCode::kRankLost where there is none.
  static HeldMemory connect(const std::vector<std::string>& names, double seconds);

  const std::string& id() const { return id_; }  // of the holder: one for each machine
  // The holder has the file from now on, in the place of one of that name. Throws kRankLost where the holder is gone,
  // as the following do.
  void put(const std::string& name, const Descriptor& file);
  std::vector<std::pair<std::string, Descriptor>> all();
  void drop(const std::string& name);
  // Has the holder ended?
  bool lost() const;
  int number() const { return socket_.number(); }

 private:
  explicit HeldMemory(Descriptor socket) : socket_(std::move(socket)) {}
  void ask(const std::string& what, const Descriptor& file);

  Descriptor socket_;
  std::string id_;
};

// One message of at most 4 KiB, with a descriptor or none; for both ends of the connection. Returns false with errno
// set where the other end is gone (errno 0: it closed) or does not answer within its time.
bool send_message(int socket, std::string_view text, int file = -1);
bool receive_message(int socket, std::string& text, Descriptor& file);

}  // namespace lockstep
