#include "comm/call_watch.h"

#include <algorithm>

#include "core/base/flight_recorder.h"

namespace lockstep {
namespace {

bool between_two(CallKind kind) { return kind == CallKind::kSend || kind == CallKind::kReceive; }

}  // namespace

CallWatch::CallWatch(int rank, int size, Seconds deadline, std::shared_ptr<const CallWatch> parent)
    : rank_(rank), size_(size), deadline_(deadline), parent_(std::move(parent)) {}

void CallWatch::set_board(std::unique_ptr<ProgressBoard> board, std::vector<int> places) {
  board_ = std::move(board);
  places_ = std::move(places);
  here_ = static_cast<int>(std::count_if(places_.begin(), places_.end(), [](int place) { return place >= 0; }));
  if (board_) board_->enter(place_of(rank_));
}

void CallWatch::begin(const Call& call) {
  post(call);
  follow(call);
  if (flight_recording()) begin_flight_call(to_text(call), call.number);
}

void CallWatch::end() {
  since_ = 0;
  end_flight_call();
}

void CallWatch::post(const Call& call) {
  {
    std::lock_guard lock(mutex_);
    if (error_) throw *error_;
  }
  if (!board_) return;
  const int place = place_of(rank_);
  board_->post(place, between_two(call.kind) ? board_->number(place) : call.number, to_text(call));
}

void CallWatch::follow(const Call& call) {
  {
    std::lock_guard lock(mutex_);
    current_kind_ = {call.kind, call.peer};
    current_number_ = call.number;
    current_ = to_text(call);
  }
  advance();
}

void CallWatch::leave() {
  if (board_) board_->leave(place_of(rank_));
}

void CallWatch::look() const {
  {
    std::lock_guard lock(mutex_);
    if (error_) throw *error_;
  }
  if (board_)
    if (auto error = board_->aborted()) {
      poison(*error);
      throw *error;
    }
  if (parent_) {
    try {
      parent_->look();
    } catch (const Error& error) {
      poison(error);
      throw;
    }
  }
  const Clock::rep since = since_;
  if (since == 0 || Clock::now() - Clock::time_point(Clock::duration(since)) < deadline_) return;
  const Error error = missing();
  poison(error);
  throw error;
}

void CallWatch::poison(const Error& error) const {
  std::lock_guard lock(mutex_);
  if (error_) return;
  error_.emplace(error);
  if (board_) board_->abort(error);
}

bool CallWatch::poisoned() const {
  std::lock_guard lock(mutex_);
  return error_.has_value();
}

void CallWatch::compare(const Call& call) const {
  if (!board_) return;
  post_mark(call, nullptr);
  compare_marks(call);
}

std::vector<const void*> CallWatch::meet(const Call& call, const void* place, const Progress& progress) {
  post_mark(call, place);
  meet(progress);
  return compare_marks(call);
}

void CallWatch::meet(const Progress& progress) {
  constexpr std::chrono::milliseconds kPatience{50}, kBusy{1};
  const int place = place_of(rank_);
  board_->arrive(place);
  for (;;) {
    board_->wait_for_arrivals(place, here_, progress() ? kBusy : kPatience);
    if (board_->all_arrived(place, here_)) break;  // complete, even if a rank that has gone on has failed since
    look();
  }
  advance();
}

void CallWatch::post_mark(const Call& call, const void* place) const {
  board_->mark(place_of(rank_), call.number,
               {fingerprint(call), call.kind == CallKind::kAllToAll ? exchange_balance(call, rank_) : 0,
                details_of(call), place});
}

std::vector<const void*> CallWatch::compare_marks(const Call& call) const {
  std::vector<const void*> places(static_cast<size_t>(size_));
  std::vector<std::string> details(static_cast<size_t>(size_));
  bool same = true, all = true;
  uint64_t balance = 0;
  for (int r = 0; r < size_; ++r) {
    const auto theirs = known(r) ? board_->mark_of(place_of(r), call.number) : std::nullopt;
    all = all && theirs;
    if (!theirs) continue;
    same = same && theirs->fingerprint == fingerprint(call);
    balance += theirs->balance;
    places[static_cast<size_t>(r)] = theirs->place;
    details[static_cast<size_t>(r)] = theirs->details;
  }
  require(same && (!all || balance == 0), ExitCode::kRanksDisagree, disagreement_text(details));
  return places;
}

std::optional<Error> CallWatch::failure() const {
  try {
    look();
  } catch (const Error& error) {
    return error;
  }
  return {};
}

std::string CallWatch::last_of(int rank) const {
  const std::string text = board_->last(place_of(rank));
  const std::string stopped = board_->stopped(place_of(rank));
  return (text.empty() ? "it made no call yet" : "its last: " + text) + (stopped.empty() ? "" : "; " + stopped);
}

Error CallWatch::missing() const {
  std::lock_guard lock(mutex_);
  const std::string limit = str("within ", deadline_.count(), " s");
  const auto [kind, peer] = current_kind_;
  if (between_two(kind))
    return Error(ExitCode::kRankLost,
                 str(current_, ": nothing arrived ", limit, known(peer) ? " (" + last_of(peer) + ")" : ""));
  std::vector<int> here, elsewhere;
  std::string missing;
  for (int r = 0; r < size_; ++r) {
    if (r == rank_) here.push_back(r);
    else if (!known(r)) elsewhere.push_back(r);
    else if (board_->number(place_of(r)) >= current_number_) here.push_back(r);
    else
      missing += str(missing.empty() ? "" : ", ", "rank ", r,
                     board_->left(place_of(r)) ? " has ended" : " did not arrive " + limit, " (", last_of(r), ")");
  }
  if (missing.empty()) missing = str("not done ", limit, " on rank ", rank_);
  // Ranks that arrived, and whose process was stopped during the call.
  for (int r : here)
    if (known(r))
      if (const std::string stopped = board_->stopped(place_of(r)); !stopped.empty())
        missing += str("; rank ", r, " makes no progress: ", stopped);
  std::string text = str(current_, ": ", missing, "; arrived: ", ranks_text(here));
  if (!elsewhere.empty()) text += str("; on other hosts: ", ranks_text(elsewhere));
  return Error(ExitCode::kRankLost, text);
}

}  // namespace lockstep
