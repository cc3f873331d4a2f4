#include "launch/training/reference.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <vector>

#include "core/base/hash.h"
#include "core/base/log.h"
#include "core/io/hdf5_file.h"
#include "core/io/pending_file.h"
#include "core/kernels/kernels.h"
#include "core/state/manifest.h"
#include "launch/training/evaluate.h"
#include "launch/world/fail_together.h"
#include "sharding/cut_chunks.h"

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
  Hash128 sum;
  for (const std::string& text : all_gather_text(comm, to_hex(mine), "hash of the reference"))
    sum += parse_hash(text, "the hash of the reference");
  return to_hex(hash128(str(to_hex(sum), placed.info().base)));
}

// The task's outputs for all samples, in order, on every rank. Collective.
std::vector<float> outputs_of(PlacedTask& placed, const Dataset& data, const char* name) {
  const EvalOptions options = placed.eval_options();
  const Axis& ranks = placed.parallel().mesh().data();
  const auto begun = Clock::now();
  auto told = begun;
  std::vector<std::vector<double>> rows;  // sample, then its two values
  const auto add = [&](const Tensor& output, const Batch&, const MicroBatch&, int64_t first) {
    const std::vector<double> values = output.to_vector();
    for (size_t i = 0; i + 1 < values.size(); i += 2)
      rows.push_back({static_cast<double>(first++), values[i], values[i + 1]});
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
  for (const std::vector<double>& row : rows_of_all_ranks(ranks, rows, 3))
    out.push_back(static_cast<float>(row[1])), out.push_back(static_cast<float>(row[2]));
  return out;
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

// What the values are a function of.
std::string Reference::key(const std::string& model, const PlacedTask& placed) const {
  const CheckpointInfo& i = placed.info();
  return to_hex(hash128(str("model ", model, "\ntrain ", i.dataset, " ", train_->size(), "\nvalidation ",
                            validation_ ? str(to_hex(validation_->identity()), " ", validation_->size()) : "none",
                            "\ninstructions ", bits_of_isa(i.isa.c_str()), "\n", i.math_text)));
}

void Reference::compute(PlacedTask& placed, Communicator& comm) {
  placed.info().reference = hash_of_model(placed, comm);
  if (!read(key(placed.info().reference, placed), comm)) measure(placed, comm);
}

void Reference::compute_for(const CheckpointInfo& resumed, PlacedTask& placed, const Settings& settings,
                            Communicator& comm) {
  if (resumed.step == 0 && resumed.reference.empty()) return;  // its parameters are those that training begins with
  require(!resumed.reference.empty(), ExitCode::kBadData,
          "the checkpoint names no reference, so it was trained on another task; begin a new run with init.from");
  if (read(key(resumed.reference, placed), comm)) return;
  if (!settings.init.from.empty()) placed.load_initial();
  const std::string model = hash_of_model(placed, comm);
  require(model == resumed.reference, ExitCode::kBadData,
          settings.init.from.empty() ? "the model's first parameters" : settings.init.from,
          ": is not what training began with: its parameters have the hash ", model, ", those of the reference ",
          resumed.reference, "; init.from must name these");
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
  fail_together(comm, [&] {
    if (comm.rank() == 0 && !path_.empty()) write(key(placed.info().reference, placed));
  });
}

// Rank 0 reads, for it alone may see the file.
bool Reference::read(const std::string& key, Communicator& comm) {
  std::vector<float> train(static_cast<size_t>(2 * train_->size())),
      validation(static_cast<size_t>(validation_ ? 2 * validation_->size() : 0));
  const auto size_of_file = [](const std::vector<float>& values) { return Shape{std::ssize(values)}; };
  const bool tries = comm.rank() == 0 && !path_.empty() && std::filesystem::exists(path_);
  const bool found = tries && [&] {
    try {
      const Hdf5File file = Hdf5File::open(path_);
      if (file.string_attribute("", "key") != key) return false;
      for (const auto& [name, values] : {std::pair("train", &train), std::pair("validation", &validation)}) {
        if (values->empty()) continue;
        require(file.info(name).shape == size_of_file(*values), ExitCode::kBadData, path_, ": ", name,
                " has another size than the data");
        file.read(name, StoredType::kFloat32, {0, std::ssize(*values)}, values->data());
      }
      return true;
    } catch (const Error& e) {
      log_warning(str(e.what(), "; computing the reference again"));
      return false;
    }
  }();
  if (all_gather_values(comm, found ? 1 : 0, "reference")[0] == 0) return false;
  for (auto& [to, values] : {std::pair(train_, &train), std::pair(validation_, &validation)}) {
    if (values->empty()) continue;
    const Tensor all = Tensor::of(*values, {std::ssize(*values)});
    comm.broadcast(all, 0, "reference").wait();
    if (!to->is_set()) to->set(all.to_vector<float>());
  }
  return true;
}

void Reference::write(const std::string& key) const {
  PendingFile pending(path_, true);
  Hdf5File file = Hdf5File::create(pending.temporary());
  file.set_attribute("", "key", key);
  for (const auto& [name, data] : {std::pair("train", train_), std::pair("validation", validation_)})
    if (data) file.write_all(name, StoredType::kFloat32, {std::ssize(data->values())}, data->values().data());
  file.close();
  pending.commit();
}

}  // namespace lockstep
