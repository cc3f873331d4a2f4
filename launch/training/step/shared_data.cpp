#include "launch/training/step/shared_data.h"

#include <filesystem>

#include "core/base/hash.h"
#include "core/base/host.h"
#include "core/base/log.h"
#include "core/base/trace.h"
#include "launch/config/run_length.h"
#include "launch/world/fail_together.h"

namespace lockstep {

const Datasets& SharedData::open(Communicator& comm) {
  trace_mark();
  constexpr const char* kShare = "; rank 0 has it: all machines must see the same data";
  fail_together(comm, [&] {
    std::lock_guard lock(mutex_);
    if (!data_) {
      DataOptions options = settings_.data;
      if (!options.like && settings_.data_of_init) options.like = settings_.data_of_init();
      try {
        data_ = std::make_unique<Datasets>(settings_.source->open(options, static_cast<uint64_t>(settings_.seed)));
      } catch (const Error& e) {  // heard only where rank 0 has none
        if (e.code() != ExitCode::kMissingInput) throw;
        if (comm.rank() == 0) throw e.with_message(e.what() + relative_to());
        throw Error(ExitCode::kOutputLocked, str(e.what(), kShare));
      }
      if (data_->train) resolve_steps(settings_, *data_->train);
    }
    if (comm.rank() == 0 && data_->stored_samples > data_->samples)
      log_warning(str(settings_.data.path, ": has grown from ", data_->samples, " to ", data_->stored_samples,
                      " samples since the run began: the first ", data_->samples,
                      ", which are the same, are used; a new run uses all of them, and may begin with this one's "
                      "parameters (init.from)"));
    if (!settings_.data.measured) return;
    require(data_->measured == *settings_.data.measured, ExitCode::kUsage,
            "--on: this program's own data source offers its validation part alone");
    require(data_->validation != nullptr, ExitCode::kConfig, settings_.config.place("data.validation"),
            ": is 0: there is no validation part; override it, as in data.validation=0.1, or measure --on all");
  });
  require_same(comm);
  return *data_;
}

// "; data.path is relative to ...", where it is.
std::string SharedData::relative_to() const {
  const std::string& path = settings_.data.path;
  if (path.empty() || path.starts_with('/')) return "";
  std::error_code ignored;
  return str("; data.path is relative to the folder that the command is started in, ",
             std::filesystem::current_path(ignored).string(),
             ": start it where the run was started, or give data.path=FILE");
}

// Another file under the same path would give other samples to the ranks of one machine.
void SharedData::require_same(Communicator& comm) const {
  if (comm.size() == 1) return;
  const std::string mine = data_->train ? to_hex(data_->train->identity()) : "";
  const std::string first = broadcast_text(comm, str(host_name(), "\n", mine), 0, "data");
  const std::string host = first.substr(0, first.find('\n'));
  fail_together(comm, [&] {
    require(first.substr(host.size() + 1) == mine, ExitCode::kOutputLocked, settings_.data.path, " on ", host_name(),
            " holds other data than on ", host, " (", mine, " and ", first.substr(host.size() + 1),
            "): all machines must see the same data");
  });
}

}  // namespace lockstep
