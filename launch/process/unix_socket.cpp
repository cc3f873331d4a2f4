#include "launch/process/unix_socket.h"

#include <unistd.h>

#include <cstddef>
#include <cstring>

#include "core/base/error.h"

namespace lockstep {

UnixAddress::UnixAddress(const std::string& name) {
  require(!name.empty() && name.size() < sizeof value.sun_path, ExitCode::kRankLost, "'", name,
          "' is empty or too long for the address of a socket");
  value.sun_family = AF_UNIX;
  std::memcpy(value.sun_path, name.c_str(), name.size());
  length = sizeof value;
  if (name[0] != '@') return;
  value.sun_path[0] = '\0';
  length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
}

bool is_of_this_user(int socket) {
  ucred peer{};
  socklen_t length = sizeof peer;
  return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 &&
         (peer.uid == ::geteuid() || peer.uid == 0);
}

}  // namespace lockstep
