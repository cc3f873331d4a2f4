// The control plane's wire: one JSON object a line over a stream socket, between a launcher and the agents of its
// ranks. A Unix socket on one machine, TCP across machines; whoever connects must first name the job's secret.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/plain_file.h"
#include "core/io/json.h"

namespace lockstep {

// 128 random bits in hexadecimal digits. Throws ExitCode::kInternal if the system has none.
std::string random_secret();

// Listens on `address`: "unix:PATH", "unix:@NAME" (no file) or "tcp:HOST" (a port is chosen). Returns the address for
// connect_to().
// Throws ExitCode::kRankLost if it cannot listen.
std::string listen_on(const std::string& address, Descriptor& listener);
// Waits up to `seconds`, or one where nobody listens, or until `give_up` says so. Throws ExitCode::kRankLost naming the
// address.
Descriptor connect_to(const std::string& address, double seconds, const std::function<bool()>& give_up = {});
// The local address that packets to `host` leave from. Throws ExitCode::kMissingInput if the host is unknown.
std::string local_address_towards(const std::string& host);

class Connection {
 public:
  explicit Connection(Descriptor socket, std::string peer = {});
  // Reads what has arrived and appends the whole messages. Returns false once the peer has closed, or sent what is no
  // message: problem() then says what.
  bool receive(std::vector<JsonObject>& out);
  // Queues a message and writes as much as the socket takes. A peer that does not read for long loses messages of type
  // "out" first; if its queue exceeds 16 MiB the connection counts as closed.
  void send(const JsonObject& message);
  void flush();  // more of the queue
  bool pending() const { return !queue_.empty(); }
  bool closed() const { return closed_; }
  const std::string& problem() const { return problem_; }
  int64_t received() const { return received_; }  // bytes so far
  const std::string& peer() const { return peer_; }
  int number() const { return socket_.number(); }
  // Until a peer is trusted, its messages may have at most this many bytes.
  void set_limit(size_t bytes) { limit_ = bytes; }

 private:
  Descriptor socket_;
  std::string peer_, input_, queue_, problem_;
  size_t limit_ = 1 << 16;
  int64_t received_ = 0;
  bool closed_ = false;
};

// Accepts one waiting connection, of any user's across machines and of this user's on this one; an invalid descriptor
// and errno if there is none. `peer` becomes its address.
Descriptor accept_from(const Descriptor& listener, std::string& peer);

double steady_now();  // seconds, CLOCK_MONOTONIC

}  // namespace lockstep
