// Prover: trains a model on several layouts of ranks and compares the runs, for `lockstep prove`.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/state/checkpoint.h"
#include "launch/config/settings.h"
#include "launch/proof/proof.h"
#include "launch/terminal/progress.h"
#include "launch/training/step/shared_data.h"
#include "launch/world/temp_dir.h"

namespace lockstep {

// A layout of ranks on which the training runs.
struct RankLayout {
  int ranks = 1, group = 0;
  std::string level = "none", recompute = "none";
  std::unique_ptr<Settings> settings;

  std::string level_text() const { return group ? str(level, " ", ranks / group, "x", group) : level; }
  std::string name() const {
    return str(ranks, ranks == 1 ? " rank" : " ranks", ", ", level_text(),
               recompute == "none" ? "" : str(", recompute ", recompute));
  }
};

// One run, which is one line of the table.
struct ProofRow {
  const RankLayout* layout = nullptr;
  const RankLayout* saved_by = nullptr;  // trains the first half and saves; null: `layout` trains all steps
  ProofRecord record = {};
  std::string difference = {};              // from the first row, as text
  std::pair<double, std::string> far = {};  // with reduce: fast, the largest relative difference and its tensor

  std::string join(const std::string& before, const std::string& after) const {
    return before == after ? after : str(before, " -> ", after);
  }
  std::string name() const {
    return saved_by ? str("saved with ", saved_by->name(), ", resumed with ", layout->name()) : layout->name();
  }
};

struct ProofPlan {
  std::vector<std::string> notes;  // decisions, printed above the table
  std::vector<std::unique_ptr<RankLayout>> layouts;
  std::vector<ProofRow> rows;  // the others are compared with the first; only those that fit the model run
  int world = 1;               // ranks of the job
  int64_t steps = 5, half = 0;
  bool fast = false, json = false;
};

// Throws ExitCode::kUsage where the run that `settings` describe has fewer steps.
void require_steps(const Settings& settings, int64_t steps);

// Runs the plan on one rank of the world; only rank 0 gets the results. Borrows all that it is given.
class Prover {
 public:
  // `group`: where the communicator of a layout's ranks is kept from run to run.
  Prover(const ProofPlan& plan, Communicator& world, const Datasets& data, std::unique_ptr<Communicator>& group);

  const std::vector<ProofRow>& rows() const { return rows_; }

  // Trains all rows and compares them. Returns the number of rows that differ from the first. Collective.
  int64_t go();

 private:
  Checkpoint saved(const std::string& folder, int64_t step) const;
  void save(const Trainer& trainer, Communicator& comm, const std::string& folder) const;
  ProofRecord train(const ProofRow& row, int64_t last, const Proof::AtEnd& at_end);
  ProofRecord train(const RankLayout& layout, const Proof::Span& span, const Proof::AtEnd& at_end);
  void name_element(const std::string& where);

  const ProofPlan& plan_;
  Communicator& world_;
  Proof proof_;
  std::optional<TempDir> temp_dir_;  // if a checkpoint has to be saved
  std::unique_ptr<Progress> progress_;
  std::vector<ProofRow> rows_;
  std::string running_;
  int64_t done_ = 0;
};

}  // namespace lockstep
