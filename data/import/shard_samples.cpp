#include "data/import/shard_samples.h"

#include <algorithm>
#include <cctype>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/base/plain_file.h"
#include "core/io/json_record.h"
#include "data/import/input_stream.h"
#include "data/import/json_label.h"
#include "data/import/record_reader.h"
#include "data/samples/label_index.h"
#include "data/text/valid_text.h"

namespace lockstep {
namespace {

constexpr int64_t kMostLabelBytes = 1 << 20;
constexpr size_t kMostMembers = 1000;  // of a sample

std::string member_text(const ShardSample& sample, const TarPlace& place, const std::string& extension) {
  const TarMember& member = *sample.find(extension);
  require(member.size <= kMostLabelBytes, ExitCode::kBadData, "its .", extension, " has ", member.size,
          " bytes, more than ", kMostLabelBytes);
  std::string out(static_cast<size_t>(member.size), '\0');
  InputFile(place.path).read(member.begin, out.data(), member.size);
  return out;
}

}  // namespace

const TarMember* ShardSample::find(const std::string& extension) const {
  for (const auto& [name, member] : members)
    if (name == extension) return &member;
  return nullptr;
}

std::string ShardSample::extensions() const {
  constexpr size_t kShown = 10;
  std::string out;
  for (size_t i = 0; i < members.size() && i < kShown; ++i) out += str(i == 0 ? "." : ", .", members[i].first);
  return members.size() > kShown ? str(out, " and ", members.size() - kShown, " more") : out;
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

std::string label_of_sample(const ShardSample& sample, const TarPlace& place, const std::string& field) {
  const std::string extension = field.empty() ? "cls" : "json";
  require(sample.find(extension), ExitCode::kBadData, "has no label: no member .", extension, " among ",
          sample.extensions(),
          field.empty() && sample.find("json") ? "; --label FIELD takes the label from a field of .json" : "");
  const std::string text = member_text(sample, place, extension);
  if (!field.empty()) {
    const auto object = parse_json_record(text);
    require(object.has_value(), ExitCode::kBadData, "its .json is no JSON object", why_not_json(text));
    try {
      return label_field(*object, field);
    } catch (const Error& e) {
      throw e.with_message(str("its .json: ", e.what()));
    }
  }
  const bool valid = first_invalid(text, TextEncoding::kUtf8) < 0;
  const std::string label(valid ? label_text(text) : "");
  require(!valid || !label.empty(), ExitCode::kBadData, "its .cls is empty");
  require(valid && label.find_first_of("\r\n") == label.npos, ExitCode::kBadData,
          "its .cls is no label: one line of text in UTF-8");
  return label;
}

std::string name_of_shards(const std::vector<std::string>& paths) {
  return paths.size() == 1 ? paths[0] : str(paths.at(0), " and ", paths.size() - 1, " more");
}

Shards::Shards(const std::vector<std::string>& paths, const std::string& beside) {
  require(std::count(paths.begin(), paths.end(), "-") <= 1, ExitCode::kUsage,
          "standard input (-) can be read once: name it once");
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
      require(sample.members.size() < kMostMembers, ExitCode::kBadData, sample.name(), " has more than ", kMostMembers,
              " members: a sample's name ends before the first point of its members'");
      require(!sample.find(name->second), ExitCode::kBadData, sample.name(), " has two members .", name->second);
      sample.members.emplace_back(std::move(name->second), member);
    });
    end_sample();
  }
  if (others > 0)
    log_warning(str(others, " members belong to no sample by their names and were left out, such as ", other));
}

}  // namespace lockstep
