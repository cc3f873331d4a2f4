#include "data/samples/schema.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/io/json.h"
#include "data/samples/channel_sums.h"
#include "data/samples/dataset_file.h"
#include "data/samples/label_index.h"
#include "data/samples/sample_kind.h"
#include "data/samples/sample_target.h"

namespace lockstep {
namespace {

// The number of what a word names, of `count`.
size_t numbered(size_t number, size_t count, const JsonObject& o, const char* key, std::string_view where) {
  require(number < count, ExitCode::kBadData, where, ": \"", key, "\" is '", json_text(o, key, where), "'");
  return number;
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
  for (size_t i = 0; i < names.size() && i < 10; ++i) out += str(i ? ", " : "", names[i]);
  return names.size() > 10 ? out + ", ..." : out;
}

// Whether labels have no names but their numbers.
template <class Described>
bool are_numbers(const Described& of) {
  for (size_t i = 0; i < of.class_names.size(); ++i)
    if (of.class_names[i] != std::to_string(i)) return false;
  return true;
}

}  // namespace

std::string SchemaFit::first_few(const std::vector<std::string>& names) { return listed(names); }

void SchemaFit::refuse(const std::string& why, const std::string& remedy) const {
  throw Error(ExitCode::kBadData,
              str(where, ": does not fit the data of ", like.name, ": ", why, remedy.empty() ? "" : "; ", remedy));
}

void SchemaFit::run(DatasetFile* file) {
  const SampleKind &kind = sample_kind(header.kind), &there = sample_kind(like.schema.kind);
  if (&kind != &there) refuse(str("it holds ", kind.words().name, ", not ", there.words().name), "");
  kind.fit(*this, file);
  if (!like.new_classes) fit_targets();
}

void SchemaFit::fit_statistics() {
  const DataSchema& of = like.schema;
  if (of.mean.empty()) return;
  const SampleKind& kind = sample_kind(header.kind);
  if (of.mean.size() != header.mean.size())
    refuse(str(kind.words().samples, " have ", header.mean.size(), " ", kind.words().value, "s, not ", of.mean.size()),
           "");
  for (size_t c = 0; !kind.has_pixels() && c < header.mean.size(); ++c)
    if (FeatureMoments::loses_bits(std::abs(header.centre(c)), of.stddev[c]))
      log_warning(str(where, ": feature ", c, " has a mean of ", header.mean[c],
                      ", of which 32 bits may lose more than a "
                      "thousandth of the deviation that ",
                      like.name, " has, ", of.stddev[c], "; import it with --like ", like.name));
  header.mean = of.mean, header.stddev = of.stddev;
}

void SchemaFit::fit_targets() {
  const DataSchema& of = like.schema;
  // Text without labels, or a folder that does not say.
  if (of.target == TargetKind::kLabels && of.classes == 0) return;
  const SampleTarget &target = sample_target(header.target), &there = sample_target(of.target);
  if (&target != &there)
    refuse(str("its targets are ", target.words().name, ", not ", there.words().name), like.remedy);
  if (target.has_classes() && header.classes == 0) return;  // text without labels
  target.fit(*this);
}

void SchemaFit::fit_classes() {
  const DataSchema& of = like.schema;
  const std::string& name = sample_target(header.target).words().name;
  const auto &ours = header.class_names, &theirs = of.class_names;
  if (ours != theirs && !ours.empty() && !theirs.empty())
    refuse(str("its ", name, " are of the classes ", listed(ours), ", not ", listed(theirs)), like.remedy);
  if (header.classes > of.classes)
    refuse(str("its ", name, " are of ", header.classes, " classes, not ", of.classes), like.remedy);
  header.classes = of.classes;
  header.class_names = theirs;
}

void SchemaFit::fit_labels() {
  const DataSchema& of = like.schema;
  const std::vector<int32_t> to = labels_in(header, of);
  const bool named = std::all_of(to.begin(), to.end(), [](int32_t label) { return label >= 0; });
  const bool same = header.class_names == of.class_names,
             unnamed = !same && !named && are_numbers(header) && !are_numbers(of);
  if (unnamed && header.classes <= of.classes)
    log_warning(str(where, ": its labels are numbers without names; they are taken for those of ", like.name, ": ",
                    listed(of.class_names)));
  if (!((same || unnamed) && header.classes <= of.classes)) {
    for (int32_t& label : labels_) {
      const int32_t there = to[static_cast<size_t>(label)];
      if (there < 0) refuse(unknown_class(class_name(header.class_names, label), of), like.remedy);
      label = there;
    }
  }
  header.classes = of.classes;
  header.class_names = of.class_names;
}

int64_t TableColumn::features() const {
  return type == Type::kTarget ? 0 : type == Type::kNumber ? 1 : static_cast<int64_t>(values.size());
}

void describe_cells(const NumberForm& form, const std::optional<DateForm>& date, JsonObject& column) {
  if (form.decimal_comma) column.emplace_back("decimal_comma", true);
  if (form.thousands != 0) column.emplace_back("thousands", std::string(1, form.thousands));
  if (!form.strip.empty()) column.emplace_back("strip", list_text(form.strip));
  if (!date) return;
  column.emplace_back("date", kDateKinds[static_cast<size_t>(date->kind.value_or(DateKind::kDate))]);
  column.emplace_back("date_order", kDateOrders[static_cast<size_t>(date->order)]);
}

namespace {

// Which of the names a member is; nothing where it is not there.
template <class Value, size_t count>
std::optional<Value> named_value(const JsonObject& o, const char* key, const char* const (&names)[count],
                                 std::string_view where) {
  if (!find_member(o, key)) return std::nullopt;
  const std::string& name = json_text(o, key, where);
  const auto at = std::find(std::begin(names), std::end(names), name);
  require(at != std::end(names), ExitCode::kBadData, where, ": \"", key, "\" is '", name, "'");
  return static_cast<Value>(at - std::begin(names));
}

void read_cells(const JsonObject& o, TableColumn& c, std::string_view where) {
  c.form.decimal_comma = json_bool(o, "decimal_comma").value_or(false);
  const std::string thousands = text_of(o, "thousands");
  require(thousands.size() <= 1, ExitCode::kBadData, where, ": \"thousands\" is '", thousands, "'");
  if (!thousands.empty()) c.form.thousands = thousands[0];
  if (find_member(o, "strip")) c.form.strip = list_of<std::string>(o, "strip", where);
  if (const auto kind = named_value<DateKind>(o, "date", kDateKinds, where))
    c.date = {named_value<DateOrder>(o, "date_order", kDateOrders, where).value_or(DateOrder::kYearFirst), kind};
}

}  // namespace

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
    read_cells(*object, c, where);
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
  JsonObject o{{"kind", sample_kind(s.kind).words().name},
               {"target", sample_target(s.target).words().name},
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
  const size_t kinds = sample_kinds().size(), targets = sample_targets().size();
  s.kind = static_cast<DataKind>(numbered(kind_of_name(json_text(*o, "kind", where)), kinds, *o, "kind", where));
  s.target =
      static_cast<TargetKind>(numbered(target_of_name(json_text(*o, "target", where)), targets, *o, "target", where));
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
  const SampleKind& kind = sample_kind(s.kind);
  std::string out = kind.words().name;
  if (s.classes > 0) out += str("; ", s.classes, " classes", s.class_names.empty() ? "" : ": ", listed(s.class_names));
  if (kind.has_pixels())
    for (size_t c = 0; c < s.mean.size(); ++c)
      out += str(c ? ", " : "; mean and std of channels ", s.mean[c], " and ", s.stddev[c]);
  if (!sample_target(s.target).has_classes())
    out += str("; targets of mean ", s.target_mean, " and std ", s.target_std);
  return out;
}

std::vector<int32_t> labels_in(const DatasetHeader& h, const DataSchema& like) {
  const LabelNumbers there(like.class_names);
  std::vector<int32_t> out;
  for (int64_t i = 0; i < h.classes; ++i) {
    const std::string name = class_name(h.class_names, i);
    if (const int64_t at = there.find(name); at >= 0) out.push_back(static_cast<int32_t>(at));
    else if (const int64_t number = number_of_label(name); like.class_names.empty() && number < like.classes)
      out.push_back(static_cast<int32_t>(number));
    else out.push_back(-1);
  }
  return out;
}

std::string unknown_class(const std::string& name, const DataSchema& like) {
  return str("class '", name, "' is none of its ", like.classes, " classes",
             like.class_names.empty() ? str(", which are numbers from 0") : str(": ", listed(like.class_names)));
}

void fit_to(DatasetFile& file, const LikeData& like) {
  SchemaFit(file.path, file.header, file.labels, like).run(&file);
}

void fit_to(DatasetHeader& header, std::vector<int32_t>& labels, const LikeData& like, const std::string& where) {
  SchemaFit(where, header, labels, like).run(nullptr);
}

}  // namespace lockstep
