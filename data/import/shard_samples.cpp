#include "data/import/shard_samples.h"

#include <algorithm>
#include <cctype>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/base/plain_file.h"
#include "data/import/input_stream.h"

namespace lockstep {

const TarMember* ShardSample::find(const std::string& extension) const {
  for (const auto& [name, member] : members)
    if (name == extension) return &member;
  return nullptr;
}

std::string ShardSample::extensions() const {
  std::string out;
  for (const auto& [name, member] : members) out += str(out.empty() ? "." : ", .", name);
  return out;
}

std::optional<std::pair<std::string, std::string>> sample_and_extension(const std::string& member) {
  const size_t slash = member.rfind('/');
  const size_t file = slash == member.npos ? 0 : slash + 1;
  const size_t point = member.find('.', file);
  if (point == member.npos || point == file || point + 1 == member.size()) return std::nullopt;
  if (member.starts_with("__") && member.find("__/", 2) != member.npos) return std::nullopt;
  std::string extension = member.substr(point + 1);
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return std::pair(member.substr(0, point), extension);
}

Shards::Shards(const std::vector<std::string>& paths, const std::string& beside) {
  for (const std::string& path : paths) {
    if (path == "-" || InputStream(path).compressed()) {
      unpack(path, beside);
    } else {
      places_.push_back({path, path, 0, InputFile(path).size});
    }
  }
  if (unpacked_) unpacked_->flush();
}

void Shards::unpack(const std::string& path, const std::string& beside) {
  if (!unpacked_) unpacked_ = Spool::unnamed(beside);
  InputStream input(path);
  const int64_t begin = unpacked_->size();
  std::vector<char> block(1 << 20);
  for (size_t got; (got = input.read(block.data(), block.size())) > 0;) unpacked_->append(block.data(), got);
  places_.push_back({input.name(), str("/proc/self/fd/", unpacked_->descriptor()), begin, unpacked_->size() - begin});
}

void Shards::each_sample(const std::function<void(const ShardSample&, const TarPlace&)>& found) const {
  int64_t others = 0;
  std::string other;
  for (const TarPlace& place : places_) {
    ShardSample sample{place.name, "", {}};
    const auto end_sample = [&] {
      if (!sample.members.empty()) found(sample, place);
      sample.members.clear();
    };
    list_tar(place, [&](const TarMember& member) {
      auto name = sample_and_extension(member.name);
      if (!name) {
        if (others++ == 0) other = str(place.name, ": ", member.name);
        return;
      }
      if (name->first != sample.key) end_sample();
      sample.key = std::move(name->first);
      require(!sample.find(name->second), ExitCode::kBadData, sample.name(), " has two members .", name->second);
      sample.members.emplace_back(std::move(name->second), member);
    });
    end_sample();
  }
  if (others > 0)
    log_warning(str(others, " members belong to no sample by their names and were left out, such as ", other));
}

}  // namespace lockstep
