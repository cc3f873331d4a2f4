#include "launch/checkpoints/checkpoint_mirror.h"

#include <algorithm>
#include <exception>
#include <filesystem>

#include "core/base/caught.h"
#include "core/base/flight_recorder.h"
#include "core/base/log.h"
#include "core/base/trace.h"
#include "core/io/files.h"
#include "core/io/pending_file.h"
#include "core/state/manifest.h"
#include "launch/records/metrics.h"
#include "launch/records/run_dir.h"
#include "launch/world/together.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// Of rank 0; metrics are read while the run writes them, by whole lines.
std::vector<std::pair<std::string, std::string>> records(const RunPaths& from, const RunPaths& to) {
  return {{from.config(), to.config()},
          {from.attempts(), to.attempts()},
          {from.metrics(), to.metrics()},
          {from.histograms(), to.histograms()},
          {from.log(), to.log()}};
}

void copy_lines(const std::string& from, const std::string& to) {
  const auto file = open_if_there(from);
  if (!file) return;
  std::string text = file->text(file->size);
  const size_t end = text.rfind('\n');
  text.resize(end == std::string::npos ? 0 : end + 1);
  replace_file(to, text);
}

}  // namespace

CheckpointMirror::CheckpointMirror(Communicator& comm, MirrorOptions options)
    : comm_(comm.copy_for_host("mirror")), options_(std::move(options)), pace_(options_.bytes_per_s), thread_([this] {
        trace_owner.rank = comm_->rank();
        work();
      }) {}

CheckpointMirror::~CheckpointMirror() {
  if (std::uncaught_exceptions() > 0) {
    pace_.give_up();
    comm_->abort(rank_is_ending(comm_->rank()));
  }
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

CheckpointMirror::Held CheckpointMirror::hold(int64_t step, bool retires) const {
  Held out;
  out.step = step;
  out.retires = retires;
  if (!options_.brings) return out;
  const std::string dir = str(RunPaths{options_.from}.checkpoints(), "/", checkpoint_name(step));
  try {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(dir)) names.push_back(entry.path().filename().string());
    std::erase_if(names, [](const std::string& name) { return !name.ends_with(".h5"); });
    std::sort(names.begin(), names.end());
    if (comm_->rank() == 0) names.push_back(kManifest);
    for (const std::string& name : names) out.files.emplace_back(name, InputFile(str(dir, "/", name)));
  } catch (const std::exception& e) {
    out.problems.push_back(e.what());
  }
  return out;
}

void CheckpointMirror::add(int64_t step, bool retires) {
  Held one = hold(step, retires);
  {
    std::lock_guard lock(mutex_);
    if (stopped_)
      return problems_.push_back({step, str("checkpoint.mirror: the checkpoint of step ", step,
                                            " was not brought, since an earlier one failed")});
    waiting_.push_back(std::move(one));
  }
  changed_.notify_all();
}

void CheckpointMirror::finish() {
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !busy_ && (waiting_.empty() || stopped_); });
  }
  if (comm_->rank() == 0) copy_records();
}

std::vector<CheckpointMirror::Problem> CheckpointMirror::problems() {
  std::lock_guard lock(mutex_);
  return std::exchange(problems_, {});
}

// All ranks bring the newest that every rank knows of, and pass over those before it.
void CheckpointMirror::work() {
  for (;;) {
    int64_t newest = 0;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return !waiting_.empty() || ending_ || stopped_; });
      if (waiting_.empty() || stopped_) return;
      busy_ = true;
      newest = waiting_.back().step;
    }
    std::optional<Problem> problem;
    try {
      const auto all = all_gather_values(*comm_, newest, "mirror");
      const int64_t step = *std::min_element(all.begin(), all.end());
      newest = step;
      Held one;
      {
        std::lock_guard lock(mutex_);
        while (!waiting_.empty() && waiting_.front().step <= step) {
          one = std::move(waiting_.front());
          waiting_.pop_front();
        }
      }
      bring(one);
    } catch (...) {
      const Error error = as_error(std::current_exception());
      if (!error.is_secondary()) problem = {newest, error.what()};
      if (error.code() != ExitCode::kStorage && error.code() != ExitCode::kOutputLocked &&
          error.code() != ExitCode::kBadData && error.code() != ExitCode::kMissingInput) {
        std::lock_guard lock(mutex_);  // ranks are lost: there is nobody to go on with
        stopped_ = true;
      }
    }
    {
      std::lock_guard lock(mutex_);
      busy_ = false;
      if (problem) problems_.push_back(std::move(*problem));
      if (stopped_) waiting_.clear();
    }
    changed_.notify_all();
  }
}

void CheckpointMirror::bring(const Held& one) {
  trace_mark();
  const TraceSpan span("mirror");
  const bool first = comm_->rank() == 0;
  const std::string checkpoints = RunPaths{options_.to}.checkpoints(),
                    pending = pending_checkpoint(checkpoints, one.step),
                    final = str(checkpoints, "/", checkpoint_name(one.step));
  const auto each = [&](const std::function<void()>& mine) {
    together(
        *comm_,
        [&] {
          mine();
          return std::string();
        },
        [&] { pace_.give_up(); }, "mirror");
  };
  try {
    each([&] {
      require(one.problems.empty(), ExitCode::kMissingInput, one.problems.empty() ? "" : one.problems[0]);
      if (first) begin_checkpoint(pending);
    });
    each([&] {
      pace_.begin();
      for (const auto& [name, file] : one.files) copy_to_new(file, str(pending, "/", name), &pace_);
    });
    each([&] {
      if (!first) return;
      copy_records();  // before the checkpoint: a resumed run removes lines of later steps
      put_in_place(pending, final);
      if (one.retires) retire_checkpoints(checkpoints, one.step, options_.retention);
    });
  } catch (const Error& e) {
    if (first) clean_checkpoints(checkpoints);
    throw e.with_message(str("checkpoint.mirror: the checkpoint of step ", one.step, " was not brought: ", e.what()));
  }
}

void CheckpointMirror::copy_records() {
  for (const auto& [from, to] : records(RunPaths{options_.from}, RunPaths{options_.to})) copy_lines(from, to);
}

void bring_back_records(const std::string& mirror, const std::string& run_dir) {
  const RunPaths from{mirror}, to{run_dir};
  const auto there = last_recorded_step(from.metrics()), here = last_recorded_step(to.metrics());
  if (!there || (here && *here >= *there)) return;
  make_folder(run_dir);
  for (const auto& [its, own] : records(from, to)) {
    std::error_code ignored;
    fs::rename(own, own + ".set-aside", ignored);
    copy_lines(its, own);
  }
  log_info(str(run_dir, " has ", here ? str("metrics up to step ", *here) : std::string("no metrics"),
               ": copied those of ", mirror, ", which reach step ", *there,
               here ? "; the former files end in .set-aside" : ""));
}

}  // namespace lockstep
