#include <algorithm>
#include <set>

#include "core/base/error.h"
#include "core/base/plain_file.h"
#include "core/io/json.h"
#include "data/import/image_sources.h"
#include "data/import/json_label.h"
#include "data/import/shard_samples.h"
#include "data/samples/label_index.h"
#include "data/text/valid_text.h"

namespace lockstep {
namespace {

constexpr int64_t kMostLabelBytes = 1 << 20;

std::string member_text(const ShardSample& sample, const TarPlace& place, const std::string& extension) {
  const TarMember& member = *sample.find(extension);
  require(member.size <= kMostLabelBytes, ExitCode::kBadData, "its .", extension, " has ", member.size,
          " bytes, more than ", kMostLabelBytes);
  std::string out(static_cast<size_t>(member.size), '\0');
  InputFile(place.path).read(member.begin, out.data(), member.size);
  return out;
}

// `field`: of the sample's .json; empty: the label is its .cls.
std::string shard_label(const ShardSample& sample, const TarPlace& place, const std::string& field) {
  const std::string extension = field.empty() ? "cls" : "json";
  require(sample.find(extension), ExitCode::kBadData, "has no label: a member .", extension, "; it has ",
          sample.extensions(),
          field.empty() && sample.find("json") ? "; --label FIELD takes the label from a field of .json" : "");
  const std::string text = member_text(sample, place, extension);
  if (!field.empty()) {
    const auto object = parse_json_object(text);
    require(object.has_value(), ExitCode::kBadData, "its .json is no JSON object");
    try {
      return label_field(*object, field);
    } catch (const Error& e) {
      throw e.with_message(str("its .json: ", e.what()));
    }
  }
  const size_t begin = text.find_first_not_of(" \t\r\n");
  require(begin != text.npos, ExitCode::kBadData, "its .cls is empty");
  const std::string label = text.substr(begin, text.find_last_not_of(" \t\r\n") + 1 - begin);
  require(label.find_first_of("\r\n") == label.npos && first_invalid(label, TextEncoding::kUtf8) < 0,
          ExitCode::kBadData, "its .cls is no label: one line of text in UTF-8");
  return label;
}

const std::pair<std::string, TarMember>& shard_image(const ShardSample& sample) {
  const std::pair<std::string, TarMember>* image = nullptr;
  for (const auto& member : sample.members) {
    if (member.first != "jpg" && member.first != "jpeg" && member.first != "png") continue;
    require(!image, ExitCode::kBadData, "has two images, .", image ? image->first : "", " and .", member.first);
    image = &member;
  }
  require(image, ExitCode::kBadData, "has no image: a member .jpg, .jpeg or .png; it has ", sample.extensions());
  return *image;
}

}  // namespace

std::vector<ImageSource> shard_images(const Shards& shards, const std::string& where, const ShardOptions& how,
                                      DatasetHeader& header) {
  std::vector<ImageSource> out;
  std::set<std::string> labels;
  std::shared_ptr<const std::string> archive;
  shards.each_sample([&](const ShardSample& sample, const TarPlace& place) {
    ImageSource source;
    source.name = sample.name();
    try {
      const auto& [extension, member] = shard_image(sample);
      source.label = shard_label(sample, place, how.label);
      source.name = str(sample.shard, ": ", member.name);
      source.begin = member.begin;
      source.bytes = member.size;
    } catch (const Error& e) {
      const std::string message = str(source.name, ": ", e.what());
      if (how.skip_bad == 0 || e.code() != ExitCode::kBadData) throw e.with_message(message);
      source.bad = message;
    }
    if (!archive || *archive != place.path) archive = std::make_shared<std::string>(place.path);
    source.archive = archive;
    if (source.bad.empty()) labels.insert(source.label);
    out.push_back(std::move(source));
  });
  require(!out.empty(), ExitCode::kBadData, where, ": holds no sample");
  const auto index = index_of_labels(labels, where, header.class_names);
  for (ImageSource& s : out)
    if (s.bad.empty()) s.class_index = index.at(s.label);
  header.classes = static_cast<int64_t>(header.class_names.size());
  return out;
}

}  // namespace lockstep
