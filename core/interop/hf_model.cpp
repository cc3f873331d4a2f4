#include "core/interop/hf_model.h"

#include <filesystem>

#include "core/interop/hf/shared.h"
#include "core/interop/llmc.h"
#include "core/io/llmc_weights.h"

namespace lockstep {
namespace fs = std::filesystem;
namespace {

[[noreturn]] void refuse_type(const Field& field) {
  throw Error(ExitCode::kInternal,
              str("model.", field.key, " has a type that options of a pretrained model cannot have"));
}

JsonValue value_of(const Field& field) {
  return std::visit(
      [&](const auto& target) -> JsonValue {
        using Target = std::decay_t<decltype(target)>;
        if constexpr (std::is_same_v<Target, bool*> || std::is_same_v<Target, int64_t*> ||
                      std::is_same_v<Target, double*> || std::is_same_v<Target, std::string*>)
          return *target;
        else if constexpr (std::is_same_v<Target, EnumRef>) return target.get();
        else if constexpr (std::is_same_v<Target, std::vector<double>*>)
          return json_array(std::vector<JsonValue>(target->begin(), target->end()));
        else refuse_type(field);
      },
      field.target);
}

// The inverse: `value` is one of such a field.
void set_value(Field& field, const JsonValue& value) {
  std::visit(
      [&](auto& target) {
        using Target = std::decay_t<decltype(target)>;
        if constexpr (std::is_same_v<Target, bool*> || std::is_same_v<Target, int64_t*> ||
                      std::is_same_v<Target, double*> || std::is_same_v<Target, std::string*>)
          *target = std::get<std::remove_pointer_t<Target>>(value);
        else if constexpr (std::is_same_v<Target, EnumRef>) target.set(std::get<std::string>(value));
        else if constexpr (std::is_same_v<Target, std::vector<double>*>) {
          const auto list = parse_json_array(std::get<JsonText>(value).text);
          check(list.has_value(), "model.", field.key, " is no list");
          target->clear();
          for (const JsonValue& e : *list) {
            const auto* whole = std::get_if<int64_t>(&e);
            target->push_back(whole ? static_cast<double>(*whole) : std::get<double>(e));
          }
        } else {
          refuse_type(field);
        }
      },
      field.target);
}

}  // namespace

Shape HfTensor::part_of(const Shape& ours) const {
  Shape part = ours;
  if (part.rank() > 0) part[0] /= static_cast<int64_t>(from.size());
  return part;
}

Shape HfTensor::shape_there(const Shape& ours) const {
  const Shape part = part_of(ours);
  if (layout == Layout::kTransposed && part.rank() == 2) return {part[1], part[0]};
  if (layout == Layout::kChannelsLast && part.rank() == 4) return {part[0], part[3], part[1], part[2]};
  return part;
}

OptionValues values_of(const std::vector<Field>& fields) {
  OptionValues out;
  for (const Field& f : fields) out.emplace_back(f.key, value_of(f));
  return out;
}

OptionValues option_values(std::vector<Field> fields, const HfConfig& config, const std::vector<std::string>& left) {
  OptionValues out;
  for (const Field& f : fields) {
    if (std::find(left.begin(), left.end(), f.key) != left.end()) continue;
    const JsonValue v = value_of(f);
    const auto* whole = std::get_if<int64_t>(&v);
    const auto* real = std::get_if<double>(&v);
    const double number = whole ? static_cast<double>(*whole) : real ? *real : 0;
    if (const auto* list = std::get_if<std::vector<double>*>(&f.target))
      for (double n : **list)
        require(f.min <= n && n <= f.max, ExitCode::kBadData, config.path(), ": asks for model.", f.key, " with ", n,
                ", which is not in [", f.min, ", ", f.max, "]");
    require((!whole && !real) || (f.min <= number && number <= f.max), ExitCode::kBadData, config.path(),
            ": asks for model.", f.key, ": ", number, ", which is not in [", f.min, ", ", f.max, "]");
    out.emplace_back(f.key, v);
  }
  return out;
}

void copy_options(const std::vector<Field>& from, std::vector<Field> to) {
  for (Field& f : to)
    for (const Field& source : from) {
      if (source.key != f.key) continue;
      check(source.target.index() == f.target.index(), "model.", f.key, " is an option of another type");
      set_value(f, value_of(source));
    }
}

GeluForm gelu_of(const HfConfig& config, std::string_view key) {
  const std::string form = config.one_of(key, {"gelu", "gelu_python", "gelu_new", "gelu_fast", "gelu_pytorch_tanh"});
  return form == "gelu" || form == "gelu_python" ? GeluForm::kErf : GeluForm::kTanh;
}

std::string gelu_text(GeluForm gelu) { return gelu == GeluForm::kErf ? "gelu" : "gelu_pytorch_tanh"; }

void need_four_widths(const HfConfig& config, int64_t width) {
  if (config.integer("intermediate_size", 3072) != 4 * width)
    config.refuse("intermediate_size", "other than 4 hidden_size is not supported");
}

Shape image_of(const HfConfig& config) {
  const int64_t channels = config.integer("num_channels", 3);
  const auto text = config.json_of("image_size");
  if (!text || !text->starts_with('[')) {
    const int64_t side = config.integer("image_size", 224);
    return {side, side, channels};
  }
  const auto sides = config.integers("image_size");
  if (sides.size() != 2) config.refuse("image_size", "is neither a number nor height and width");
  return {sides[0], sides[1], channels};
}

int64_t labels_of(const HfConfig& config) {
  const auto names = config.object("id2label");
  return names ? names->size() : config.integer("num_labels", 2);
}

void add_labels(JsonObject& config, int64_t classes) {
  JsonObject names, numbers;
  for (int64_t i = 0; i < classes; ++i) {
    names.emplace_back(str(i), str("LABEL_", i));
    numbers.emplace_back(str("LABEL_", i), i);
  }
  config.emplace_back("id2label", JsonText{json_line(names)});
  config.emplace_back("label2id", JsonText{json_line(numbers)});
}

void need_plain(const HfConfig& config) {
  if (const auto quantised = config.object("quantization_config"))
    if (const std::string method = quantised->text("quant_method", "");
        method != "bitsandbytes" &&
        !(method.empty() && (quantised->truth("load_in_4bit", false) || quantised->truth("load_in_8bit", false))))
      config.refuse("quantization_config",
                    str("has quant_method '", method,
                        "': weights are read from F32, F16, BF16 and F64, and from nf4 and int8 of "
                        "bitsandbytes"));
  config.need_truth("is_encoder_decoder", false);
  config.need_truth("add_cross_attention", false);
}

bool is_hf_folder(const std::string& folder) {
  std::error_code error;
  return fs::exists(fs::path(folder) / "config.json", error) && !fs::exists(fs::path(folder) / "manifest.json", error);
}

bool is_pretrained(const std::string& path) {
  std::error_code error;
  return is_hf_folder(path) || fs::is_regular_file(path, error);
}

namespace {

HfModel model_of(const HfConfig& config) {
  const std::string type = config.text("model_type");
  for (const HfFamily& f : hf_families())
    if (std::find(f.types.begin(), f.types.end(), type) != f.types.end()) {
      need_plain(config);
      HfModel out;
      try {
        out = f.read(config);
      } catch (const Error& e) {
        if (e.code() != ExitCode::kConfig) throw;
        throw Error(ExitCode::kBadData, str(config.path(), ": ", e.what()));
      }
      out.family = type;
      out.model = f.model;
      out.table = &f;
      return out;
    }
  std::string known;
  for (const HfFamily& f : hf_families())
    for (const std::string& name : f.types) known += str(known.empty() ? "" : ", ", name);
  config.refuse("model_type", str(": ", type, " is not supported; these are: ", known));
}

}  // namespace

HfModel hf_model_of_config(std::string_view json, const std::string& path) {
  return model_of(HfConfig::parse(json, path));
}

HfModel read_hf_model(const std::string& path) {
  if (!is_hf_folder(path) && has_llmc_magic(path)) return read_llmc_model(path);
  HfModel out;
  if (is_hf_folder(path)) out = model_of(HfConfig::load(str(path, "/config.json")));
  out.folder = path;
  return out;
}

std::unique_ptr<ModelKind> kind_of(const HfModel& model) {
  require(!model.model.empty(), ExitCode::kBadData, model.folder,
          ": is neither a folder of transformers nor a file of llm.c, which say which model they hold");
  auto kind = make_choice(builtin_models(), model.model);
  for (Field& f : kind->options())
    for (const auto& [key, value] : model.options)
      if (key == f.key) set_value(f, value);
  return kind;
}

namespace {

std::string chosen_text(const HfExport& exported) {
  return str(" cannot be written as ", exported.model.family, " of transformers",
             exported.chosen_by.empty() ? "" : ", the architecture for ", exported.chosen_by);
}

// Whether config.json says all that the model is: an import must find the same options there. Those that an import
// leaves to the user, such as dropout, are not compared.
void require_all_written(const HfExport& exported, const std::vector<Field>& options) {
  constexpr const char* kAdvice = "; export it without --to hf";
  HfModel again;
  try {
    again = hf_model_of_config(json_line(exported.config), "config.json");
  } catch (const Error& e) {
    throw Error(ExitCode::kBadData,
                str("the model", chosen_text(exported), ": an import refuses its ", e.what(), kAdvice));
  }
  const auto find = [](const OptionValues& values, const std::string& key) -> const JsonValue* {
    for (const auto& [own, value] : values)
      if (own == key) return &value;
    return nullptr;
  };
  const auto text = [](const JsonValue& value) {
    const auto* word = std::get_if<std::string>(&value);
    return word ? *word : json_text_of(value);
  };
  for (const Field& option : options) {
    const JsonValue *ours = find(exported.model.options, option.key), *theirs = find(again.options, option.key);
    check(ours != nullptr, exported.model.family, ": its export does not say which model.", option.key, " it wrote");
    if (!theirs || *theirs == *ours) continue;
    throw Error(ExitCode::kBadData, str("model.", option.key, ": ", text(*ours), chosen_text(exported),
                                        ", where it is ", text(*theirs), kAdvice));
  }
}

}  // namespace

HfExport hf_export_of(const std::string& model, const std::vector<Field>& options, const TaskSpec& task) {
  for (const HfFamily& f : hf_families())
    if (model == f.model && (!f.holds || f.holds(options))) {
      HfExport out = f.write(options, task);
      out.model.table = &f;
      require_all_written(out, options);
      return out;
    }
  throw Error(ExitCode::kBadData,
              str("model.name: ", model, " is no architecture of transformers; export it without --to hf"));
}

const std::vector<HfFamily>& hf_families() {
  static const std::vector<HfFamily> all = builtin_hf_families();
  return all;
}

}  // namespace lockstep
