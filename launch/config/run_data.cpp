#include "launch/config/run_data.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/interop/hf_config.h"
#include "core/interop/hf_family.h"
#include "core/io/json.h"
#include "data/streams/open_dataset.h"
#include "data/text/tokenizer/special_tokens.h"
#include "data/text/tokenizer/tokenizer_file.h"
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
          str(c.dir, ": was written by a version that did not record what its data means; taken from ", out->name,
              ", which is the data that it was trained on, with the names of classes and columns that it has now"));
      out->name = c.dir;
      return out;
    }
    why = str(data.like_this->name, " of its configuration has changed since");
  } catch (const Error& e) {
    why = e.what();
  }
  return nullptr;
}

namespace {

// A list of numbers, empty where it is absent.
std::vector<double> numbers_of(const HfConfig& config, const char* key) {
  std::vector<double> out;
  for (const JsonValue& v : parse_json_array(config.json_of(key).value_or("[]")).value_or(std::vector<JsonValue>())) {
    if (const auto* number = std::get_if<double>(&v)) out.push_back(*number);
    else if (const auto* integer = std::get_if<int64_t>(&v)) out.push_back(static_cast<double>(*integer));
  }
  return out;
}

}  // namespace

std::shared_ptr<const LikeData> known_data_of_run(const App& app, const Checkpoint& c) {
  std::string why;
  auto out = data_of_run(app, c, why);
  require(out != nullptr, ExitCode::kBadData, c.dir, ": does not say what its data means",
          why.empty() ? "" : str(" (", why, ")"), "; train it from there (--resume) for a step");
  return out;
}

std::shared_ptr<const LikeData> data_of_folder(const HfModel& model) {
  if (!is_hf_folder(model.folder) || !model.table || model.table->use == HfUse::kText) return nullptr;
  const bool images = model.table->use == HfUse::kImages;
  LikeData out{model.folder, {}, nullptr};
  DataSchema& s = out.schema;
  s.kind = images ? DataKind::kImages : DataKind::kTokens;
  s.classes = model.task.classes;
  if (const auto names = HfConfig::load(model.folder + "/config.json").object("id2label")) {
    bool given = false;  // LABEL_0 stands for no name
    for (int64_t i = 0; i < names->size(); ++i) {
      s.class_names.push_back(names->text(std::to_string(i), ""));
      given |= s.class_names.back() != str("LABEL_", i);
    }
    if (!given || names->size() != s.classes) s.class_names.clear(), s.classes = 0;
  } else {
    s.classes = 0;
  }
  const std::string path = model.folder + "/preprocessor_config.json";
  if (images && std::filesystem::exists(path)) {
    const HfConfig p = HfConfig::load(path);
    s.mean = numbers_of(p, "image_mean"), s.stddev = numbers_of(p, "image_std");
    const auto channels = static_cast<size_t>(model.task.input[2]);
    if (!p.truth("do_normalize", true)) s.mean.assign(channels, 0.0), s.stddev.assign(channels, 1.0);
    const bool usable = s.mean.size() == channels && s.stddev.size() == channels &&
                        std::all_of(s.stddev.begin(), s.stddev.end(), [](double d) { return d > 0; });
    if (!usable) {
      log_warning(str(path,
                      ": does not say by which mean and deviation images are normalised; those of the data are "
                      "taken, or set data.image.mean and data.image.std"));
      s.mean.clear(), s.stddev.clear();
    }
    // Of values from 0 to 1, as ours are.
    const double factor = 255 * (p.truth("do_rescale", true) ? p.number("rescale_factor", 1.0 / 255) : 1.0);
    if (std::abs(factor - 1) > 1e-9)
      for (auto* values : {&s.mean, &s.stddev})
        for (double& value : *values) value /= factor;
  }
  return std::make_shared<LikeData>(std::move(out));
}

namespace {

std::string init_from_in(const CheckpointInfo& info, const std::string& name) {
  const ConfigTree tree = ConfigTree::parse(info.config, name + ": its configuration");
  const ConfigNode* init = tree.root().find("init");
  const ConfigNode* from = init ? init->find("from") : nullptr;
  return from ? from->scalar : "";
}

}  // namespace

Surround special_tokens_of_run(const std::string& from, const Vocabulary& vocabulary, std::string& why) {
  constexpr int kDeepest = 100;  // runs that began with runs
  std::string place = from;
  try {
    for (int i = 0; i < kDeepest && !place.empty() && (is_hf_folder(place) || !is_pretrained(place)); ++i) {
      if (!is_hf_folder(place)) {
        place = init_from_in(open_newest(place, false).info, place);
        continue;
      }
      if (has_tokenizer(place) && tokenizer_difference(place, vocabulary).empty())
        return special_tokens_around(place, vocabulary);
      break;
    }
  } catch (const Error& e) {
    why = str("init.from: ", place, ": does not say which special tokens its tokenizer puts around a text (", e.what(),
              "); tasks are scored without any. Where the model that the run began with has moved, name it by "
              "init.from=PATH");
  }
  return vocabulary.around() ? *vocabulary.around() : Surround{};
}

std::string tokenizer_difference(const std::string& folder, const Vocabulary& vocabulary) {
  if (!is_hf_folder(folder) || !has_tokenizer(folder)) return "";
  try {
    return first_difference(vocabulary_of_tokenizer(folder), vocabulary);
  } catch (const Error& e) {
    return e.what();  // of a kind that is not supported, which the data's cannot be
  }
}

}  // namespace lockstep
