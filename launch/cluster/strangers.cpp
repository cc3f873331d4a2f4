#include "launch/cluster/strangers.h"

#include <algorithm>
#include <cerrno>
#include <map>

#include "core/base/error.h"
#include "core/base/log.h"

namespace lockstep {
namespace {

constexpr double kIntroduce = 2;  // seconds that a peer gets to say who it is; an agent does so at once
constexpr int kAcceptAtOnce = 128;
constexpr size_t kHello = 4096;  // bytes

}  // namespace

void Strangers::look(const Descriptor& listener, const Meet& meet, double now) {
  std::string peer;
  for (int i = 0; i < kAcceptAtOnce && listener; ++i) {
    Descriptor socket = accept_from(listener, peer);
    if (!socket && (errno == EMFILE || errno == ENFILE) && !waiting_.empty()) {
      make_room();
      continue;
    }
    if (!socket) break;
    waiting_.push_back({Connection(std::move(socket), peer), now});
    waiting_.back().connection.set_limit(kHello);
    if (leaves(waiting_.back(), meet, now)) waiting_.pop_back();
    else if (waiting_.size() > most_) make_room();
  }
  waiting_.remove_if([&](Stranger& s) { return leaves(s, meet, now); });
}

bool Strangers::leaves(Stranger& s, const Meet& meet, double now) {
  std::vector<JsonObject> messages;
  const bool open = s.connection.receive(messages);
  std::string problem = s.connection.problem();
  if (!messages.empty()) {
    problem = meet(s.connection, messages[0]);
    if (problem.empty()) return true;
  } else if (open && now - s.since <= kIntroduce) {
    return false;
  } else if (open) {
    problem = "it did not say who it is";
  }
  if (!problem.empty()) say(s.connection.peer(), problem);
  return true;
}

void Strangers::make_room() {
  std::map<std::string, size_t> counts;
  size_t largest = 0;
  for (const Stranger& s : waiting_) largest = std::max(largest, ++counts[s.connection.peer()]);
  const auto goes = std::find_if(waiting_.begin(), waiting_.end(),
                                 [&](const Stranger& s) { return counts[s.connection.peer()] == largest; });
  say(goes->connection.peer(), "too many from there have not said who they are");
  waiting_.erase(goes);
}

void Strangers::say(const std::string& peer, const std::string& problem) {
  constexpr int kSaid = 5;
  if (++dropped_ > kSaid) return;
  log_warning(str("dropped a connection from ", peer, " to the control port: ", problem,
                  dropped_ == kSaid ? "; more such are dropped without a word" : ""));
}

void Strangers::add_to(std::vector<pollfd>& all) const {
  for (const Stranger& s : waiting_) all.push_back({s.connection.number(), POLLIN, 0});
}

}  // namespace lockstep
