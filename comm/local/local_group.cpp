#include "comm/local/local_group.h"

#include <cstring>
#include <exception>
#include <thread>

#include "core/base/caught.h"
#include "core/base/trace.h"
#include "core/device/allocator.h"

namespace lockstep {
namespace {

constexpr uint64_t kPoison = uint64_t{1} << 63;
// If every rank has its own core, a few microseconds of spinning avoid a context switch; otherwise another rank needs
// the core. Yielding for up to 0.1 ms after that avoids waking a sleeping core, which takes about 0.05 ms.
constexpr int kSpins = 500;
constexpr std::chrono::microseconds kYielding{100};

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

template <class Ready>
bool ready_soon(int spins, Ready ready) {
  for (int spin = 0; spin < spins; ++spin) {
    if (ready()) return true;
    relax();
  }
  const auto start = std::chrono::steady_clock::now();
  do {
    if (ready()) return true;
    std::this_thread::yield();
  } while (std::chrono::steady_clock::now() - start < kYielding);
  return ready();
}

}  // namespace

LocalGroup::LocalGroup(std::vector<int> machines, const CommOptions& options)
    : options_(options),
      machines_(std::move(machines)),
      spins_(size() <= available_cores() ? kSpins : 0),
      rank_states_(machines_.size()) {
  check(size() > 0, "a communicator of ", size(), " ranks");
}

void LocalGroup::meet(int rank, const Call& call, const Share& share) {
  trace_mark();
  arrive(rank, call);
  wait_for_arrivals(rank, call);
  std::exception_ptr error;
  try {
    std::vector<const Call*> calls;
    for (const RankState& state : rank_states_) calls.push_back(state.call);
    if (const std::string wrong = disagreement(calls); !wrong.empty()) throw Error(ExitCode::kRanksDisagree, wrong);
    share(calls);
  } catch (...) {
    error = std::current_exception();
  }
  // All ranks have arrived, and each completes its share or fails in bounded time, so this wait needs no deadline.
  // Until it ends the other ranks may read this rank's memory.
  wake_at_last(shares_.fetch_add(1) + 1);
  wait_for_shares(call.number);
  if (!error) return;
  const Error why = as_error(error);
  poison(why);
  if (why.code() == ExitCode::kInternal) throw why;
  std::rethrow_exception(error);  // it may say more, such as what holds the memory
}

void LocalGroup::arrive(int rank, const Call& call) {
  RankState& state = rank_states_[static_cast<size_t>(rank)];
  state.call = &call;
  {
    std::lock_guard lock(mutex_);
    state.last = to_text(call);
  }
  uint64_t before = arrivals_.load();
  do {
    if (before & kPoison) throw_poison();
  } while (!arrivals_.compare_exchange_weak(before, before + 1));
  state.arrived.store(call.number);
  wake_at_last(before + 1);
}

// Of a call, the last rank's alone: woken by each, a thousand ranks would keep the processor busy with waking.
void LocalGroup::wake_at_last(uint64_t count) {
  if (count % rank_states_.size() == 0 && sleepers_.load() > 0) wake();
}

bool LocalGroup::all_arrived(int64_t number) const {
  return (arrivals_.load() & ~kPoison) >= static_cast<uint64_t>(number) * rank_states_.size();
}

void LocalGroup::wait_for_arrivals(int rank, const Call& call) {
  if (ready_soon(spins_, [&] { return all_arrived(call.number); })) return;
  const auto end = std::chrono::steady_clock::now() +
                   std::chrono::duration_cast<std::chrono::steady_clock::duration>(options_.deadline);
  std::string why;
  {
    std::unique_lock lock(mutex_);
    sleepers_.fetch_add(1);
    auto gone = [&] {
      for (const RankState& state : rank_states_)
        if (state.left && state.arrived.load() < call.number) return true;
      return false;
    };
    const bool woken = changed_.wait_until(
        lock, end, [&] { return all_arrived(call.number) || (arrivals_.load() & kPoison) || gone(); });
    sleepers_.fetch_sub(1);
    if (all_arrived(call.number)) return;
    if (!(arrivals_.load() & kPoison)) why = missing_text(call, !woken);
  }
  if (!why.empty()) poison(Error(ExitCode::kRankLost, why));
  if (!all_arrived(call.number)) throw_poison();
}

void LocalGroup::wait_for_shares(int64_t number) {
  const uint64_t wanted = static_cast<uint64_t>(number) * rank_states_.size();
  if (ready_soon(spins_, [&] { return shares_.load() >= wanted; })) return;
  std::unique_lock lock(mutex_);
  sleepers_.fetch_add(1);
  changed_.wait(lock, [&] { return shares_.load() >= wanted; });
  sleepers_.fetch_sub(1);
}

std::string LocalGroup::disagreement(const std::vector<const Call*>& calls) const {
  bool same = true;
  for (const Call* c : calls) same = same && calls_match(*calls[0], *c);
  if (same && calls[0]->kind == CallKind::kAllToAll) {
    uint64_t balance = 0;
    for (size_t r = 0; r < calls.size(); ++r) balance += exchange_balance(*calls[r], static_cast<int>(r));
    same = balance == 0;
  }
  if (same) return {};
  std::vector<std::string> details;
  for (const Call* c : calls) details.push_back(details_of(*c));
  return disagreement_text(details);
}

std::string LocalGroup::last_text(int rank) const {
  const RankState& state = rank_states_[static_cast<size_t>(rank)];
  return state.last.empty() ? "it made no call yet" : str("its last: ", state.last);
}

std::string LocalGroup::deadline_text() const { return str("within ", options_.deadline.count(), " s"); }

std::string LocalGroup::missing_text(const Call& call, bool deadline_passed) const {
  std::vector<int> here;
  std::string missing;
  for (int r = 0; r < size(); ++r) {
    const RankState& state = rank_states_[static_cast<size_t>(r)];
    if (state.arrived.load() >= call.number) here.push_back(r);
    else
      missing += str(missing.empty() ? "" : ", ", "rank ", r,
                     state.left        ? " has ended"
                     : deadline_passed ? str(" did not arrive ", deadline_text())
                                       : " is not here",
                     " (", last_text(r), ")");
  }
  return str(to_text(call), ": ", missing, "; arrived: ", ranks_text(here));
}

void LocalGroup::send(int from, const Call& call) {
  Message message;
  message.label = call.label;
  message.details = details_of(call);
  message.dtype = call.dtype;
  message.numel = call.numel;
  const int64_t bytes = call.numel * size_of(call.dtype);
  if (bytes > 0) {
    message.bytes = std::shared_ptr<void>(allocate_bytes(bytes), [](void* p) { free_bytes(p); });
    memcpy(message.bytes.get(), call.in, static_cast<size_t>(bytes));
  }
  {
    std::lock_guard lock(mutex_);
    rank_states_[static_cast<size_t>(from)].last = to_text(call);
    mail_[{from, call.peer}].push_back(std::move(message));
  }
  changed_.notify_all();
}

void LocalGroup::receive(int to, const Call& call) {
  Message message;
  std::string why;
  {
    std::unique_lock lock(mutex_);
    auto& mail = mail_[{call.peer, to}];
    rank_states_[static_cast<size_t>(to)].last = to_text(call);
    const RankState& sender = rank_states_[static_cast<size_t>(call.peer)];
    changed_.wait_for(lock, options_.deadline,
                      [&] { return !mail.empty() || (arrivals_.load() & kPoison) || sender.left; });
    if (!mail.empty()) {
      message = std::move(mail.front());
      mail.pop_front();
    } else if (!(arrivals_.load() & kPoison)) {
      why = str(to_text(call), ": ", sender.left ? "that rank has ended" : str("nothing arrived ", deadline_text()),
                " (", last_text(call.peer), ")");
    }
  }
  if (!why.empty()) poison(Error(ExitCode::kRankLost, why));
  if (message.details.empty()) throw_poison();
  if (message.dtype != call.dtype || message.numel != call.numel) {
    poison(Error(ExitCode::kRanksDisagree, str("rank ", to, " calls ", details_of(call), ", but rank ", call.peer,
                                               "'s matching call is ", message.details)));
    throw_poison();
  }
  if (message.bytes) memcpy(call.out, message.bytes.get(), static_cast<size_t>(call.numel * size_of(call.dtype)));
}

void LocalGroup::poison(const Error& why) {
  std::vector<std::weak_ptr<LocalGroup>> children;
  {
    std::lock_guard lock(mutex_);
    if (arrivals_.load() & kPoison) return;
    why_ = why;
    arrivals_.fetch_or(kPoison);
    children = children_;
  }
  changed_.notify_all();
  for (auto& child : children)
    if (auto group = child.lock()) group->abort(why);
}

void LocalGroup::throw_poison() const {
  std::lock_guard lock(mutex_);
  throw *why_;
}

std::optional<Error> LocalGroup::failure() const {
  std::lock_guard lock(mutex_);
  return why_;
}

void LocalGroup::leave(int rank) {
  {
    std::lock_guard lock(mutex_);
    rank_states_[static_cast<size_t>(rank)].left = true;
  }
  changed_.notify_all();
}

void LocalGroup::add_child(const std::shared_ptr<LocalGroup>& child) {
  std::lock_guard lock(mutex_);
  std::erase_if(children_, [](const auto& c) { return c.expired(); });
  children_.push_back(child);
}

void LocalGroup::wake() {
  { std::lock_guard lock(mutex_); }
  changed_.notify_all();
}

}  // namespace lockstep
