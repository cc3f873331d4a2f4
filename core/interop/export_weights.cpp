#include "core/interop/export_weights.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <string_view>

#include "core/base/escape.h"
#include "core/base/plain_file.h"
#include "core/interop/hf_config.h"
#include "core/interop/hf_family.h"
#include "core/interop/peft_adapter.h"
#include "core/io/pending_file.h"
#include "core/state/state.h"

namespace lockstep {
namespace fs = std::filesystem;
namespace {

using Layout = HfTensor::Layout;

constexpr const char* kGeneration = "generation_config.json";
constexpr const char* kPreprocessor = "preprocessor_config.json";
// What goes along from the folder that a model came from.
constexpr int64_t kLargestCompanion = 64 << 20;  // bytes
constexpr const char* kCompanions[] = {kGeneration,
                                       "tokenizer.json",
                                       "tokenizer_config.json",
                                       "special_tokens_map.json",
                                       "added_tokens.json",
                                       "vocab.json",
                                       "merges.txt",
                                       "vocab.txt",
                                       "tokenizer.model",
                                       "chat_template.jinja",
                                       "additional_chat_templates/tool_use.jinja",
                                       kPreprocessor};
constexpr const char* kSpecialTokens[] = {"bos_token_id", "eos_token_id", "pad_token_id"};

// A part of one of our tensors in the order of the folder's elements.
std::vector<float> turned(std::vector<float> ours, const Shape& part, Layout layout) {
  if (layout == Layout::kSame || (layout == Layout::kChannelsLast && part.rank() != 4) ||
      (layout == Layout::kTransposed && part.rank() != 2))
    return ours;
  std::vector<float> out(ours.size());
  const int64_t rows = part[0], pixels = layout == Layout::kChannelsLast ? part[1] * part[2] : 0;
  if (layout == Layout::kTransposed) {
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < part[1]; ++c)
        out[static_cast<size_t>(c * rows + r)] = ours[static_cast<size_t>(r * part[1] + c)];
    return out;
  }
  const int64_t channels = part[3];
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t p = 0; p < pixels; ++p)
      for (int64_t c = 0; c < channels; ++c)
        out[static_cast<size_t>((r * channels + c) * pixels + p)] =
            ours[static_cast<size_t>((r * pixels + p) * channels + c)];
  return out;
}

// The file that goes along; empty: there is none. What is no regular file is refused, since its content may be that of
// any file of this user, such as a key: a link may lead anywhere. Hugging Face's cache of downloads has links into its
// own folder of files named by their hashes, which can be no other file.
std::string companion(const std::string& source, const char* name) {
  const fs::path path = fs::path(source) / name;
  std::error_code ignored;
  const fs::file_status status = fs::symlink_status(path, ignored);
  if (!fs::exists(status)) return {};
  if (fs::is_regular_file(status)) return path.string();
  const std::string target = fs::is_symlink(status) ? fs::read_symlink(path, ignored).string() : "";
  constexpr std::string_view kBlobs = "../../blobs/";
  if (target.starts_with(kBlobs) && target.size() > kBlobs.size() &&
      target.find_first_not_of("0123456789abcdef", kBlobs.size()) == target.npos) {
    const fs::path blob = fs::path(source) / target;
    if (fs::is_regular_file(fs::symlink_status(blob, ignored))) return blob.string();
  }
  throw Error(ExitCode::kBadData,
              str(path.string(), ": is ", target.empty() ? "no regular file" : str("a link to ", escaped(target)),
                  ", and would be copied into the export; put a copy of the file in its place, or remove it"));
}

std::map<std::string, std::string> companions_of(const HfExport& what, const std::string& source) {
  std::map<std::string, std::string> out;
  if (source.empty() || !is_hf_folder(source) || read_hf_model(source).family != what.model.family) return out;
  for (const char* name : kCompanions) {
    const bool ours =
        (what.other_tokenizer && std::string_view(name) != kPreprocessor) ||
        std::any_of(what.files.begin(), what.files.end(), [&](const auto& file) { return file.first == name; });
    if (const std::string path = ours ? "" : companion(source, name); !path.empty()) out.emplace(name, path);
  }
  return out;
}

// One tensor of the folder, and the part of ours that it is.
struct Part {
  WeightToWrite weight;
  const HfTensor* tensor = nullptr;  // null: zeros
  Shape shape;                       // in our layout
  int64_t index = 0;                 // of the parts
};

std::vector<Part> parts_of(const HfExport& e, const std::map<std::string, Shape>& shapes) {
  std::vector<Part> out;
  for (const HfTensor& t : e.model.tensors) {
    const auto ours = shapes.find(t.name);
    require(ours != shapes.end(), ExitCode::kBadData, "the checkpoint has no ", t.name, ": it is no ", e.model.family,
            " model");
    Shape there = t.shape_there(ours->second);
    if (t.one_in_front) there = {1, there[0], there[1]};
    for (size_t i = 0; i < t.from.size(); ++i)
      out.push_back({{t.from[i], there}, &t, t.part_of(ours->second), static_cast<int64_t>(i)});
  }
  for (const auto& [name, shape] : shapes)
    require(std::any_of(e.model.tensors.begin(), e.model.tensors.end(), [&](auto& t) { return t.name == name; }),
            ExitCode::kBadData, name, " of the checkpoint has no counterpart in a ", e.model.family, " model");
  for (const WeightToWrite& zeros : e.zeros) out.push_back({zeros, nullptr, zeros.shape, 0});
  std::sort(out.begin(), out.end(), [](const Part& a, const Part& b) {
    return a.weight.type != b.weight.type ? a.weight.type == "I64" : a.weight.name < b.weight.name;
  });
  return out;
}

void write_part(WeightWriter& file, const Part& p, const ReadElements& read) {
  const int64_t n = p.shape.numel();
  if (p.weight.type == "I64") return file.write(std::vector<int64_t>(static_cast<size_t>(n)).data(), n);
  std::vector<float> values(static_cast<size_t>(n));
  if (p.tensor) {
    read(p.tensor->name, {p.index * n, (p.index + 1) * n}, values.data());
    values = turned(std::move(values), p.shape, p.tensor->layout);
  }
  file.write(values.data(), n);
}

}  // namespace

void write_hf_folder(const std::string& folder, const HfExport& what, const NamedTensors& tensors,
                     const HfFolderOptions& options) {
  const std::string& source = options.source;
  check(what.model.table != nullptr, "write_hf_folder: a model of no architecture of transformers");
  const std::vector<Part> parts = parts_of(what, tensors.shapes);
  const std::map<std::string, std::string> companions = companions_of(what, source);
  std::vector<WeightToWrite> weights;
  for (const Part& p : parts) {
    weights.push_back(p.weight);
    if (options.bf16 && p.weight.type == "F32") weights.back().type = "BF16";
  }
  PendingFolder out(folder);
  const auto files = files_for(weights, options.bytes_a_file);
  for (size_t f = 0; f < files.size(); ++f) {
    std::vector<WeightToWrite> here;
    for (size_t i : files[f]) here.push_back(weights[i]);
    WeightWriter file(out / weights_file_name(f, files.size()), here);
    for (size_t i : files[f]) write_part(file, parts[i], tensors.read);
    file.commit();
  }
  if (files.size() > 1) out.write(kWeightsIndex, weights_index(weights, files));

  JsonObject config = what.config;
  config.emplace_back("torch_dtype", std::string(options.bf16 ? "bfloat16" : "float32"));
  if (!source.empty() && is_hf_folder(source) && read_hf_model(source).family == what.model.family) {
    const HfConfig there = HfConfig::load(str(source, "/config.json"));
    if (what.model.table->keep) what.model.table->keep(there, config);
    for (const char* key : kSpecialTokens)
      if (const auto id = what.other_tokenizer ? std::nullopt : there.json_of(key)) {
        std::erase_if(config, [&](const auto& member) { return member.first == key; });
        config.emplace_back(key, JsonText{*id});
      }
  }
  for (const auto& [name, path] : companions) out.write(name, InputFile(path).text(kLargestCompanion));
  for (const auto& [name, text] : what.files) out.write(name, text);
  out.write("config.json", json_line(config) + "\n");
  if (what.model.table->use == HfUse::kText && !companions.contains(kGeneration))
    out.write(kGeneration, json_line({{"_from_model_config", true}}) + "\n");
  out.commit();
}

void write_peft_folder(const std::string& folder, const PeftExport& what, const NamedTensors& tensors) {
  PeftParts parts_of_ours;
  std::map<std::string, Shape> shapes;
  for (const auto& [name, shape] : tensors.shapes) {
    if (name.starts_with(kBuffers)) continue;
    shapes[name] = shape;
    const auto before = [&](std::string_view end) { return name_in_model(name.substr(0, name.size() - end.size())); };
    if (name.ends_with(kLoraA)) parts_of_ours.layers.push_back(before(kLoraA));
    else if (name.ends_with(kLoraEmbeddingA)) parts_of_ours.tables.push_back(before(kLoraEmbeddingA));
    else if (name.ends_with(kLoraMagnitude)) parts_of_ours.dora = true;
    else if (!is_lora_parameter(name)) parts_of_ours.trained.push_back(name_in_model(name));
  }
  const HfModel base = named_by_peft(what.base);
  HfExport adapter;
  adapter.model.family = "peft";
  adapter.model.tensors = peft_tensors(base, parts_of_ours);
  adapter.config = peft_config(base, what.lora, parts_of_ours, what.base_folder);
  const std::vector<Part> parts = parts_of(adapter, shapes);
  std::vector<WeightToWrite> weights;
  for (const Part& p : parts) weights.push_back(p.weight);
  PendingFolder out(folder);
  {
    WeightWriter file(out / kPeftWeights, weights);
    for (const Part& p : parts) write_part(file, p, tensors.read);
    file.commit();
  }
  out.write(kPeftConfig, json_line(adapter.config) + "\n");
  out.commit();
}

}  // namespace lockstep
