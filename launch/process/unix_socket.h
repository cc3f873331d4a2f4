// Addresses of Unix sockets, and who is at the other end of one. Plain values and functions.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <string>

namespace lockstep {

// "PATH", or "@NAME": a name in Linux's abstract namespace, for which no file is made, whatever TMPDIR is. Throws
// ExitCode::kRankLost where the name is empty or too long.
struct UnixAddress {
  explicit UnixAddress(const std::string& name);
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&value); }

  sockaddr_un value{};
  socklen_t length = 0;
};

// Is the other end of a connected socket a process of this user, or of root? Abstract names have no permissions, and
// all users can read those that are in use: both ends ask this before they say or believe anything. Where nobody can
// tell, no.
bool is_of_this_user(int socket);

}  // namespace lockstep
