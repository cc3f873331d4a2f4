#include "launch/training/evaluation/reference.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <sstream>
#include <vector>

#include "core/base/hash.h"
#include "core/base/log.h"
#include "core/io/hdf5/hdf5_file.h"
#include "core/io/pending_file.h"
#include "core/kernels/kernels.h"
#include "data/samples/sample_buffer.h"
#include "launch/training/evaluation/evaluate.h"
#include "launch/world/fail_together.h"
#include "sharding/cut_chunks.h"
#include "sharding/mesh.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

std::shared_ptr<WithValues> with_reference(const std::shared_ptr<const Dataset>& data) {
  if (!data || !data->spec().find(kAnswers) || data->spec().find(kReference)) return nullptr;
  return std::make_shared<WithValues>(data, TensorSpec{std::string(kReference), DType::kFloat32, {2}});
}

// A hash of all parameters, and of the frozen ones that files hold. Collective.
std::string hash_of_model(PlacedTask& placed, Communicator& comm) {
  const Axis& replica = placed.parallel().mesh().replica();
  Hash128 mine;
  for (auto& [_, share] : digest_shares(cut_for_rank(placed.parallel().state(), replica.index, replica.size), comm))
    mine += share;
  return to_hex(hash128(str(to_hex(sum_of_shares(mine, comm, "hash of the reference")), placed.info().base)));
}

// The task's outputs for all samples, in the order of their numbers, on every rank. Collective.
std::vector<float> outputs_of(PlacedTask& placed, const Dataset& data, const char* name) {
  const EvalOptions options = placed.eval_options();
  const Axis& ranks = placed.parallel().mesh().data();
  const auto begun = Clock::now();
  auto told = begun;
  std::vector<std::vector<double>> rows;  // the sample's number, then its two values
  const auto add = [&](const Tensor& output, const Batch&, const MicroBatch& m, int64_t) {
    const std::vector<double> values = output.to_vector();
    check(values.size() == 2 * m.samples->size(), values.size(), " outputs of ", m.samples->size(), " pairs");
    for (size_t i = 0; i < m.samples->size(); ++i)
      rows.push_back({static_cast<double>(data.number(0, (*m.samples)[i])), values[2 * i], values[2 * i + 1]});
  };
  for_each_step(placed.task(), placed.parallel(), data, options, samples_of_pass(placed.parallel(), options),
                "reference", [&](const StepBatch& step) {
                  for_each_output(placed.task(), placed.parallel(), step, options, add);
                  const auto now = Clock::now();
                  if (ranks.index != 0 || now - told < std::chrono::seconds(20)) return;
                  told = now;
                  log_info(str("reference: ", step.position + step.samples, " of ", data.size(), " pairs ", name, ", ",
                               std::chrono::duration_cast<std::chrono::seconds>(now - begun).count(), " s"));
                });
  std::vector<float> out;
  for (const std::vector<double>& row : rows_of_all_ranks(ranks, rows, 3)) {
    check(static_cast<int64_t>(row[0]) == std::ssize(out) / 2, "the first epoch of these pairs lacks pair ",
          std::ssize(out) / 2);
    out.push_back(static_cast<float>(row[1])), out.push_back(static_cast<float>(row[2]));
  }
  return out;
}

// The keys of the configuration on which no output depends in evaluation mode are left out: a run may go on with
// others.
std::string keys_of_outputs(const std::string& math_text) {
  std::istringstream lines(math_text);
  const bool codes = math_text.find("precision.frozen: nf4") != math_text.npos ||
                     math_text.find("precision.frozen: int8") != math_text.npos;
  std::string out;
  for (std::string line; std::getline(lines, line);) {
    const auto is_of = [&](std::string_view section) { return line.starts_with(section); };
    // Rules freeze parameters, of which weights may be kept in codes.
    if ((!is_of("optim.") || (codes && is_of("optim.rules"))) && !is_of("schedule.") && !is_of("train.") &&
        !is_of("task.") && !is_of("init."))
      out += line + "\n";
  }
  return out;
}

// The data, and which part of it: by its first sample, its last one and one between them.
std::string part_text(const Dataset& data) {
  const SampleBuffer sample(data.spec().tensors);
  std::string out = str("data ", to_hex(data.identity()), " ", data.size());
  for (const int64_t index : {int64_t{0}, data.size() / 2, data.size() - 1}) {
    data.read(0, index, sample.memory());
    for (const auto& bytes : sample.bytes()) out += str(" ", hash64(bytes.data(), bytes.size()));
  }
  return out;
}

// Whether versions before 2026-11-28 kept values by places that are another sample's: of an evaluation pass sorted by
// length, or of a mixture's first epoch.
bool had_values_of_others(const Dataset& data) {
  if (data.spec().length_buckets > 1) return true;
  for (int64_t epoch = 0; epoch < 2; ++epoch)
    for (int64_t i = 0; i < std::min<int64_t>(data.size(), 1000); ++i)
      if (data.number(epoch, i) != i) return true;
  return false;
}

}  // namespace

Reference::Reference(const Datasets& data) : data_(data) {
  if ((train_ = with_reference(data.train))) data_.train = train_;
  validation_ = data.validation == data.train ? train_ : with_reference(data.validation);
  if (validation_) data_.validation = validation_;
}

bool Reference::is_missing(const Task& task) const {
  if (!train_ || train_->is_set()) return false;
  const std::vector<TensorNeed> needs = task.reads();
  return std::any_of(needs.begin(), needs.end(), [](const TensorNeed& n) { return n.name == kReference; });
}

std::string Reference::key(const std::string& model, const PlacedTask& placed, const WithValues& part,
                           const char* version) const {
  const CheckpointInfo& i = placed.info();
  return to_hex(hash128(str(version, "model ", model, "\n", part_text(part.base()), "\ninstructions ",
                            bits_of_isa(i.isa.c_str()), "\n", keys_of_outputs(i.math_text))));
}

void Reference::compute(PlacedTask& placed, Communicator& comm) {
  placed.info().reference = hash_of_model(placed, comm);
  if (!read(placed.info().reference, placed, comm)) measure(placed, comm);
}

void Reference::compute_for(const Checkpoint& from, PlacedTask& placed, const Settings& settings, Communicator& comm) {
  const std::string& wanted = from.info.reference;
  if (from.info.step == 0 && wanted.empty()) return;  // its parameters are those that training begins with
  require(!wanted.empty(), ExitCode::kBadData, from.dir,
          ": was trained on another task, without a reference; for task.name: ", settings.task_name,
          " begin a new run with init.from: ", from.dir);
  if (read(wanted, placed, comm)) return;
  if (!settings.init.from.empty()) placed.load_initial();
  const std::string model = hash_of_model(placed, comm);
  const std::string how =
      settings.init.from.empty() ? "this program and configuration begin with another one" : "init.from must name it";
  require(model == wanted, ExitCode::kBadData, from.dir, ": its reference is the model with the hash ", wanted,
          ", but ", settings.init.from.empty() ? "what training begins with" : settings.init.from, " has ", model, "; ",
          how);
  placed.info().reference = model;
  measure(placed, comm);
}

void Reference::measure(PlacedTask& placed, Communicator& comm) {
  const bool two = validation_ && validation_ != train_;
  const auto begun = Clock::now();
  if (comm.rank() == 0)
    log_info(str("reference: computing what the model makes of the answers of ",
                 train_->size() + (two ? validation_->size() : 0), " pairs before it is trained"));
  train_->set(outputs_of(placed, train_->base(), "for training"));
  if (two) validation_->set(outputs_of(placed, validation_->base(), "for validation"));
  if (comm.rank() == 0)
    log_info(str("reference: done in ", std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - begun).count(),
                 " s"));
  if (path_.empty() || !keeps_) return;
  fail_together(comm, [&] {
    if (comm.rank() == 0) write(placed);
  });
}

// Rank 0 reads, for it alone may see the file.
bool Reference::read(const std::string& model, const PlacedTask& placed, Communicator& comm) {
  std::vector<WithValues*> parts{train_.get()};
  if (validation_ && validation_ != train_) parts.push_back(validation_.get());
  std::vector<std::vector<float>> values(parts.size());
  for (size_t i = 0; i < parts.size(); ++i) values[i].resize(static_cast<size_t>(2 * parts[i]->size()));
  // Whether the file has all parts, under whatever name; if not, whether it has values of an earlier version that
  // belong to other pairs.
  bool was_wrong = false;
  const auto fill = [&] {
    const Hdf5File file = Hdf5File::open(path_);
    for (size_t i = 0; i < parts.size(); ++i) {
      const std::string wanted = key(model, placed, *parts[i]);
      const std::string earlier = key(model, placed, *parts[i], "");
      bool found = false;
      for (const std::string& name : file.list()) {
        const std::string stored = file.string_attribute(name, "key");
        if (stored == earlier && had_values_of_others(parts[i]->base())) was_wrong = true;
        if (stored != wanted) continue;
        require(file.info(name).shape == Shape{std::ssize(values[i])}, ExitCode::kBadData, path_, ": ", name,
                " has another size than the data");
        file.read(name, StoredType::kFloat32, {0, std::ssize(values[i])}, values[i].data());
        found = true;
        break;
      }
      if (!found) return false;
    }
    return true;
  };
  bool found = false;
  std::error_code ignored;
  if (comm.rank() == 0 && !path_.empty() && std::filesystem::exists(path_, ignored)) {
    try {
      found = fill();
      if (was_wrong)
        log_warning(str(path_,
                        ": was written by an earlier version, which with data.buckets or several files compared "
                        "pairs with the reference of other pairs: what this run was trained on until now was "
                        "wrong. It goes on with the right values; begin a new run to be rid of the wrong ones"));
      else if (!found)
        log_info(
            str(path_, ": is of another model, other data, another precision or an earlier version, and is not used"));
    } catch (const Error& e) {
      log_warning(str(e.what(), "; computing the reference again"));
    }
  }
  if (all_gather_values(comm, found ? 1 : 0, "reference")[0] == 0) return false;
  for (size_t i = 0; i < parts.size(); ++i) {
    const Tensor all = Tensor::of(values[i], {std::ssize(values[i])});
    comm.broadcast(all, 0, "reference").wait();
    parts[i]->set(all.to_vector<float>());
  }
  return true;
}

void Reference::write(const PlacedTask& placed) const {
  PendingFile pending(path_, true);
  Hdf5File file = Hdf5File::create(pending.temporary());
  for (const auto& [name, part] : {std::pair("train", train_), std::pair("validation", validation_)}) {
    if (!part || (part == train_ && std::string_view(name) != "train")) continue;
    file.write_all(name, StoredType::kFloat32, {std::ssize(part->values())}, part->values().data());
    file.set_attribute(name, "key", key(placed.info().reference, placed, *part));
  }
  file.close();
  pending.commit();
}

}  // namespace lockstep
