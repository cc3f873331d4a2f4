#include "launch/commands/checkpoint_export.h"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "core/base/log.h"
#include "core/io/hdf5_file.h"
#include "core/io/json.h"
#include "core/io/pending_file.h"
#include "core/io/safetensors.h"
#include "data/tokenizer/tokenizer_file.h"
#include "data/vocabulary.h"
#include "launch/commands/commands.h"
#include "launch/config/settings.h"
#include "launch/weights/export_weights.h"
#include "optim/weight_average.h"

namespace lockstep {
namespace {

constexpr int64_t kPiece = 1 << 20;  // elements read at a time
const std::string kParameters = "parameters/", kBuffers = "buffers/";

// The tensors to be exported, by the name that they have in the checkpoint's parameters and buffers.
class Exported {
 public:
  Exported(const Checkpoint& c, bool averages) : checkpoint_(c) {
    if (averages) averaged_ = averaged_parameters(c);
    for (const StoredSlice& s : c.slices)
      if (s.name.starts_with(kParameters) || s.name.starts_with(kBuffers)) shapes_[s.name] = s.shape;
    require(!shapes_.empty(), ExitCode::kBadData, c.dir, ": holds no parameters");
  }
  const std::map<std::string, Shape>& shapes() const { return shapes_; }
  static std::string plain_name(const std::string& name) { return name.substr(name.find('/') + 1); }
  void read(const std::string& name, Range range, float* out) const {
    const bool average = name.starts_with(kParameters) && averaged_.contains(plain_name(name));
    read_elements(checkpoint_, average ? cat(kAverages, plain_name(name)) : name, range, out);
  }
  // Calls visit(range, values) for the tensor's elements, piece by piece, each whole rows of `row` elements.
  template <class Visit>
  void visit(const std::string& name, int64_t row, const Visit& visit) const {
    const int64_t n = shapes_.at(name).numel(), most = std::max(row, kPiece / row * row);
    std::vector<float> values;
    for (Range r{0, std::min(most, n)}; !r.empty(); r = {r.end, std::min(r.end + most, n)}) {
      values.resize(static_cast<size_t>(r.size()));
      read(name, r, values.data());
      visit(r, values.data());
    }
  }

 private:
  const Checkpoint& checkpoint_;
  std::set<std::string> averaged_;
  std::map<std::string, Shape> shapes_;
};

void export_hdf5(const Checkpoint& c, const Exported& tensors, const std::string& output) {
  PendingFile pending(output, false);
  Hdf5File file = Hdf5File::create(pending.temporary());
  for (const auto& [own_name, own_shape] : tensors.shapes()) {
    const std::string name = Exported::plain_name(own_name);
    const Shape shape = own_shape.rank() > 0 ? own_shape : Shape{1};
    file.create_dataset(name, StoredType::kFloat32, shape);
    if (shape.numel() == 0) continue;
    const int64_t row = shape.numel() / shape[0];
    tensors.visit(own_name, row, [&](Range r, const float* values) {
      file.write(name, StoredType::kFloat32, {r.begin / row, r.end / row}, values);
    });
  }
  file.set_attribute("", "step", c.info.step);
  file.set_attribute("", "digest", to_hex(digest_of(c)));
  file.close();
  pending.commit();
}

void export_safetensors(const Checkpoint& c, const Exported& tensors, const std::string& output) {
  std::vector<WeightToWrite> all;
  for (const auto& [name, shape] : tensors.shapes()) all.push_back({Exported::plain_name(name), shape});
  WeightWriter file(output, all,
                    {{"format", "pt"}, {"lockstep.step", cat(c.info.step)}, {"lockstep.digest", to_hex(digest_of(c))}});
  for (const auto& [name, shape] : tensors.shapes())
    tensors.visit(name, 1, [&](Range r, const float* values) { file.write(values, r.size()); });
  file.commit();
}

// The tokenizer of a run on byte pairs, as a folder of transformers holds it.
void add_tokenizer(const Checkpoint& c, HfExport& out) {
  const auto vocabulary = parse_vocabulary(c.info.vocabulary);
  if (!vocabulary || !vocabulary->pairs()) return;
  const BytePairs& pairs = *vocabulary->pairs();
  JsonObject config{{"tokenizer_class", "PreTrainedTokenizerFast"}, {"model_max_length", c.info.input[0]}};
  const std::string end = "<|endoftext|>";
  const AddedToken* token = pairs.added(end);
  for (const char* key : {"bos_token_id", "eos_token_id"})
    std::erase_if(out.config, [&](const auto& member) { return member.first == key; });
  if (token) {
    config.emplace_back("eos_token", end);
    out.config.emplace_back("eos_token_id", int64_t{token->id});
  } else {
    out.config.emplace_back("eos_token_id", nullptr);
  }
  out.config.emplace_back("bos_token_id", nullptr);
  out.files = {{"tokenizer.json", tokenizer_json(pairs.tables())}, {"tokenizer_config.json", json_line(config) + "\n"}};
}

void export_hf(const App& app, const Checkpoint& c, const Exported& tensors, const std::string& output) {
  const auto settings = settings_of_checkpoint(app, c);
  HfExport model = hf_export_of(settings->model_name, settings->model->options(), {c.info.input, c.info.classes});
  add_tokenizer(c, model);
  write_hf_folder(output, model, settings->init.from, tensors.shapes(),
                  [&](const std::string& name, Range r, float* out) { tensors.read(name, r, out); });
}

}  // namespace

void export_checkpoint(const App& app, const Checkpoint& c, const ExportRequest& request) {
  std::string format = request.format;
  if (format.empty()) format = request.output.ends_with(".safetensors") ? "safetensors" : "h5";
  require(format == "h5" || format == "safetensors" || format == "hf", ExitCode::kUsage, "--to: ", format,
          " is none of h5, safetensors, hf");
  const Exported tensors(c, request.averages);
  if (format == "h5") export_hdf5(c, tensors, request.output);
  else if (format == "safetensors") export_safetensors(c, tensors, request.output);
  else export_hf(app, c, tensors, request.output);
  const auto count = static_cast<int64_t>(tensors.shapes().size());
  print(request.json
            ? json_line({{"checkpoint", c.dir}, {"tensors", count}, {"format", format}, {"output", request.output}}) +
                  "\n"
            : cat("exported ", count, " tensors of ", c.dir, " to ", request.output, "\n"));
}

}  // namespace lockstep
