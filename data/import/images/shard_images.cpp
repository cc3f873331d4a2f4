#include <algorithm>
#include <set>

#include "core/base/error.h"
#include "data/import/images/image_sources.h"
#include "data/import/shard_samples.h"
#include "data/samples/label_index.h"

namespace lockstep {
namespace {

const std::pair<std::string, TarMember>& shard_image(const ShardSample& sample) {
  const std::pair<std::string, TarMember>* image = nullptr;
  for (const auto& member : sample.members) {
    if (member.first != "jpg" && member.first != "jpeg" && member.first != "png") continue;
    require(!image, ExitCode::kBadData, "has two images, .", image ? image->first : "", " and .", member.first);
    image = &member;
  }
  require(image, ExitCode::kBadData, "has no image: no member .jpg, .jpeg or .png among ", sample.extensions());
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
      source.label = label_of_sample(sample, place, how.label);
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
