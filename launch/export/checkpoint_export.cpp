#include "launch/export/checkpoint_export.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/log.h"
#include "core/interop/export_weights.h"
#include "core/interop/llmc.h"
#include "core/interop/load_weights.h"
#include "core/io/hdf5/hdf5_file.h"
#include "core/io/json.h"
#include "core/io/numpy_file.h"
#include "core/io/pending_file.h"
#include "core/io/safetensors.h"
#include "core/state/state.h"
#include "data/text/vocabulary.h"
#include "launch/config/run_data.h"
#include "launch/config/settings.h"
#include "launch/export/export_data.h"
#include "launch/terminal/output.h"
#include "launch/training/weights/build_model.h"
#include "launch/training/weights/exported_weights.h"

namespace lockstep {
namespace {

constexpr int64_t kPiece = 1 << 20;  // elements read at a time

// The tensors of a model, and where they are stored.
struct Tensors : NamedTensors {
  std::string place = {};
  const Checkpoint* checkpoint = nullptr;     // that they are stored in, if any
  std::map<std::string, Shape> trained = {};  // ExportedWeights::trained()

  // Calls visit(range, values) for a tensor's elements, piece by piece, each whole rows of `row` elements.
  template <class Visit>
  void visit(const std::string& name, int64_t row, const Visit& visit) const {
    const int64_t n = shapes.at(name).numel(), most = std::max(row, kPiece / row * row);
    std::vector<float> values;
    for_each_piece({0, n}, most, [&](IndexRange r) {
      values.resize(static_cast<size_t>(r.size()));
      read(name, r, values.data());
      visit(r, values.data());
    });
  }
};

Tensors tensors_of(const Checkpoint& c, const Settings* settings, bool averages) {
  Tensors out;
  out.place = c.dir;
  out.checkpoint = &c;
  const auto weights = std::make_shared<const ExportedWeights>(c, settings, averages);
  out.shapes = weights->shapes();
  out.trained = weights->trained();
  out.read = [weights](const std::string& name, IndexRange range, float* to) { weights->read(name, range, to); };
  return out;
}

// Of a model that a folder or file describes. `m` must outlive it.
Tensors tensors_of(const HfModel& m, const Settings& settings) {
  const auto model = settings.model->build(m.task);
  model->name_tree();
  Tensors out{tensors_of(m, *model)};
  out.place = m.folder;
  return out;
}

void export_hdf5(const Tensors& tensors, const std::string& output) {
  PendingFile pending(output, false);
  Hdf5File file = Hdf5File::create(pending.temporary());
  for (const auto& [own_name, own_shape] : tensors.shapes) {
    const std::string name = name_in_model(own_name);
    const Shape shape = own_shape.rank() > 0 ? own_shape : Shape{1};
    file.create_dataset(name, StoredType::kFloat32, shape);
    if (shape.numel() == 0) continue;
    const int64_t row = shape.numel() / shape[0];
    tensors.visit(own_name, row, [&](IndexRange r, const float* values) {
      file.write(name, StoredType::kFloat32, {r.begin / row, r.end / row}, values);
    });
  }
  if (const Checkpoint* c = tensors.checkpoint) {
    file.set_attribute("", "step", c->info.step);
    file.set_attribute("", "digest", to_hex(digest_of(*c)));
  }
  file.close();
  pending.commit();
}

void export_safetensors(const Tensors& tensors, const std::string& output) {
  std::vector<WeightToWrite> all;
  for (const auto& [name, shape] : tensors.shapes) all.push_back({name_in_model(name), shape});
  std::vector<std::pair<std::string, std::string>> metadata{{"format", "pt"}};
  if (const Checkpoint* c = tensors.checkpoint) {
    metadata.emplace_back("lockstep.step", str(c->info.step));
    metadata.emplace_back("lockstep.digest", to_hex(digest_of(*c)));
  }
  WeightWriter file(output, all, metadata);
  for (const auto& [name, shape] : tensors.shapes)
    tensors.visit(name, 1, [&](IndexRange r, const float* values) { file.write(values, r.size()); });
  file.commit();
}

void export_npz(const Tensors& tensors, const std::string& output) {
  NpzWriter file(output);
  for (const auto& [name, shape] : tensors.shapes) {
    file.begin(name_in_model(name), shape);
    tensors.visit(name, 1, [&](IndexRange r, const float* values) { file.write(values, r.size()); });
  }
  file.commit();
}

void export_peft(const Tensors& tensors, const HfExport& base, const Settings& settings, const std::string& output) {
  require(settings.lora.rank > 0, ExitCode::kUsage, "--to peft: ", tensors.place,
          " has no adapters; its run was one without lora.rank");
  write_peft_folder(output, {base.model, settings.lora, settings.init.from}, {tensors.trained, tensors.read});
}

constexpr std::string_view kExportFormats[] = {"h5",      "safetensors", "npz",       "hf",
                                               "hf-bf16", "llmc",        "llmc-bf16", "peft"};

// With the format that its output's name says, where it names none.
ExportRequest with_format(ExportRequest request) {
  std::string all;
  for (std::string_view format : kExportFormats) all += str(all.empty() ? "" : ", ", format);
  for (const auto& [ending, format] : {std::pair(".h5", "h5"), std::pair(".hdf5", "h5"),
                                       std::pair(".safetensors", "safetensors"), std::pair(".npz", "npz")})
    if (request.format.empty() && request.output.ends_with(ending)) request.format = format;
  require(!request.format.empty(), ExitCode::kUsage, request.output,
          ": its name does not end in .h5, .hdf5, .safetensors or .npz; say which format by --to, one of ", all);
  require(std::find(std::begin(kExportFormats), std::end(kExportFormats), request.format) != std::end(kExportFormats),
          ExitCode::kUsage, "--to: ", request.format, " is none of ", all);
  return request;
}

// `settings` gives those of the model; h5, safetensors and npz do without. The request has a format.
void write_tensors(const Tensors& tensors, const std::function<const Settings&()>& settings, const TaskSpec& task,
                   const ExportRequest& request, const std::function<void(HfExport&)>& add_data = {}) {
  const std::string& format = request.format;
  const bool llmc = format == "llmc" || format == "llmc-bf16";
  if (format == "h5") {
    export_hdf5(tensors, request.output);
  } else if (format == "safetensors") {
    export_safetensors(tensors, request.output);
  } else if (format == "npz") {
    export_npz(tensors, request.output);
  } else {
    const Settings& of = settings();
    HfExport what = hf_export_of(of.model_name, of.model->options(), task);
    const bool hf = format == "hf" || format == "hf-bf16";
    if (hf && add_data) add_data(what);
    if (llmc) write_llmc_file(request.output, what, tensors, {format == "llmc-bf16", tensors.place});
    else if (format == "peft") export_peft(tensors, what, of, request.output);
    else write_hf_folder(request.output, what, tensors, {.source = of.init.from, .bf16 = format == "hf-bf16"});
  }
  const auto count = static_cast<int64_t>((format == "peft" ? tensors.trained : tensors.shapes).size());
  print_out(
      request.json
          ? json_line({{"from", tensors.place}, {"tensors", count}, {"format", format}, {"output", request.output}}) +
                "\n"
          : str("exported ", count, " tensors of ", tensors.place, " to ", request.output, "\n"));
}

}  // namespace

void export_checkpoint(const App& app, const Checkpoint& c, const ExportRequest& given) {
  const ExportRequest request = with_format(given);
  std::unique_ptr<Settings> made;
  const auto settings = [&]() -> const Settings& {
    if (!made) made = settings_of_checkpoint(app, c, request.overrides);
    return *made;
  };
  // Of a model of another program's own, a file of tensors can be written all the same.
  const Settings* names_base = c.info.base.empty() ? nullptr : &settings();
  write_tensors(tensors_of(c, names_base, request.averages), settings, task_of(c.info), request, [&](HfExport& what) {
    std::string unknown;
    const auto data = data_of_run(app, c, unknown);
    if (!data)
      log_warning(str(c.dir, ": does not say what its data means", unknown.empty() ? "" : str(" (", unknown, ")"),
                      ": names of classes and preprocessing are not written"));
    add_data_of_run(c, data.get(), settings().init.from, what);
  });
}

void convert_weights(const App& app, const std::string& path, const ExportRequest& given) {
  const ExportRequest request = with_format(given);
  require(is_pretrained(path), ExitCode::kMissingInput, path, ": is neither a folder of transformers nor a file");
  const auto settings = settings_of_pretrained(app, path);
  const auto pretrained = settings->pretrained;
  const HfModel& model = *pretrained;
  require(!model.family.empty(), ExitCode::kUsage, path,
          ": does not say which model it is; convert a folder of transformers or a file of llm.c");
  const auto its = [&]() -> const Settings& { return *settings; };
  write_tensors(tensors_of(model, *settings), its, model.task, request);
}

}  // namespace lockstep
