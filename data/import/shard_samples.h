// The samples of WebDataset's shards: tar archives in which the members with one name before the first point of the
// file's name, which follow each other, are a sample. Plain values and functions; Shards owns what it unpacked.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "data/import/tar_members.h"
#include "data/store/spool.h"

namespace lockstep {

struct ShardSample {
  std::string shard, key;                                  // "train-0.tar", "n01440764/0001"
  std::vector<std::pair<std::string, TarMember>> members;  // by the rest of the name: "jpg", "cls"; lower case

  const TarMember* find(const std::string& extension) const;  // null where it has none
  std::string name() const { return shard + ": sample '" + key + "'"; }
  std::string extensions() const;  // ".cls, .jpg": for messages
};

class Shards {
 public:
  // What is compressed, and standard input ("-"), is unpacked into an unnamed file beside `beside`. Throws
  // ExitCode::kMissingInput, kBadData, kStorage.
  Shards(const std::vector<std::string>& paths, const std::string& beside);
  // In the order of the shards and their members. `found` is given the file that holds the members' bytes. A warning
  // counts members that belong to no sample by their names. Throws as list_tar() does, and kBadData where two members
  // of a sample have one name.
  void each_sample(const std::function<void(const ShardSample&, const TarPlace&)>& found) const;

 private:
  void unpack(const std::string& path, const std::string& beside);

  std::vector<TarPlace> places_;
  std::optional<Spool> unpacked_;
};

// The label of a sample: `field` of its .json, or where that is empty its .cls. Throws ExitCode::kBadData.
std::string label_of_sample(const ShardSample& sample, const TarPlace& place, const std::string& field);
std::string name_of_shards(const std::vector<std::string>& paths);  // for messages

// "a/b.c.JPG": {"a/b", "c.jpg"}. Nothing where the name has no point behind its first character, or is a member that
// programs keep for themselves ("__x__/", macOS's "._x").
std::optional<std::pair<std::string, std::string>> sample_and_extension(const std::string& member);

}  // namespace lockstep
