#include "launch/training/shared_data.h"

#include "core/base/log.h"
#include "core/base/trace.h"
#include "launch/world/fail_together.h"

namespace lockstep {

const Datasets& SharedData::open(Communicator& comm) {
  trace_mark();
  fail_together(comm, [&] {
    std::lock_guard lock(mutex_);
    if (!data_) {
      DataOptions options = settings_.data;
      if (!options.like && settings_.data_of_init) options.like = settings_.data_of_init();
      data_ = std::make_unique<Datasets>(settings_.source->open(options, static_cast<uint64_t>(settings_.seed)));
    }
    if (comm.rank() == 0 && data_->stored_samples > data_->samples)
      log_warning(cat(settings_.data.path, ": has grown from ", data_->samples, " to ", data_->stored_samples,
                      " samples since the run began: the first ", data_->samples,
                      ", which are the same, are used; a new run uses all of them, and may begin with this one's "
                      "parameters (init.from)"));
    if (!settings_.data.measured) return;
    require(data_->measured == *settings_.data.measured, ExitCode::kUsage,
            "--on: this program's own data source offers its validation part alone");
    require(data_->validation != nullptr, ExitCode::kConfig, settings_.config.place("data.validation"),
            ": is 0: there is no validation part; override it, as in data.validation=0.1, or measure --on all");
  });
  return *data_;
}

}  // namespace lockstep
