#include "launch/training/loop/run_saves.h"

#include <algorithm>

#include "core/base/log.h"
#include "core/base/text_table.h"
#include "launch/checkpoints/machine_parts.h"
#include "launch/records/run_dir.h"
#include "launch/world/together.h"

namespace lockstep {
namespace {

constexpr int kFailedSaves = 3;  // consecutive failures after which the run ends

using Clock = std::chrono::steady_clock;

// Of this rank's entries, where it saves more than once.
int64_t elements_of(const Settings& settings, const Trainer& trainer) {
  if (!settings.checkpoint.while_training()) return 0;
  int64_t elements = 0;
  for (const StateEntry& e : trainer.entries_to_save()) elements += e.data.numel();
  return elements;
}

}  // namespace

RunSaves::RunSaves(const Settings& settings, Communicator& comm, const Trainer& trainer, MemoryRecovery* memory,
                   bool per_machine, std::function<void(int64_t step)> before_write)
    : settings_(settings), comm_(comm), trainer_(trainer), memory_(memory) {
  constexpr double kMega = 1e6;
  const CheckpointOptions& o = settings.checkpoint;
  const std::string& dir = settings.run.dir;
  const Retention retention{o.keep_last, o.keep_every, o.keep_best};
  std::vector<int> leader_of(static_cast<size_t>(comm.size()), 0);  // looked for only where it is asked for
  if (o.write_limit > 0 || per_machine) leader_of = machine_leaders(comm);
  const int leader = leader_of[static_cast<size_t>(comm.rank())];
  if (!o.mirror.empty()) {
    const bool brings = per_machine ? comm.rank() == leader : comm.rank() == 0;
    mirror_ = std::make_unique<CheckpointMirror>(
        comm, MirrorOptions{dir, o.mirror, retention, kMega * o.write_limit, brings});
  }
  SaverOptions options;
  options.retention = retention;
  options.elements = memory ? 0 : elements_of(settings, trainer);
  options.before_write = std::move(before_write);
  options.saved = [this](int64_t step, bool retires) {
    if (mirror_ && mirrors(step)) mirror_->add(step, retires);
  };
  options.bytes_per_s =
      kMega * o.write_limit / static_cast<double>(std::count(leader_of.begin(), leader_of.end(), leader));
  options.per_machine = per_machine;
  saver_ = std::make_unique<Saver>(comm, RunPaths{dir}.checkpoints(), std::move(options));
}

// On the saver's thread.
bool RunSaves::mirrors(int64_t step) const {
  const int64_t every = settings_.checkpoint.mirror_every;
  return step == last_ || every == 0 || step % every == 0;
}

bool RunSaves::after(int64_t step) const {
  const int64_t every = settings_.checkpoint.every;
  return step == settings_.train.steps || (every > 0 && step % every == 0);
}

bool RunSaves::is_due() const {
  const double minutes = settings_.checkpoint.every_minutes;
  return comm_.rank() == 0 && minutes > 0 && Clock::now() - saved_at_ >= std::chrono::duration<double>(60 * minutes);
}

void RunSaves::save(const ValidationRecord& validation, bool must, bool evaluated) {
  // If steps are skipped or the validation loss is not finite, this state may be worse than the earlier ones, so none
  // of them is removed.
  const bool retires = trainer_.info().skipped_in_row == 0 && validation.finite;
  CheckpointInfo info = trainer_.info();
  info.validation = validation;
  if (!evaluated) info.validation.loss.reset(), info.validation.value.reset();
  saved_at_ = Clock::now();
  if (must) {
    finish();  // the save before, which knows nothing of this one
    last_ = info.step;
    saver_->hurry();
    if (mirror_) mirror_->hurry();
  }
  const auto start = [&] {
    if (memory_)
      if (auto kept = memory_->keep_to_save(info.step))
        return saver_->start(info, kept->entries, retires, std::move(kept->held));
    saver_->start(info, trainer_.entries_to_save(), retires);
  };
  if (tolerate(start)) failed_ = 0;
  else start();
  if (must) saver_->finish();
  if (must && comm_.rank() == 0) completed();
}

void RunSaves::finish() {
  tolerate([&] { saver_->finish(); });
}

void RunSaves::finish_mirror() {
  if (!mirror_) return;
  const auto mine = [&] {
    mirror_->finish();
    std::string last;
    for (const CheckpointMirror::Problem& p : mirror_->problems()) {
      if (p.step == last_) last = p.text;
      else log_warning(p.text);
    }
    require(last.empty(), ExitCode::kStorage, last, "; it is whole in ", settings_.run.dir);
    return std::string();
  };
  together(
      comm_, mine, [] {}, "mirror");
}

void RunSaves::mirror_what_is_due(int64_t step) {
  const std::string& mirror = settings_.checkpoint.mirror;
  if (!mirror_ || step == 0) return;
  if (step == settings_.train.steps) last_ = step;
  const bool due =
      comm_.rank() == 0 && mirrors(step) && has_checkpoint(settings_.run.dir, step) && !has_checkpoint(mirror, step);
  if (all_gather_values(comm_, due ? 1 : 0, "mirror")[0] != 0) mirror_->add(step);
}

// Runs `action`. Returns false if it failed for lack of storage; throws after kFailedSaves consecutive failures.
bool RunSaves::tolerate(const std::function<void()>& action) {
  try {
    action();
    return true;
  } catch (const Error& e) {
    if (e.code() != ExitCode::kStorage || ++failed_ >= kFailedSaves) throw;
    if (!e.is_secondary())
      log_warning(
          str("checkpoint not saved (", failed_, " of ", kFailedSaves, " in a row that are tolerated): ", e.what()));
    return false;
  }
}

std::vector<SaveReport> RunSaves::completed() {
  if (mirror_ && last_ < 0)  // else finish_mirror() tells
    for (const CheckpointMirror::Problem& p : mirror_->problems()) log_warning(p.text);
  auto saved = saver_->completed();
  for (const SaveReport& r : saved)
    log_debug(str("saved the checkpoint of step ", r.step, " in ", fixed(r.seconds, 3), " s; training waited for ",
                  fixed(r.stall_ms, 1), " ms"));
  return saved;
}

}  // namespace lockstep
