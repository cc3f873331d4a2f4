// PartialOutput: the output of an import while it is made, in a folder of its own beside it, OUTPUT.partial: what was
// written so far, and a journal that says how far that is whole and with which hashes, so that the same command goes on
// with it after a kill. Owns the folder, which is locked meanwhile and carries a mark: a file named as no other file
// is. A folder without it, or with anything in it that no import makes, is never touched. Used by one thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/base/plain_file.h"
#include "core/io/hdf5/hdf5_file.h"
#include "core/io/json.h"
#include "core/io/pending_file.h"
#include "data/store/progress.h"
#include "data/store/spool.h"

namespace lockstep {

class PartialOutput {
 public:
  // `made_of`: lines that say of which inputs and options the output is a function; where an earlier import was cut
  // short whose lines are the same and whose files have the journal's hashes, its state is found, otherwise the folder
  // is emptied, and a line of the log says which. Empty: nothing is ever found. Throws kOutputLocked where the output
  // exists (unless `replace`), where another process makes it, where the folder is not an import's, or where it cannot
  // be made.
  PartialOutput(const std::string& output, bool replace, std::string made_of = {});
  PartialOutput(const PartialOutput&) = delete;
  PartialOutput& operator=(const PartialOutput&) = delete;
  // Removes the folder, unless a state was saved in it, which a line of the log says.
  ~PartialOutput();

  // A spool by its name; of a state that was found with the bytes that it had then.
  Spool& spool(const std::string& name);
  // What the last save() of the earlier import was given; null where nothing was found.
  const JsonObject* found() const { return is_found_ ? &state_ : nullptr; }
  // An integer of the state that was found, or of a part of it. Refuses what is not within [least, most].
  int64_t found_integer(const JsonObject& state, const std::string& key, int64_t least, int64_t most);
  // For a state that does not fit what it is a state of: throws ExitCode::kBadData naming the journal; the folder
  // stays.
  [[noreturn]] void refuse_found(const std::string& why);
  // Saves a state that belongs to all bytes appended so far, once these are on the disk.
  void save(const JsonObject& state);

  const std::string& dataset() const;    // the dataset file is to be written under this name
  void commit() { commit_all({this}); }  // it gets the output's name
  static void commit_all(const std::vector<PartialOutput*>& outputs);  // all or none (PendingFile)

 private:
  std::string in_folder(const std::string& name) const { return folder_ + "/" + name; }
  void take_folder();
  void require_ours() const;
  bool read_journal();
  void empty();

  std::string output_, folder_, made_of_;
  Descriptor lock_;
  bool is_found_ = false, saved_ = false, refused_ = false;
  JsonObject state_;
  std::map<std::string, std::unique_ptr<Spool>> spools_;
  std::unique_ptr<PendingFile> pending_;
};

// Copies the rows that a spool holds into a new dataset of the file. Returns the chunk hashes. Progress is in bytes.
std::vector<uint64_t> copy_rows(Hdf5File& file, const std::string& name, StoredType type, const Shape& shape,
                                int64_t chunk_rows, Spool& spool, const ProgressCallback& progress = {});

// A line for made_of: the name, size and time of a file. Throws kMissingInput.
std::string described_input(const std::string& path);

}  // namespace lockstep
