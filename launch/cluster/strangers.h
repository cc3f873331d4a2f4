// Strangers: connections to a job's control port that have not said yet who they are. They are few, for a short time,
// and the oldest of whoever has most of them goes first, so that agents of the job are always met, however many others
// connect and say nothing.
#pragma once

#include <poll.h>

#include <cstddef>
#include <functional>
#include <list>
#include <string>
#include <vector>

#include "launch/process/control.h"

namespace lockstep {

class Strangers {
 public:
  // Takes over the connection of a peer whose first message is `hello`, and returns nothing; or says why it is no agent
  // of this job, and leaves the connection.
  using Meet = std::function<std::string(Connection& peer, const JsonObject& hello)>;

  // At most `most` at a time.
  explicit Strangers(size_t most) : most_(most) {}
  // Accepts what waits at the listener and hears what all have to say; never waits.
  void look(const Descriptor& listener, const Meet& meet, double now);
  void add_to(std::vector<pollfd>& all) const;
  size_t count() const { return waiting_.size(); }

 private:
  struct Stranger {
    Connection connection;
    double since;
  };
  bool leaves(Stranger& s, const Meet& meet, double now);
  void make_room();
  void say(const std::string& peer, const std::string& problem);

  const size_t most_;
  std::list<Stranger> waiting_;  // oldest first
  int dropped_ = 0;
};

}  // namespace lockstep
