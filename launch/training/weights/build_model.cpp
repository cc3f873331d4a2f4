#include "launch/training/weights/build_model.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "core/base/name_pattern.h"
#include "core/interop/load_weights.h"
#include "core/models/token_transformer.h"
#include "core/nn/lora.h"
#include "core/state/weight_coder.h"
#include "launch/training/weights/load_model.h"

namespace lockstep {
namespace {

// The same tensors without an element.
std::vector<StateEntry> emptied(std::vector<StateEntry> entries) {
  for (StateEntry& e : entries) e = e.part(0, 0);
  return entries;
}

}  // namespace

TaskSpec task_of(const DataSpec& spec) {
  return {.input = spec.model_input(),
          .classes = spec.classes,
          .regression = spec.find(kTargets) && !spec.find(kLabels),
          .vocabulary = spec.vocabulary,
          .tensors = spec.tensors,
          .next_tokens = spec.next_tokens,
          .target_std = spec.target_std,
          .class_counts = spec.class_counts};
}
TaskSpec task_of(const CheckpointInfo& info) { return {info.input, info.classes, false, info.tokens}; }

std::unique_ptr<Model> build_model(const Settings& s, const TaskSpec& task) {
  auto model = s.model->build(task);
  if (s.lora.rank > 0) add_adapters(*model, s.lora);
  const std::vector<NamedParameter> parameters = model->parameters();
  for (const auto& [key, patterns] : {std::pair("lora.train", &s.lora.train), std::pair("init.new", &s.init.fresh)})
    for (const std::string& pattern : *patterns)
      require(std::any_of(parameters.begin(), parameters.end(), [&](auto& p) { return matches(pattern, p.name); }),
              ExitCode::kConfig, s.config.place(key), ": pattern '", pattern, "' matches no parameter of this model");
  if (s.parallel.frozen_of_files)
    for (const NamedParameter& p : parameters)
      require(!s.parallel.frozen(p.name) || s.init_holds(p.name), ExitCode::kConfig, s.config.place("optim.rules"),
              ": ", p.name, " is frozen, but ", s.init.from, " does not hold it");
  return model;
}

std::vector<std::string> coded_weights(const Settings& s, Module& model) {
  std::vector<std::string> out;
  if (!s.parallel.has_codes()) return out;
  const std::vector<std::string> codable = codable_weights(model);
  const std::set<std::string> names(codable.begin(), codable.end());
  for (const NamedParameter& p : model.parameters()) {
    if (!names.contains(p.name) || !s.parallel.frozen(p.name)) continue;
    const int64_t in = p.parameter->value.dim(1);
    require(s.parallel.coding() == DType::kNf4 || in % kCodedBlock == 0, ExitCode::kConfig,
            s.config.place("precision.frozen"), ": int8 has blocks of ", kCodedBlock, " inputs, but ", p.name, " has ",
            in, "; nf4 takes any number");
    out.push_back(p.name);
  }
  require(!out.empty(), ExitCode::kConfig, s.config.place("precision.frozen"), ": ",
          s.parallel.coding() == DType::kNf4 ? "nf4" : "int8",
          " is for frozen linear layers within a model's blocks, of which ", s.model_name, " has none");
  return out;
}

namespace {

// N / (classes x samples of the class), so that all classes count alike, and the mean over the samples is 1. A class
// without samples, of which there is no loss, has the weight 0.
std::vector<double> balanced_weights(const std::vector<int64_t>& counts) {
  const auto present =
      static_cast<double>(std::count_if(counts.begin(), counts.end(), [](int64_t n) { return n > 0; }));
  const auto all = static_cast<double>(std::accumulate(counts.begin(), counts.end(), int64_t{0}));
  std::vector<double> out;
  for (const int64_t n : counts) out.push_back(n == 0 ? 0 : all / (present * static_cast<double>(n)));
  return out;
}

}  // namespace

std::vector<double> class_weights(const Settings& s, const TaskSpec& data) {
  const std::vector<std::string>& given = s.train.class_weights;
  const auto refuse_unless = [&](bool fits, auto&&... why) {
    require(fits, ExitCode::kConfig, s.config.place("train.class_weights"), ": ", why...);
  };
  if (given == std::vector<std::string>{"auto"}) {
    refuse_unless(!data.class_counts.empty(), "auto needs data with one label a sample; give a number for each class");
    return balanced_weights(data.class_counts);
  }
  std::vector<double> out;
  for (const std::string& text : given) {
    double weight = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), weight);
    refuse_unless(error == std::errc() && end == text.data() + text.size() && weight >= 0 && std::isfinite(weight), "'",
                  text, "' is no weight; give [auto], or a number for each class, such as [1, 2.5]");
    out.push_back(weight);
  }
  refuse_unless(out.empty() || std::ssize(out) == data.classes, "has ", out.size(), " weights, but the data has ",
                data.classes, " classes");
  return out;
}

std::unique_ptr<Task> build_task(const Settings& s, const TaskSpec& data, const std::shared_ptr<TokenTexts>& texts) {
  const auto refuse_unless = [&](bool fits, const std::string& key, auto&&... why) {
    require(fits, ExitCode::kConfig, s.config.place(key), ": ", why...);
  };
  auto model = build_model(s, data);
  const bool separates = model->traits().separates_documents;
  auto* const of_tokens = dynamic_cast<TokenTransformer*>(model.get());
  refuse_unless(of_tokens || s.train.embedding_noise == 0, "train.embedding_noise", "the model ", s.model_name,
                " has no embeddings of tokens; gpt, llama and bert do");
  if (of_tokens) of_tokens->token_embedding().set_noise(s.train.embedding_noise);
  const int places = apply_recompute(*model, s.recompute);
  auto task =
      s.task->build(std::move(model), {.data = data,
                                       .model_name = s.model_name,
                                       .label_smoothing = s.train.label_smoothing,
                                       .class_weights = class_weights(s, data),
                                       .loss_rows = s.train.loss_rows,
                                       .huber_delta = s.train.huber_delta,
                                       .token_texts = texts,
                                       .tasks = s.tasks,
                                       .open_model = [&](const std::string& path) { return open_model(s, path); }});
  task->set_kind(s.task_name);
  const std::string unmet = unmet_need(task->reads(), data.tensors);
  refuse_unless(unmet.empty(), "model.name", s.model_name, " does not fit the data: ", unmet);
  const auto [key, why] = task->problem(data);
  refuse_unless(key.empty(), key, why);
  refuse_unless(!data.find("documents") || separates, "data.packing", s.model_name,
                " does not keep the records of a sample apart; use pad, or a model that does (gpt, llama)");
  refuse_unless(places > 0 || s.recompute == Recompute::kNone, "recompute", "the model ", s.model_name,
                " has nothing of this kind to recompute; use none");
  return task;
}

std::vector<StateEntry> held_by_init(const Settings& s, const std::vector<StateEntry>& entries) {
  std::vector<StateEntry> out;
  for (const StateEntry& e : entries)
    if (!e.name.starts_with(kParameters) || s.init_holds(e.name.substr(kParameters.size()))) out.push_back(e);
  return out;
}

Hash128 read_initial(const Settings& s, const Checkpoint* from, const std::vector<StateEntry>& wanted,
                     const std::vector<StateEntry>& others) {
  std::vector<StateEntry> all = held_by_init(s, wanted);
  for (StateEntry& e : emptied(held_by_init(s, others))) all.push_back(std::move(e));
  if (!from) return load_weights(*s.pretrained, all);  // of codes, too
  require(from->info.base.empty(), ExitCode::kBadData, from->dir,
          ": holds what was trained beside a frozen model, not the model; export it with --to hf, and start from that");
  Checkpoint c = *from;
  std::erase_if(c.slices, [&](const StoredSlice& slice) {
    return slice.name.starts_with(kParameters) && !s.init_holds(slice.name.substr(kParameters.size()));
  });
  for (StateEntry& e : all) {
    if (!is_coded(e.data.dtype())) continue;
    fill_coded(e, [&](IndexRange r, float* out) { read_elements(c, e.name, r, out); });
    e = e.part(0, 0);
  }
  load_entries(c, all);
  Hash128 sum;
  for (const StateEntry& e : wanted)
    if (e.begins_tensor()) sum += digest_of(c, e.name);  // by one rank a tensor
  return sum;
}

void require_base_of(const Settings& s, const Checkpoint& c, const std::string& found) {
  require(found == c.info.base, ExitCode::kBadData, s.init.from, ": its frozen parameters have the hash ", found,
          ", but ", c.dir, " was trained with those of ", c.info.base, "; init.from must name these");
}

}  // namespace lockstep
