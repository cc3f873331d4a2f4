#include <algorithm>
#include <functional>
#include <memory>
#include <optional>

#include "comm/mpi/mpi_comm.h"
#include "comm/plan/plan_comm.h"
#include "core/base/caught.h"
#include "core/base/partition.h"
#include "core/base/text_table.h"
#include "core/device/backend.h"
#include "core/device/thread_pool.h"
#include "core/io/hdf5/hdf5_file.h"
#include "core/kernels/kernels.h"
#include "launch/arguments/command_line.h"
#include "launch/cluster/hosts.h"
#include "launch/commands/commands.h"
#include "launch/config/run_length.h"
#include "launch/records/run_dir.h"
#include "launch/terminal/output.h"
#include "launch/terminal/progress.h"
#include "launch/training/evaluation/reference.h"
#include "launch/training/guards/memory_advice.h"
#include "launch/training/loop/checkpoint_space.h"
#include "launch/training/loop/step_plan.h"
#include "launch/training/step/trial_pass.h"
#include "launch/world/memory_report.h"
#include "launch/world/world.h"

namespace lockstep {
namespace {

struct Finding {
  std::string text;
  bool warns = false;
};

// Prints a line for each check, and remembers the first error.
class Report {
 public:
  explicit Report(bool as_json) : as_json_(as_json) {}

  // Returns whether `check` found no error: it threw none.
  bool add(const std::string& name, const std::function<Finding()>& check) {
    try {
      const Finding f = check();
      write(name, f.warns ? "warning" : "ok", f.text, ExitCode::kOk);
      return true;
    } catch (...) {
      const Error e = as_error(std::current_exception());
      if (code_ == ExitCode::kOk) code_ = e.code();
      write(name, "error", e.what(), e.code());
      return false;
    }
  }
  void skip(const std::string& name, const std::string& why) { write(name, "warning", str("not checked: ", why), {}); }
  int code() const { return static_cast<int>(code_); }

 private:
  void write(const std::string& name, const std::string& status, std::string text, ExitCode code) const {
    if (as_json_) {
      print_out(json_line({{"check", name}, {"status", status}, {"text", text}, {"code", static_cast<int64_t>(code)}}) +
                "\n");
      return;
    }
    for (size_t at; (at = text.find('\n')) != text.npos;) text.replace(at, 1, "; ");
    const auto padded = [](std::string word, size_t width) {
      word.resize(std::max(word.size() + 2, width), ' ');
      return word;
    };
    print_out(str(padded(status, 9), padded(name, 15), text, "\n"));
  }

  const bool as_json_;
  ExitCode code_ = ExitCode::kOk;
};

std::string count_of_ranks(int n) { return str(n, n == 1 ? " rank" : " ranks"); }

// Ranks on one machine: as many as it takes in this job of Slurm or PBS, otherwise all.
int ranks_here(const Arguments& a, int ranks) {
  const auto asked = static_cast<int>(a.integer("per-machine", 0, kMostRanks));
  if (asked > 0) return std::min(asked, ranks);
  int most = 0;
  for (const Host& host : current_allocation().hosts) most = std::max(most, host.slots);
  return most > 0 ? std::min(most, ranks) : ranks;
}

class Checks {
 public:
  Checks(const App& app, const Arguments& a)
      : app_(app), a_(a), ranks_(a.ranks(1)), here_(ranks_here(a, ranks_)), report_(a.has("json")) {}

  int run() {
    if (report_.add("configuration", [&] { return configuration(); })) {
      const bool opened = report_.add("data", [&] { return data(); });
      if (opened) report_.add("model", [&] { return model(); });
      else report_.skip("model", "the data cannot be opened");
      const bool usable = report_.add("run directory", [&] { return directory(); });
      if (!plan_ || !usable) report_.skip("disk", plan_ ? "see the run directory" : "the model cannot be planned");
      else report_.add("disk", [&] { return disk(); });
      const bool placed = report_.add("device", [&] { return device(); });
      if (!plan_ || !placed) report_.skip("memory", plan_ ? "see the device" : "the model cannot be planned");
      else report_.add("memory", [&] { return memory(); });
    }
    report_.add("versions", versions);
    return report_.code();
  }

 private:
  Finding configuration() {
    ConfigTree tree = ConfigTree::load(a_.positional[0], a_.rest());
    resume_ = a_.has("resume") || resumes(tree);
    settings_ = load_settings(app_, std::move(tree), ranks_, resume_);
    Settings& s = *settings_;
    const int64_t micro_batches = ceil_div(s.batch.global, s.batch.micro);
    recorded_ = s.graph;
    make_plannable(s);
    data_ = std::make_unique<SharedData>(s);
    const int64_t uneven = micro_batches % ranks_;
    return {str(a_.positional[0], ": ", s.model_name, ", ", length_text(s),
                needs_data_for_steps(s) ? ", each step of " : " of ", micro_batches,
                micro_batches == 1 ? " micro-batch" : " micro-batches", " on ", count_of_ranks(ranks_),
                uneven ? "; they do not divide evenly among the ranks, some of which will wait" : ""),
            uneven != 0};
  }

  Finding data() {
    Stream stream(new_meta_device(), Stream::Mode::kInline);
    WithStream with(stream);
    const Datasets& d = data_->open(*make_plan_communicator(0, 1));
    const DataSpec& spec = d.train->spec();
    const std::string sample = spec.units == 1 ? str(" ", spec.unit) : str(" samples of ", spec.units, " ", spec.unit);
    return {str(d.train->size(), sample, ", ", spec.classes, " classes, ",
                d.validation ? str(d.validation->size(), " for validation") : std::string("none for validation"),
                settings_->train.length.empty() ? "" : "; ",
                settings_->train.length.empty() ? "" : length_text(*settings_))};
  }

  Finding model() {
    std::optional<Checkpoint> from;
    if (resume_ && has_checkpoint(settings_->run.dir)) from = open_newest(settings_->run.dir, false);
    const bool resumes = from.has_value();
    const bool pretrained = !resumes && settings_->pretrained;
    if (!resumes && !pretrained && !settings_->init.from.empty()) from = open_newest(settings_->init.from, false);
    int64_t parameters = 0;
    plan_for_placement();
    try_smallest();
    const int machine_ranks = ranks_ % here_ == 0 ? here_ : 0;
    plan_ = plan_step(*settings_, *data_, ranks_, PlannedRanks::kFirst, machine_ranks, [&](const Trainer& t) {
      parameters = t.parameter_count();
      if (pretrained) t.placed().require_weights_of_folder();
      else if (resumes) t.require_resumable(*from);
      else if (from) t.placed().require_vocabulary_of(*from);
    });
    if (resumes) done_ = from->info.step;
    return {str(short_number(static_cast<double>(parameters)), " parameters, sharding.level ",
                to_text(settings_->parallel.level),
                pretrained ? str("; starts from ", settings_->init.from)
                : from     ? str(resumes ? "; goes on from " : "; starts from ", from->dir)
                           : std::string())};
  }

  void try_smallest() {
    Stream stream(new_meta_device(), Stream::Mode::kInline);
    WithStream with(stream);
    const Reference reference(data_->open(*make_plan_communicator(0, 1)));
    try_smallest_micro_batch(*settings_, *reference.data().train);
  }

  Finding directory() const {
    const std::string& dir = settings_->run.dir;
    RunDir::require_usable(dir, resume_);
    const bool holds = RunDir::holds_a_run(dir);
    const std::string local = here_ < ranks_ ? local_file_system(dir) : "";
    return {str(dir,
                holds     ? ": holds a run, which can be resumed"
                : resume_ ? ": holds no run yet"
                          : ": can be used",
                local.empty() ? ""
                              : str("; it lies on ", local,
                                    " of this machine: do the others see it? `lockstep launch ... "
                                    "-- doctor --dir ",
                                    dir, "` says so")),
            !local.empty()};
  }

  Finding disk() const {
    require_checkpoint_space(*settings_, done_, plan_->checkpoint);
    return {str("room for all checkpoints, of ", bytes_text(plan_->checkpoint), " each")};
  }

  const PlacementDecision& placement() {
    if (decision_) return *decision_;
    placements_.clear();
    for (int r = 0; r < here_; ++r) placements_.push_back(placement_of(r, settings_->device));
    return decision_.emplace(decide_placement(placements_, settings_->device));
  }

  // Memory is planned for the device that the ranks of this machine would get.
  void plan_for_placement() {
    try {
      if (placement().error == ExitCode::kOk)
        settings_->device.choice = decision_->on_gpus ? DeviceChoice::kCuda : DeviceChoice::kCpu;
    } catch (const Error&) {
      // device() says what is wrong.
    }
  }

  Finding device() {
    const PlacementDecision& decision = placement();
    require(decision.error == ExitCode::kOk, decision.error, decision.text);
    on_gpu_ = decision.on_gpus;
    if (on_gpu_) {
      const int gpus = std::min(here_, placements_[0].gpus);
      sharing_ = ceil_div(here_, gpus);
      return {str(count_of_ranks(here_), " on ", gpus, gpus == 1 ? " GPU: " : " GPUs: ", placements_[0].gpu)};
    }
    require(!recorded_, ExitCode::kConfig, settings_->config.place("graph"),
            ": only a GPU's work can be recorded; set graph: false");
    const int cores = available_cores();
    const int64_t set = settings_->compute.threads, threads = set > 0 ? set : std::max(1, cores / here_);
    const bool crowded = threads * here_ > cores;
    const bool unused = !decision.text.empty() && has_gpu_driver();
    return {str("CPU: ", count_of_ranks(here_), ", ", threads, threads == 1 ? " thread" : " threads", " each, on ",
                cores_text(cores),
                crowded ? str(": more threads than cores, which is slow; use fewer ranks",
                              set > 0 ? " or lower compute.threads" : "")
                        : std::string(),
                unused ? str("; no GPU is used: ", decision.text) : std::string()),
            crowded || unused};
  }

  Finding memory() const {
    const int64_t rank = memory_of(*plan_, !on_gpu_);
    const int64_t in_host = on_gpu_ ? plan_->copy + plan_->in_memory + plan_->stats.peak_of(MemoryUse::kInHost) : rank;
    Finding found{str(bytes_text(rank), here_ == 1 ? " for the rank" : str(" for each of ", here_, " ranks"))};
    if (on_gpu_) {
      const int64_t there = device_backend().properties(0).memory_bytes;
      require_memory(rank * sharing_, there, "the GPU has");
      found.text += str(" of the GPU's ", bytes_text(there), ", and ", bytes_text(in_host), " of the host");
      found.warns = !fits_with_margin(rank * sharing_, there);
    } else {
      found.text += ", with the copy for checkpoints";
    }
    const int64_t free = available_memory();
    if (free == 0) return found;
    require_memory(in_host * here_, free, "are free");
    found.text += str("; ", bytes_text(free), " are free");
    found.warns = found.warns || !fits_with_margin(in_host * here_, free);
    if (found.warns) found.text += str(": above ", 100 * kPlannedShare, "%; what is not planned may not fit");
    return found;
  }
  void require_memory(int64_t needed, int64_t there, std::string_view verb) const {
    require(needed <= there, ExitCode::kDevice, "the ranks of this ", on_gpu_ ? "GPU" : "machine", " need ",
            bytes_text(needed), ", and ", bytes_text(there), " ", verb, "; ",
            memory_advice(plan_->stats.peak_by_use, *settings_, ranks_));
  }

  static Finding versions() {
    std::string text = str("lockstep ", kVersion, ", ");
    text += mpi_built() ? mpi_version() : std::string("no MPI");
    text += str(", HDF5 ", hdf5_version(), ", ", kernels().isa, ", ", cores_text(available_cores()));
    if (DeviceBackend* gpus = find_device_backend()) text += str(", ", gpus->driver(), ", ", gpus->versions());
    return {text};
  }

  const App& app_;
  const Arguments& a_;
  const int ranks_, here_;
  Report report_;
  bool resume_ = false, on_gpu_ = false;
  bool recorded_ = false;  // graph: true
  int64_t sharing_ = 1, done_ = 0;
  std::unique_ptr<Settings> settings_;
  std::unique_ptr<SharedData> data_;
  std::optional<StepPlan> plan_;
  std::vector<RankPlacement> placements_;  // of the ranks of this machine
  std::optional<PlacementDecision> decision_;
};

}  // namespace

std::vector<Command> check_forms() {
  return {
      {"check",
       "check FILE.yaml [key.path=value ...] [--ranks N] [--per-machine N] [--resume] [--json]",
       "Looks for what would stop `lockstep train FILE.yaml` on N ranks, within seconds and without changing "
       "anything:\n"
       "the configuration, the data (opened, not read to the end), whether model, data and checkpoints fit together,\n"
       "the run directory, room on the disk for the checkpoints, devices, memory (as `lockstep plan` computes it) and\n"
       "versions. Prints a line for each, which begins with ok, warning or error; the exit code is that of the first\n"
       "error, as training would have it.",
       {{"ranks", "ranks of the run", "N", "1"},
        {"per-machine", "ranks on each machine; 0: as many as a machine of this job of Slurm or PBS takes, or all", "N",
         "0"},
        {"resume", "as for train: run.dir holds a run that goes on"},
        {"json", "print one JSON object per check"}},
       1}};
}

int check_command(const App& app, const std::vector<std::string>& given) {
  const Arguments a = parse_arguments(check_forms(), given);
  if (a.help || !is_first_process()) return 0;
  return Checks(app, a).run();
}

}  // namespace lockstep
