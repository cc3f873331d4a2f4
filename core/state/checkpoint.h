// Checkpoints: a directory with a manifest and HDF5 files, by logical tensor name and region, so that it opens at any
// layout. Written under a temporary name, flushed to disk, renamed: a kill at any time leaves the earlier ones
// whole.
//   step-00000030/manifest.json
//       version, step, cursor, configuration, every slice with its hash; closed by its own hash
//   step-00000030/part-0000-of-0002.h5
//       of all ranks of a machine: core/state/checkpoint_part.h
// Plain functions; a Checkpoint is a manifest in memory. Beside it and the caller's own tensors, reading and writing
// hold a piece of 4 MiB, of tensors on a GPU or in other boxes than the files' two, and 16 bytes for each 256 KiB of a
// slice.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/partition.h"
#include "core/state/state.h"

namespace lockstep {

// 2: loss_scale, good_steps and layout, which a program that knows 1 alone would lose. 3: later_updates; a checkpoint
// without any was still written as 2. 4: base; without it 3 or 2. Up to there each rank had a file, whose chunks HDF5
// checksums. 5: files of several ranks, with hashes of blocks; this one is written. 6: slices of boxes; without any, 5
// is written. All are read.
constexpr int64_t kCheckpointVersion = 5, kVersionOfBoxes = 6;

// What a run knows of its validation.
struct ValidationRecord {
  bool finite = true;           // the last loss; while false, no earlier checkpoint is removed
  std::optional<double> loss;   // of the state that is saved; nothing where that was not evaluated, or is not finite
  std::string metric = {};      // by which the best is chosen (train.best); empty: the loss, and
  bool highest = false;         // whether higher is better
  std::string texts = {};       // how those of train.eval_tasks were encoded: "<s>TEXT"; empty: no special tokens
  std::optional<double> value;  // that metric's, of the state that is saved
  std::optional<double> best;   // the best so far, and
  int64_t best_step = 0;        // the step after which it was measured
  int64_t since_best = 0;       // evaluations since then

  // Whether values of the two can be compared. A metric with a slash is one of train.eval_tasks.
  bool measures_as(const ValidationRecord& other) const {
    return metric == other.metric && highest == other.highest &&
           (metric.find('/') == metric.npos || texts == other.texts);
  }
  // `its_value`: the metric's, where one is named.
  void add(int64_t step, double its_loss, std::optional<double> its_value = {});
  // Of the state that is saved, what the best is chosen by: the loss, or that value.
  std::optional<double> measured() const { return metric.empty() ? loss : value; }
};

// What a run needs beside its tensors.
struct CheckpointInfo {
  int64_t step = 0;                    // steps done
  int64_t epoch = 0, position = 0;     // data cursor
  int64_t updates = 0;                 // of the optimizer: of a step's first phase, and
  std::vector<int64_t> later_updates;  // of the phases after it
  int64_t skipped_in_row = 0, skipped = 0;
  ValidationRecord validation;
  double loss_scale = 1;   // of fp16: what the loss is multiplied by, and
  int64_t good_steps = 0;  // steps since it changed
  std::string dataset;     // identity, 32 hex digits, and
  int64_t samples = 0;     // how many its file had; 0: several files, or none
  std::string reference;   // hash of the model that a task of preferences compares with, 32 hex digits; empty: none
  std::string base;  // hash of the frozen parameters that it does not hold, 32 hex digits; empty where it holds all
  std::string math_text;   // configuration that shapes the mathematics
  std::string config;      // the whole, as YAML
  std::string vocabulary;  // of text, for generation (data/text/vocabulary.h:vocabulary_text); empty for none
  // What the numbers of its data's samples mean (data/samples/schema.h:schema_text); empty where nobody knows. No part
  // of the digest.
  std::string data_schema;
  Shape input;          // of one sample, and
  int64_t classes = 0;  // what the model was built for
  int64_t tokens = 0;   // the vocabulary of texts that have a label each; else 0
  std::string isa;      // instruction-set level that computed it
  std::string writer;   // version of lockstep
  int64_t ranks = 1;    // that wrote it, and
  std::string layout;   // how, for people: "4 ranks, level parameters"
};

// Elements [offset, offset + count) of a region of a tensor.
struct StoredSlice {
  std::string name;
  Region region;
  int64_t offset = 0, count = 0;
  int64_t part = 0;               // number of the file that holds it
  Hash128 hash;                   // digest_of its values under name_of_region()
  int64_t first_block = 0;        // among the hashes of that file, from version 5 on; no part of its text
  const float* values = nullptr;  // where it lies, if its checkpoint is in memory; no part of its text
};

class HeldFiles;  // core/io/held_files.h
class WritePace;  // core/io/write_pace.h

struct Checkpoint {
  std::string dir;
  CheckpointInfo info;
  int64_t files = 1;
  bool has_blocks = true;                 // each block of its tensors has a hash: version 5
  std::vector<StoredSlice> slices;        // by name, box and offset; those of one name cover its tensor once
  std::shared_ptr<const HeldFiles> held;  // its files, where it was opened by hold_checkpoint
  std::shared_ptr<const void> memory;     // what its slices' values lie in, of one that is in memory, and not in files
};

// --- Writing: each file is written by one writer with write_part, or by several with PartWriter
// (core/state/checkpoint_part.h), then one calls commit. Throws ExitCode::kStorage; what was
// written until then stays in the pending directory, which clean_checkpoints removes.
std::string checkpoint_name(int64_t step);                                     // "step-00000030"
std::string pending_checkpoint(const std::string& checkpoints, int64_t step);  // path of the temporary directory
void begin_checkpoint(const std::string& pending);                             // makes it, empty; by one writer
// `pace`: how fast to write. Throws ExitCode::kNumeric naming the first tensor that holds a NaN or an infinity: such a
// state is of no use, and must not take a good one's place.
std::vector<StoredSlice> write_part(const std::string& pending, int part, int parts,
                                    const std::vector<StateEntry>& entries, WritePace* pace = nullptr);
// `files`: how many parts. Refuses (kInternal) slices that do not cover each tensor once.
void commit_checkpoint(const std::string& checkpoints, const CheckpointInfo& info,
                       const std::vector<StoredSlice>& slices, int files);
// The end of that, for a pending directory whose files are all there: gives it its name.
void put_in_place(const std::string& pending, const std::string& final);
// Text form of slices, to collect them at the committing writer.
std::string slices_text(const std::vector<StoredSlice>& slices);
std::vector<StoredSlice> parse_slices(std::string_view text, std::string_view where);

// --- Keeping house; failures are left for the next time.
void clean_checkpoints(const std::string& checkpoints);  // removes what a killed or failed save left
struct Retention {
  int64_t keep_last = 0;   // newest ones; 0: all
  int64_t keep_every = 0;  // and those of steps that are multiples of this, for ever; 0: none
  int64_t keep_best = 0;   // and this many of the best (ValidationRecord), of several equal ones the earliest
};
// Removes the others of those up to `step`, the newest that is known to be whole: later ones were passed over.
void retire_checkpoints(const std::string& checkpoints, int64_t step, const Retention& retention);
// Renames checkpoints newer than `step`, which a resumed run passed over, to damaged-NAME, so that they neither take
// the place of whole ones nor are lost; returns their new paths.
std::vector<std::string> set_aside_newer(const std::string& checkpoints, int64_t step);

// --- Reading. Errors: ExitCode::kMissingInput (no such directory), kBadData (torn, changed, of another model or
// version). What is read is compared with its hash, by blocks of 256 KiB. Before version 5 only a slice that is read
// whole is; of one that is read in part, HDF5's checksums of its chunks are (fletcher32: finds any flipped bit, not
// every change).
Checkpoint open_checkpoint(const std::string& dir);  // the manifest alone
// The same, and its files stay open and so readable where its run retires it meanwhile. Beyond 256 files, or a quarter
// of those that this process may open, they are not held: then reading a retired one throws kMissingInput.
Checkpoint hold_checkpoint(const std::string& dir);
// `dir` is a checkpoint, or a run directory: then its newest valid one; each passed over is warned of. One that its run
// retires while it is opened is no damage: the newest that is there then is taken, and named. Files are
// checked whole, and held.
Checkpoint open_newest(const std::string& dir, bool verify = true);     // false: manifests alone are looked at
std::vector<std::string> list_checkpoints(const std::string& run_dir);  // paths, newest first
// The best `count` of these (ValidationRecord), the best first, of equal ones the earlier: of those that were measured
// by what the newest of them was, as what a run chooses by may change when it is resumed. Reads manifests; passes over
// what cannot be read, with a warning where `warns`.
std::vector<std::string> best_checkpoints(const std::vector<std::string>& newest_first, size_t count,
                                          bool warns = false);
int64_t step_of_checkpoint(const std::string& path);                                 // of such a path
bool was_retired(const std::string& checkpoint);                                     // nothing is there any more
std::string retired_for_text(const std::string& retired, const std::string& taken);  // says so
// How often a reader goes on to a newer one where those that it found were retired meanwhile.
constexpr int kMostRetired = 100;
bool has_checkpoint(const std::string& run_dir);
bool has_checkpoint(const std::string& run_dir, int64_t step);
// Reads each entry's slice from whatever slices cover it, of whatever regions; a reader that owns nothing of a tensor
// passes an empty slice of it. The checkpoint's tensors of the same kinds ("parameters/", ...) must be those of the
// entries; else the first five differences are listed.
void load_entries(const Checkpoint& checkpoint, const std::vector<StateEntry>& entries);
// Elements [range) of a tensor of the checkpoint.
void read_elements(const Checkpoint& checkpoint, const std::string& name, IndexRange range, float* out);
// Reads everything and compares each slice with its hash; throws naming file and tensor.
void verify_checkpoint(const Checkpoint& checkpoint);
// A share of the same: together the readers 0 to `readers` - 1 read each element once, about as many each.
void verify_checkpoint(const Checkpoint& checkpoint, int reader, int readers);
// One value for the logical state, whatever its layout: tensors, step, cursor, updates, configuration that shapes the
// mathematics, data. Reads the tensors that are stored in boxes, as their slices' hashes say nothing of them.
Hash128 digest_of(const Checkpoint& checkpoint);
Hash128 digest_of(const Checkpoint& checkpoint, const std::string& tensor);  // its share of that
Hash128 digest_of(const CheckpointInfo& info);

}  // namespace lockstep
