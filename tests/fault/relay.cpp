// Passes Ethernet frames between two interfaces of the current network namespace, each MILLISECONDS after it came: a
// longer line, where the kernel has no netem. Usage: relay INTERFACE INTERFACE MILLISECONDS, as root; ends by a signal.
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

struct Frame {
  Clock::time_point due;
  std::vector<char> bytes;
};

int open_interface(const char* name) {
  const int socket = ::socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK, htons(ETH_P_ALL));
  sockaddr_ll at{};
  at.sll_family = AF_PACKET;
  at.sll_protocol = htons(ETH_P_ALL);
  at.sll_ifindex = static_cast<int>(::if_nametoindex(name));
  const int yes = 1, room = 64 << 20;
  // With their headers, since frames between virtual interfaces are larger than on a wire and have no checksums yet.
  if (socket < 0 || at.sll_ifindex == 0 || ::setsockopt(socket, SOL_PACKET, PACKET_VNET_HDR, &yes, sizeof yes) != 0 ||
      ::setsockopt(socket, SOL_PACKET, PACKET_IGNORE_OUTGOING, &yes, sizeof yes) != 0 ||
      ::setsockopt(socket, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room) != 0 ||
      ::setsockopt(socket, SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof room) != 0 ||
      ::bind(socket, reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0) {
    std::fprintf(stderr, "relay: %s: %s\n", name, std::strerror(errno));
    std::exit(1);
  }
  return socket;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: relay INTERFACE INTERFACE MILLISECONDS\n");
    return 64;
  }
  const auto delay =
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double, std::milli>(std::atof(argv[3])));
  const int sockets[2] = {open_interface(argv[1]), open_interface(argv[2])};
  std::deque<Frame> frames[2];  // that came by each
  std::vector<char> buffer(size_t{1} << 17);
  for (;;) {
    timespec wait{3600, 0};
    for (const auto& queue : frames)
      if (!queue.empty()) {
        const auto left = std::max(Clock::duration{0}, queue.front().due - Clock::now());
        const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(left).count();
        if (ns < wait.tv_sec * 1'000'000'000 + wait.tv_nsec) wait = {ns / 1'000'000'000, ns % 1'000'000'000};
      }
    pollfd ready[2] = {{sockets[0], POLLIN, 0}, {sockets[1], POLLIN, 0}};
    ::ppoll(ready, 2, &wait, nullptr);
    const auto now = Clock::now();
    for (int i = 0; i < 2; ++i)
      for (ssize_t n; (n = ::recv(sockets[i], buffer.data(), buffer.size(), 0)) > 0;)
        frames[i].push_back({now + delay, {buffer.begin(), buffer.begin() + n}});
    for (int i = 0; i < 2; ++i)
      for (; !frames[i].empty() && frames[i].front().due <= Clock::now(); frames[i].pop_front())
        // One that does not fit into the queue is lost, as on a wire.
        (void)!::send(sockets[1 - i], frames[i].front().bytes.data(), frames[i].front().bytes.size(), 0);
  }
}
