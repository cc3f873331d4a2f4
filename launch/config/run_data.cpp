#include "launch/config/run_data.h"

#include "core/base/error.h"
#include "core/base/log.h"
#include "data/open_dataset.h"
#include "launch/config/settings.h"

namespace lockstep {

std::shared_ptr<const LikeData> recorded_data(const CheckpointInfo& info, const std::string& name) {
  auto out = std::make_shared<LikeData>();
  out->name = name;
  out->vocabulary = parse_vocabulary(info.vocabulary);
  if (!info.data_schema.empty()) out->schema = parse_schema(info.data_schema, name);
  else if (!out->vocabulary || info.tokens > 0) return nullptr;  // else text without labels: its vocabulary is all
  return out;
}

std::shared_ptr<const LikeData> data_of_run(const App& app, const Checkpoint& c, std::string& why) {
  if (auto recorded = recorded_data(c.info, c.dir)) return recorded;
  try {
    const auto settings = settings_of_checkpoint(app, c);
    const Datasets data = settings->source->open(settings->data, static_cast<uint64_t>(settings->seed));
    if (!data.like_this) return nullptr;
    if (to_hex(data.train->identity()) == c.info.dataset) {
      auto out = std::make_shared<LikeData>(*data.like_this);
      log_warning(
          cat(c.dir, ": was written by a version that did not record what its data means; taken from ", out->name,
              ", which is the data that it was trained on, with the names of classes and columns that it has now"));
      out->name = c.dir;
      return out;
    }
    why = cat(data.like_this->name, " of its configuration has changed since");
  } catch (const Error& e) {
    why = e.what();
  }
  return nullptr;
}

}  // namespace lockstep
