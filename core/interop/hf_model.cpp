#include "core/interop/hf_model.h"

#include <filesystem>

#include "core/interop/hf/shared.h"
#include "core/interop/llmc.h"
#include "core/io/llmc_weights.h"

namespace lockstep {
namespace fs = std::filesystem;
namespace {

JsonValue value_of(const Field& field) {
  return std::visit(
      [](const auto& target) -> JsonValue {
        using Target = std::decay_t<decltype(target)>;
        if constexpr (std::is_same_v<Target, bool*> || std::is_same_v<Target, int64_t*> ||
                      std::is_same_v<Target, double*> || std::is_same_v<Target, std::string*>)
          return *target;
        else if constexpr (std::is_same_v<Target, EnumRef>) return target.get();
        else if constexpr (std::is_same_v<Target, std::vector<double>*>)
          return json_array(std::vector<JsonValue>(target->begin(), target->end()));
        else return nullptr;
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

std::vector<std::pair<std::string, JsonValue>> option_values(std::vector<Field> fields, const HfConfig& config,
                                                             const std::vector<std::string>& left) {
  std::vector<std::pair<std::string, JsonValue>> out;
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
      if (auto* word = std::get_if<EnumRef>(&f.target)) word->set(std::get<EnumRef>(source.target).get());
      if (auto* b = std::get_if<bool*>(&f.target)) **b = *std::get<bool*>(source.target);
      if (auto* i = std::get_if<int64_t*>(&f.target)) **i = *std::get<int64_t*>(source.target);
      if (auto* d = std::get_if<double*>(&f.target)) **d = *std::get<double*>(source.target);
      if (auto* list = std::get_if<std::vector<double>*>(&f.target))
        **list = *std::get<std::vector<double>*>(source.target);
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

HfExport hf_export_of(const std::string& model, const std::vector<Field>& options, const TaskSpec& task) {
  for (const HfFamily& f : hf_families())
    if (model == f.model && (!f.holds || f.holds(options))) {
      HfExport out = f.write(options, task);
      out.model.table = &f;
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
