#include "launch/training/run_saves.h"

#include "core/base/log.h"
#include "launch/artifacts/run_dir.h"
#include "launch/artifacts/text_table.h"

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
                   std::function<void(int64_t step)> before_write)
    : settings_(settings), comm_(comm), trainer_(trainer), memory_(memory) {
  const CheckpointOptions& o = settings.checkpoint;
  saver_ = std::make_unique<Saver>(comm, RunPaths{settings.run.dir}.checkpoints(),
                                   Retention{o.keep_last, o.keep_every, o.keep_best},
                                   memory ? 0 : elements_of(settings, trainer), std::move(before_write));
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
  auto saved = saver_->completed();
  for (const SaveReport& r : saved)
    log_debug(str("saved the checkpoint of step ", r.step, " in ", fixed(r.seconds, 3), " s; training waited for ",
                  fixed(r.stall_ms, 1), " ms"));
  return saved;
}

}  // namespace lockstep
