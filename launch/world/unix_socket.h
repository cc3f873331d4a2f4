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

// An abstract name has no other protection than its secret: only this user and root may connect.
bool is_of_another_user(int socket);

}  // namespace lockstep
