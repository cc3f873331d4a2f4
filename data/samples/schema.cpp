#include "data/samples/schema.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/io/json.h"
#include "data/samples/channel_sums.h"
#include "data/samples/label_index.h"

namespace lockstep {
namespace {

const std::vector<std::pair<DataKind, std::string>> kKinds = {
    {DataKind::kTokens, "tokens"}, {DataKind::kImages, "images"}, {DataKind::kTable, "table"}};
const std::vector<std::pair<TargetKind, std::string>> kTargetKinds = {{TargetKind::kLabels, "labels"},
                                                                      {TargetKind::kMasks, "masks"},
                                                                      {TargetKind::kNumbers, "numbers"},
                                                                      {TargetKind::kBoxes, "boxes"}};

template <class E>
const std::string& word_of(E value, const std::vector<std::pair<E, std::string>>& words) {
  return std::find_if(words.begin(), words.end(), [&](auto& w) { return w.first == value; })->second;
}

template <class E>
E value_of(const JsonObject& o, const char* key, const std::vector<std::pair<E, std::string>>& words,
           std::string_view where) {
  const std::string& word = json_text(o, key, where);
  const auto at = std::find_if(words.begin(), words.end(), [&](auto& w) { return w.second == word; });
  require(at != words.end(), ExitCode::kBadData, where, ": \"", key, "\" is '", word, "'");
  return at->first;
}

template <class T>
std::vector<T> list_of(const JsonObject& o, const char* key, std::string_view where) {
  const auto values = parse_json_array(json_text(o, key, where));
  require(values.has_value(), ExitCode::kBadData, where, ": \"", key, "\" is no list");
  std::vector<T> out;
  for (const JsonValue& v : *values) {
    const T* value = std::get_if<T>(&v);
    const auto* integer = std::get_if<int64_t>(&v);  // a number without a fraction
    require(value || (std::is_same_v<T, double> && integer), ExitCode::kBadData, where, ": \"", key,
            "\" holds a value of another kind");
    if constexpr (std::is_same_v<T, double>) out.push_back(value ? *value : static_cast<double>(*integer));
    else out.push_back(*value);
  }
  return out;
}

template <class T>
JsonText list_text(const std::vector<T>& values) {
  JsonText text = json_array(std::vector<JsonValue>(values.begin(), values.end()));
  std::erase(text.text, '\n');
  return text;
}

std::string class_name(const std::vector<std::string>& names, int64_t label) {
  return names.empty() ? std::to_string(label) : names[static_cast<size_t>(label)];
}

// The first few of many.
std::string listed(const std::vector<std::string>& names) {
  std::string out;
  for (size_t i = 0; i < names.size() && i < 10; ++i) out += cat(i ? ", " : "", names[i]);
  return names.size() > 10 ? out + ", ..." : out;
}

// Whether labels have no names but their numbers.
template <class Described>
bool are_numbers(const Described& of) {
  for (size_t i = 0; i < of.class_names.size(); ++i)
    if (of.class_names[i] != std::to_string(i)) return false;
  return true;
}

class Fitting {
 public:
  Fitting(const std::string& where, DatasetHeader& header, std::vector<int32_t>& labels, const LikeData& like)
      : where_(where), h_(header), labels_(labels), like_(like), of_(like.schema) {}

  // `file`: whose rows stay as they are stored; null for an import.
  void run(DatasetFile* file) {
    if (h_.kind != of_.kind)
      refuse(cat("it holds ", word_of(h_.kind, kKinds), ", not ", word_of(of_.kind, kKinds)), "");
    if (file && h_.kind == DataKind::kTokens) fit_characters(file->token_of);
    if (file && h_.kind == DataKind::kTable) fit_columns(file->feature_of);
    if (!of_.mean.empty() && h_.kind != DataKind::kTokens) fit_statistics();
    if (!like_.new_classes) fit_targets();
  }

 private:
  [[noreturn]] void refuse(const std::string& why, const std::string& remedy) const {
    throw Error(ExitCode::kBadData,
                cat(where_, ": does not fit the data of ", like_.name, ": ", why, remedy.empty() ? "" : "; ", remedy));
  }

  // Ids of characters become those that the same characters have there.
  void fit_characters(std::vector<int32_t>& token_of) {
    const Vocabulary *ours = h_.vocabulary.get(), *theirs = like_.vocabulary.get();
    if (!ours || !theirs || ours->level() != TextLevel::kChar || theirs->level() != TextLevel::kChar) return;
    if (ours->code_points() == theirs->code_points()) return;
    for (uint32_t character : ours->code_points()) {
      token_of.push_back(theirs->token_of(character));
      if (token_of.back() < 0)
        refuse(cat("the character ", character_text(character), " is not in its vocabulary"), "");
    }
    h_.vocabulary = std::make_unique<Vocabulary>(*theirs);
    h_.vocabulary_size = theirs->size();
  }

  void fit_statistics() {
    if (of_.mean.size() != h_.mean.size())
      refuse(h_.kind == DataKind::kImages ? cat("images have ", h_.mean.size(), " channels, not ", of_.mean.size())
                                          : cat("rows have ", h_.mean.size(), " features, not ", of_.mean.size()),
             "");
    for (size_t c = 0; h_.kind == DataKind::kTable && c < h_.mean.size(); ++c)
      if (FeatureMoments::loses_bits(std::abs(h_.centre(c)), of_.stddev[c]))
        log_warning(cat(where_, ": feature ", c, " has a mean of ", h_.mean[c],
                        ", of which 32 bits may lose more than a "
                        "thousandth of the deviation that ",
                        like_.name, " has, ", of_.stddev[c], "; import it with --like ", like_.name));
    h_.mean = of_.mean, h_.stddev = of_.stddev;
  }

  void fit_columns(std::vector<int64_t>& feature_of) {
    if (h_.columns == of_.columns) return;
    if (h_.columns.empty() || of_.columns.empty()) {
      log_warning(cat(h_.columns.empty() ? where_ : like_.name, ": its features have no names; those of ", where_,
                      " are taken for those of ", like_.name, " in their order"));
      return;
    }
    const std::vector<TableColumn> here = parse_columns(h_.columns, where_),
                                   there = parse_columns(of_.columns, like_.name);
    if (here == there) return;
    struct Stored {
      TableColumn column;
      int64_t feature;
    };
    std::map<std::string, Stored> stored;
    int64_t features = 0;
    for (const TableColumn& c : here) {
      stored[c.name] = {c, features};
      features += c.features();
    }
    require(features == static_cast<int64_t>(h_.mean.size()), ExitCode::kBadData, where_,
            ": its 'columns' do not describe its features");
    std::vector<double> mean, stddev, offset;  // the file's own
    const auto take = [&](int64_t feature) {
      feature_of.push_back(feature);
      mean.push_back(feature < 0 ? 0 : h_.mean[static_cast<size_t>(feature)]);
      stddev.push_back(feature < 0 ? 1 : h_.stddev[static_cast<size_t>(feature)]);
      offset.push_back(feature < 0 ? 0 : h_.offset_of(static_cast<size_t>(feature)));
    };
    const std::string again = cat("import the table with --like ", like_.name);
    for (const TableColumn& theirs : there) {
      if (theirs.type == TableColumn::Type::kTarget) continue;
      const auto at = stored.find(theirs.name);
      if (at == stored.end() || at->second.column.type == TableColumn::Type::kTarget)
        refuse(cat("it has no column '", theirs.name, "'"), "");
      const TableColumn& ours = at->second.column;
      if (ours.type != theirs.type)
        refuse(cat("column '", theirs.name, "' holds ",
                   ours.type == TableColumn::Type::kNumber ? "numbers, not categories" : "categories, not numbers"),
               again);
      if (ours.type == TableColumn::Type::kNumber) {
        if (ours.missing > 0 && !of_.mean.empty() &&
            h_.mean[static_cast<size_t>(at->second.feature)] != of_.mean[mean.size()])
          log_warning(cat(where_, ": column '", ours.name, "': ", ours.missing,
                          " missing values were filled with this file's own mean; with ", like_.name, "'s, ", again));
        take(at->second.feature);
        continue;
      }
      for (const std::string& value : ours.values)
        if (std::find(theirs.values.begin(), theirs.values.end(), value) == theirs.values.end())
          refuse(value.empty() ? cat("column '", ours.name, "' has missing values, which are no category there")
                               : cat("column '", ours.name, "' holds '", value, "', which is none of its ",
                                     theirs.values.size(), " categories: ", listed(theirs.values)),
                 "");
      for (const std::string& value : theirs.values) {
        const auto place = std::find(ours.values.begin(), ours.values.end(), value);
        take(place == ours.values.end() ? -1 : at->second.feature + (place - ours.values.begin()));
      }
    }
    h_.mean = std::move(mean), h_.stddev = std::move(stddev), h_.offset = std::move(offset);
    h_.columns = of_.columns;
  }

  void fit_targets() {
    // Text without labels, or a folder that does not say.
    if (of_.target == TargetKind::kLabels && of_.classes == 0) return;
    if (h_.target != of_.target)
      refuse(cat("its targets are ", word_of(h_.target, kTargetKinds), ", not ", word_of(of_.target, kTargetKinds)),
             like_.remedy);
    if (h_.target == TargetKind::kNumbers) {
      h_.target_mean = of_.target_mean, h_.target_std = of_.target_std;
      return;
    }
    if (h_.classes == 0) return;  // text without labels
    if (h_.target == TargetKind::kLabels) {
      fit_labels();
    } else if (h_.class_names != of_.class_names && !h_.class_names.empty() && !of_.class_names.empty()) {
      refuse(cat("its ", word_of(h_.target, kTargetKinds), " are of the classes ", listed(h_.class_names), ", not ",
                 listed(of_.class_names)),
             like_.remedy);
    } else if (h_.classes > of_.classes) {
      refuse(cat("its ", word_of(h_.target, kTargetKinds), " are of ", h_.classes, " classes, not ", of_.classes),
             like_.remedy);
    }
    h_.classes = of_.classes;
    h_.class_names = of_.class_names;
  }

  void fit_labels() {
    const bool same = h_.class_names == of_.class_names, unnamed = !same && are_numbers(h_) && !are_numbers(of_);
    if (unnamed && h_.classes <= of_.classes)
      log_warning(cat(where_, ": its labels are numbers without names; they are taken for those of ", like_.name, ": ",
                      listed(of_.class_names)));
    if ((same || unnamed) && h_.classes <= of_.classes) return;
    const std::vector<int32_t> to = labels_in(h_, of_);
    for (int32_t& label : labels_) {
      const int32_t there = to[static_cast<size_t>(label)];
      if (there < 0) refuse(unknown_class(class_name(h_.class_names, label), of_), like_.remedy);
      label = there;
    }
  }

  const std::string& where_;
  DatasetHeader& h_;
  std::vector<int32_t>& labels_;
  const LikeData& like_;
  const DataSchema& of_;
};

}  // namespace

int64_t TableColumn::features() const {
  return type == Type::kTarget ? 0 : type == Type::kNumber ? 1 : static_cast<int64_t>(values.size());
}

std::vector<TableColumn> parse_columns(const std::string& columns, std::string_view where) {
  std::vector<TableColumn> out;
  const auto damaged = [&](bool good) {
    require(good, ExitCode::kBadData, where, ": its 'columns' do not describe its features");
  };
  const auto list = parse_json_array(columns);
  damaged(list.has_value());
  for (const JsonValue& value : *list) {
    const auto* text = std::get_if<JsonText>(&value);
    const auto object = text ? parse_json_object(text->text) : std::nullopt;
    damaged(object.has_value());
    const std::string type = text_of(*object, "type");
    damaged(type == "number" || type == "category" || type == "target");
    TableColumn& c = out.emplace_back();
    c.name = text_of(*object, "name");
    c.missing = integer_of(*object, "missing");
    c.type = type == "number"     ? TableColumn::Type::kNumber
             : type == "category" ? TableColumn::Type::kCategory
                                  : TableColumn::Type::kTarget;
    if (type == "category") c.values = list_of<std::string>(*object, "values", where);
    if (find_member(*object, kMissingTexts)) c.missing_texts = list_of<std::string>(*object, kMissingTexts, where);
  }
  return out;
}

DataSchema schema_of(const DatasetHeader& h) {
  DataSchema out{h.kind, h.target, h.classes, h.class_names, h.mean, h.stddev, h.columns, h.target_mean, h.target_std};
  return out;
}

std::shared_ptr<const LikeData> like_file(const std::string& path) {
  const auto file = open_dataset_file(path, 16 << 20);
  return std::make_shared<LikeData>(LikeData{path, schema_of(file->header), std::move(file->header.vocabulary)});
}

std::string schema_text(const DataSchema& s) {
  JsonObject o{{"kind", word_of(s.kind, kKinds)},
               {"target", word_of(s.target, kTargetKinds)},
               {"classes", s.classes},
               {"class_names", list_text(s.class_names)},
               {"mean", list_text(s.mean)},
               {"std", list_text(s.stddev)},
               {"target_mean", s.target_mean},
               {"target_std", s.target_std}};
  if (!s.columns.empty()) o.emplace_back("columns", JsonText{s.columns});
  return json_line(o);
}

DataSchema parse_schema(const std::string& text, std::string_view where) {
  const auto o = parse_json_object(text);
  require(o.has_value(), ExitCode::kBadData, where, ": what it says of its data is no JSON object");
  DataSchema s;
  s.kind = value_of(*o, "kind", kKinds, where);
  s.target = value_of(*o, "target", kTargetKinds, where);
  s.classes = json_int(*o, "classes", where);
  s.class_names = list_of<std::string>(*o, "class_names", where);
  s.mean = list_of<double>(*o, "mean", where);
  s.stddev = list_of<double>(*o, "std", where);
  s.target_mean = json_number(*o, "target_mean", where);
  s.target_std = json_number(*o, "target_std", where);
  s.columns = text_of(*o, "columns");
  const bool fits = s.classes >= 0 && s.classes <= INT32_MAX &&
                    (s.class_names.empty() || static_cast<int64_t>(s.class_names.size()) == s.classes) &&
                    s.mean.size() == s.stddev.size() && s.target_std > 0 &&
                    std::all_of(s.stddev.begin(), s.stddev.end(), [](double d) { return d > 0; });
  require(fits, ExitCode::kBadData, where, ": what it says of its data does not fit together");
  return s;
}

std::string described(const DataSchema& s) {
  std::string out = word_of(s.kind, kKinds);
  if (s.classes > 0) out += cat("; ", s.classes, " classes", s.class_names.empty() ? "" : ": ", listed(s.class_names));
  if (s.kind == DataKind::kImages)
    for (size_t c = 0; c < s.mean.size(); ++c)
      out += cat(c ? ", " : "; mean and std of channels ", s.mean[c], " and ", s.stddev[c]);
  if (s.target == TargetKind::kNumbers) out += cat("; targets of mean ", s.target_mean, " and std ", s.target_std);
  return out;
}

std::vector<int32_t> labels_in(const DatasetHeader& h, const DataSchema& like) {
  std::map<std::string, int32_t> there;
  for (size_t i = 0; i < like.class_names.size(); ++i) there.emplace(like.class_names[i], static_cast<int32_t>(i));
  std::vector<int32_t> out;
  for (int64_t i = 0; i < h.classes; ++i) {
    const std::string name = class_name(h.class_names, i);
    if (const auto at = there.find(name); at != there.end()) out.push_back(at->second);
    else if (const int64_t number = number_of_label(name); there.empty() && number < like.classes)
      out.push_back(static_cast<int32_t>(number));
    else out.push_back(-1);
  }
  return out;
}

std::string unknown_class(const std::string& name, const DataSchema& like) {
  return cat("class '", name, "' is none of its ", like.classes, " classes",
             like.class_names.empty() ? cat(", which are numbers from 0") : cat(": ", listed(like.class_names)));
}

void fit_to(DatasetFile& file, const LikeData& like) { Fitting(file.path, file.header, file.labels, like).run(&file); }

void fit_to(DatasetHeader& header, std::vector<int32_t>& labels, const LikeData& like, const std::string& where) {
  Fitting(where, header, labels, like).run(nullptr);
}

}  // namespace lockstep
