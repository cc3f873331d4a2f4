#include "launch/training/step/placed_task.h"

#include <algorithm>
#include <map>
#include <set>

#include "core/base/hash.h"
#include "core/base/log.h"
#include "core/base/trace.h"
#include "core/interop/load_weights.h"
#include "core/kernels/kernels.h"
#include "data/samples/sample_buffer.h"
#include "data/text/vocabulary.h"
#include "launch/training/weights/build_model.h"
#include "launch/world/devices.h"
#include "launch/world/fail_together.h"
#include "sharding/mesh.h"

namespace lockstep {
namespace {

// "4 ranks, level parameters in groups of 2"
std::string layout_text(const Mesh& mesh, ShardLevel level) {
  const int ranks = mesh.data().size;
  std::string out = str(ranks, ranks == 1 ? " rank" : " ranks", ", level ", to_text(level));
  if (mesh.shard().size > 1 && mesh.replica().size > 1) out += str(" in groups of ", mesh.shard().size);
  return out;
}

// What the tokens of data stand for; null where they are ids alone.
std::shared_ptr<TokenTexts> texts_of(const Vocabulary* vocabulary) {
  if (!vocabulary) return nullptr;
  return std::make_shared<TokenTexts>(vocabulary->size(), [vocabulary](int32_t id) { return vocabulary->text_of(id); });
}

}  // namespace

PlacedTask::PlacedTask(const Settings& settings, const Datasets& data, Communicator& comm, const TaskSpec& shapes,
                       Use use)
    : settings_(settings), data_(data), comm_(comm) {
  fail_together(comm_, [&] {
    require_rows_of_tokens();
    task_ = build_task(settings_, shapes, texts_of(data_.train->vocabulary()));
    metrics();  // refuses names that are not there
    require_weighed();
  });
  describe();
  fail_together(comm_, [&] { place(); });
  preflight();
  const auto has_documents = [](const auto& part) { return part && part->spec().find("documents"); };
  if (has_documents(data_.train) || has_documents(data_.validation))
    agree_on_masks(comm_, task_->module().masked_attention(settings_.parallel.compute));
  fail_together(comm_, [&] { require_targets(use); });
}

// What a checkpoint says of the run, as far as it is known before the model is distributed.
void PlacedTask::describe() {
  info_.dataset = to_hex(data_.train->identity());
  info_.samples = data_.samples;
  // Frozen parameters of files are named by their hash, wherever these lie.
  info_.math_text =
      settings_.config.math_text(settings_.parallel.frozen_of_files ? "init.from" : "",
                                 rules_leave_others(settings_.optim, parameter_names()) ? "optim.rules" : "");
  info_.config = settings_.config.dump_yaml();
  info_.vocabulary = vocabulary_text(data_.train->vocabulary());
  if (data_.like_this) info_.data_schema = schema_text(data_.like_this->schema);
  const DataSpec& spec = data_.train->spec();
  info_.input = spec.model_input();
  info_.classes = spec.classes;
  info_.tokens = spec.vocabulary;
  const auto& queue = current_stream().device_queue();
  info_.isa = queue ? queue->kernels().isa : kernels().isa;
  if (queue) {
    const DeviceBackend& backend = device_backend();
    const DeviceProperties card = backend.properties(current_device().index);
    info_.isa += str(" (", card.name, ", ", card.processors, " multiprocessors, ", backend.versions(), ")");
    queue->allow_fast(settings_.parallel.reduce == ReduceMode::kFast);
  }
  info_.writer = kVersion;
  info_.ranks = comm_.size();
}

std::vector<std::string> PlacedTask::parameter_names() const {
  std::vector<std::string> names;
  for (auto& p : task_->module().parameters()) names.push_back(p.name);
  return names;
}

std::vector<std::pair<std::string, Shape>> PlacedTask::parameter_shapes() const {
  std::vector<std::pair<std::string, Shape>> out;
  for (auto& p : task_->module().parameters()) out.emplace_back(p.name, p.parameter->value.shape());
  return out;
}

void PlacedTask::place() {
  DataParallelOptions options = settings_.parallel;
  options.gathered_limit_place = settings_.config.place("sharding.gathered_limit");
  if (const auto phases = task_->phases(); phases.size() > 1)
    for (const StepPhase& p : phases) options.apart.push_back(p.module);
  if (options.has_codes()) {
    const std::vector<std::string> names = coded_weights(settings_, task_->module());
    options.coded = [coded = std::set<std::string>(names.begin(), names.end())](const std::string& name) {
      return coded.contains(name);
    };
  }
  if (options.frozen_of_files && settings_.pretrained)
    options.file_type = stored_type(*settings_.pretrained, options.frozen);
  parallel_ = std::make_unique<DataParallel>(task_->module(), comm_, options);
  info_.layout = layout_text(parallel_->mesh(), settings_.parallel.level);
}

// Silent differences between ranks are the hardest failures to find: compare everything that must be the same, before
// step 0.
void PlacedTask::preflight() const {
  trace_mark();
  if (comm_.size() == 1) return;
  std::string mine = str("version: ", info_.writer, "\ninstructions: ", bits_of_isa(info_.isa.c_str()),
                         "\ndataset: ", info_.dataset, "\n");
  for (auto& p : task_->module().parameters())
    mine += str("parameter ", p.name, ": ", p.parameter->value.shape(), "\n");
  mine += settings_.config.text();
  // Nearly always they are; then the texts stay where they are.
  const auto hashes = all_gather_values(comm_, static_cast<int64_t>(hash64(mine)), "preflight");
  if (std::all_of(hashes.begin(), hashes.end(), [&](int64_t h) { return h == hashes[0]; })) return;
  const auto all = all_gather_text(comm_, mine, "preflight");
  std::map<std::string, std::string> ranks_by_difference;
  for (int r = 1; r < comm_.size(); ++r)
    for (const ConfigDifference& d : diff(all[0], all[static_cast<size_t>(r)])) {
      if (d.key == "compute.threads") continue;  // may differ: bits do not depend on it
      std::string& ranks = ranks_by_difference[str(d.key, ": ", d.a, " on rank 0, ", d.b, " on rank ")];
      ranks += str(ranks.empty() ? "" : ", ", r);
    }
  if (ranks_by_difference.empty()) return;
  std::string text = "ranks were started with different settings: ";
  int shown = 0;
  for (auto& [what, ranks] : ranks_by_difference)
    if (++shown <= 5) text += str(shown > 1 ? "; " : "", what, ranks);
  if (shown > 5) text += str("; and ", shown - 5, " more");
  if (comm_.rank() != 0) throw Error::secondary(ExitCode::kRanksDisagree);
  throw Error(ExitCode::kRanksDisagree, text);
}

// A tokenizer may have more tokens than the model of its folder, where tokens were added for a chat template.
void PlacedTask::require_rows_of_tokens() const {
  const Vocabulary* vocabulary = data_.train->vocabulary();
  if (!settings_.pretrained || !vocabulary) return;
  const int64_t rows = settings_.pretrained->task.tokens(), tokens = vocabulary->size();
  if (rows == 0 || tokens <= rows) return;
  std::string names;
  for (int64_t id = rows; id < std::min(tokens, rows + 5); ++id)
    names += str(names.empty() ? "" : ", ", id, " '", vocabulary->decode({static_cast<int32_t>(id)}), "'");
  throw Error(ExitCode::kConfig,
              str(settings_.config.place("init.from"), ": the embedding of ", settings_.pretrained->folder, " has ",
                  rows, " rows, and the data's tokenizer ", tokens, " tokens: there is no row for ", names,
                  tokens > rows + 5 ? ", ..." : "",
                  "; import the data with the tokens that the model knows, or enlarge its embedding first "
                  "(resize_token_embeddings of transformers)"));
}

// Else the losses would be added without weights, and their sum divided by that of the weights.
void PlacedTask::require_weighed() const {
  for (const auto& part : {data_.train, data_.validation})
    require(!part || !part->spec().find(kSampleWeights) || task_->weighs_samples(), ExitCode::kConfig,
            settings_.config.place("data.path"), ": its samples have weights, of which the loss of ",
            settings_.model_name, " makes no use: import the data without --weight");
}

// A loss of no targets at all would be 0. Nearly always the first sample has one, so this reads no more than that.
void PlacedTask::require_targets(Use use) const {
  if (use == Use::kPredict || comm_.rank() != 0 || !current_device().has_bytes()) return;
  const auto look = [&](const Dataset& part, const char* name) {
    const DataSpec& spec = part.spec();
    const TensorSpec *labels = spec.find(kLabels), *weights = spec.find(kSampleWeights);
    if (!labels && !weights) return;
    const SampleBuffer sample(spec.tensors);
    const auto at = [&](const TensorSpec* one) { return sample[static_cast<size_t>(one - spec.tensors.data())]; };
    const auto* target = labels ? static_cast<const int32_t*>(at(labels)) : nullptr;
    const auto* weight = weights ? static_cast<const float*>(at(weights)) : nullptr;
    for (int64_t i = 0; i < part.size(); ++i) {
      part.read(0, i, sample.memory());
      const bool counts =
          !target || std::any_of(target, target + spec.targets(), [](int32_t t) { return t != kIgnoreIndex; });
      if (counts && (!weight || *weight > 0)) return;
    }
    const bool text = spec.unit == "tokens" && !weight;
    throw Error(ExitCode::kConfig,
                str(settings_.config.place(text ? "data.ignore_tokens" : "data.path"), ": no target counts in the ",
                    name, " of the data, ", part.size(), weight ? " samples, whose weights are 0" : " samples",
                    ": there is no loss", text ? "; ignore fewer tokens" : ""));
  };
  const bool measures = use == Use::kMeasure;
  if (!measures) look(*data_.train, "training part");
  if (data_.validation) look(*data_.validation, measures ? "part" : "validation part");
}

std::vector<Metric> PlacedTask::metrics(const std::vector<std::string>& more) const {
  std::vector<Metric> all = task_->metrics();
  all.insert(all.end(), settings_.metrics.begin(), settings_.metrics.end());
  const std::string place = settings_.config.place("train.metrics");
  std::vector<Metric> out = chosen_metrics(all, settings_.train.metrics, place);
  const auto add = [&](const std::string& name, const std::string& its_place) {
    if (!find_metric(out, name)) out.push_back(chosen_metrics(all, {name}, its_place)[0]);
  };
  for (const std::string& name : more) add(name, place);
  // One with a slash is of train.eval_tasks.
  if (const std::string& best = settings_.train.best.metric; best != "loss" && best.find('/') == best.npos) {
    const std::string its_place = settings_.config.place("train.best.metric");
    add(best, its_place);
    require(find_metric(out, best)->has_value, ExitCode::kConfig, its_place, ": ", best,
            " is several figures, by which nothing is the best; name a metric that is one, such as f1 or mean_iou");
  }
  return out;
}

EvalOptions PlacedTask::eval_options() const {
  return {.micro_batch = settings_.batch.micro,
          .global_batch = settings_.batch.global,
          .loader_threads = static_cast<int>(settings_.data.threads),
          .compute = settings_.parallel.compute,
          .seed = static_cast<uint64_t>(settings_.seed),
          .step = info_.step};
}

EvalReport PlacedTask::evaluate(const Dataset& part, const std::vector<std::string>& more) {
  EvalOptions options = eval_options();
  options.metrics = metrics(more);
  return lockstep::evaluate(*task_, *parallel_, part, options);
}

}  // namespace lockstep
