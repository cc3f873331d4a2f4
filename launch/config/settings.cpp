#include "launch/config/settings.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "core/base/log.h"
#include "core/base/name_pattern.h"
#include "core/base/trace.h"
#include "core/interop/hf_model.h"
#include "core/io/json.h"
#include "core/state/checkpoint.h"
#include "core/state/state.h"
#include "launch/config/pretrained.h"
#include "launch/config/resumed_config.h"
#include "launch/config/run_data.h"
#include "launch/config/run_length.h"
#include "launch/config/settings_checks.h"

namespace lockstep {

namespace {

std::vector<Field> top_fields(Settings& s) {
  return {field("seed", s.seed, "of initial values, data order and dropout").with_range(0, 9e15),
          recompute_field(s.recompute),
          field("graph", s.graph,
                "record a whole step as one CUDA graph and launch that: small batches then do not wait for the host; "
                "needs fixed shapes and no dropout, and sharding.level none or optimizer")
              .without_effect_on_math()};
}
std::vector<Field> comm_fields(Settings& s) {
  return {field("comm.deadline", s.deadline,
                "a collective that takes longer than this ends the run, naming the missing ranks")
              .with_unit("s")
              .with_range(1, 1e6)
              .without_effect_on_math()};
}
// Binds section.name, one of `choices`, and the options of the named choice. Keys that only other choices have are
// passed to Config::know(). `keys_only`: makes no choice, and passes the keys of all choices to know(), once for those
// that are documented alike. Throws ExitCode::kInternal where two choices have one name.
// `absent_at_default`: as Field::without_effect_at_default() has it, of the name.
template <class Kind, class OptionsOf>
std::unique_ptr<Kind> bind_choice(Config& config, const std::string& section, const std::vector<Choice<Kind>>& choices,
                                  std::string& name, const char* doc, bool keys_only, const OptionsOf& options_of,
                                  bool absent_at_default = false) {
  std::set<std::string> names;
  for (const Choice<Kind>& c : choices)
    check(names.insert(c.name).second, "two choices of ", section, ".name are called '", c.name,
          "'; a program's own needs another name than those that are built in");
  Field selector = field("name", name, doc).with_choices(names_of(choices));
  config.bind(section, {absent_at_default ? std::move(selector).without_effect_at_default() : std::move(selector)});
  std::unique_ptr<Kind> chosen;
  std::vector<std::string> bound;
  if (!keys_only) {
    chosen = make_choice(choices, name);
    for (const Field& f : options_of(*chosen)) bound.push_back(f.key);
    config.bind(section, options_of(*chosen));
  }
  struct Known {
    Field field;
    std::string names;
  };
  std::vector<std::unique_ptr<Kind>> kinds;  // the fields point into them
  std::vector<Known> known;
  for (auto& c : choices) {
    kinds.push_back(c.make());
    for (Field& f : options_of(*kinds.back())) {
      if (std::find(bound.begin(), bound.end(), f.key) != bound.end()) continue;
      const auto same = std::find_if(known.begin(), known.end(), [&](auto& k) {
        return k.field.key == f.key && (!keys_only || documented_alike(k.field, f));
      });
      if (same == known.end()) known.push_back({std::move(f), c.name});
      else same->names += " or " + c.name;
    }
  }
  for (const Known& k : known)
    config.know(section, {k.field}, str("has an effect only with ", section, ".name: ", k.names));
  return chosen;
}

void bind_all(Settings& s, const App& app, bool keys_only) {
  const auto own_options = [](Configurable& kind) { return kind.options(); };
  s.config.bind("", top_fields(s));
  s.config.bind("run", fields(s.run));
  s.model_name = app.models.empty() ? "" : app.models.front().name;
  s.model = bind_choice(s.config, "model", app.models, s.model_name, "the model", keys_only, own_options);
  s.task_name = app.tasks.empty() ? "" : app.tasks.front().name;
  s.task = bind_choice(s.config, "task", app.tasks, s.task_name,
                       "what is learnt; auto: the model's own task, or the one that the data's targets are of",
                       keys_only, own_options, true);
  s.config.bind("train", fields(s.train));
  s.config.bind("batch", fields(s.batch));
  s.optimizer = bind_choice(s.config, "optim", app.optimizers, s.optim.name, "the optimizer", keys_only, own_options);
  s.config.bind("optim", fields(s.optim));
  s.schedule = bind_choice(s.config, "schedule", app.schedules, s.schedule_options.name,
                           "how the learning rate moves after warm-up", keys_only, own_options);
  s.config.bind("schedule", fields(s.schedule_options));
  s.source = bind_choice(s.config, "data", app.data, s.data.name,
                         "source of samples: a file made by `lockstep data import`, or generated for benchmarks",
                         keys_only, [&](DataSource& source) { return source.options(s.data); });
  s.config.bind("data", fields(s.data));
  s.config.bind("", fields(s.parallel));
  s.config.bind("", comm_fields(s));
  s.config.bind("", fields(s.device));
  s.config.bind("checkpoint", fields(s.checkpoint));
  s.config.bind("recovery", fields(s.recovery));
  s.config.bind("compute", fields(s.compute));
  s.config.bind("verify", fields(s.verify));
  s.config.bind("profile", fields(s.profile));
  s.config.bind("init", fields(s.init));
  s.config.bind("lora", fields(s.lora));
  s.config.bind("resume", fields(s.resume));
  s.config.bind("launch", fields(s.launch));
  s.config.bind("chaos", fields(s.chaos));
}

// What the newest readable checkpoint of a run holds beside tensors.
std::optional<CheckpointInfo> newest_info(const std::string& dir) {
  for (const std::string& path : list_checkpoints(dir)) {
    try {
      return open_checkpoint(path).info;
    } catch (const Error&) {
      // Damaged: the error is reported when the run is resumed.
    }
  }
  return std::nullopt;
}

void resolve_micro_batch(Settings& s, int ranks, const std::optional<CheckpointInfo>& resumed) {
  trace_mark();
  if (s.batch.micro > 0) return;
  const int64_t before = resumed ? integer_in(resolved_math_text(*resumed), "batch.micro") : 0;
  if (before > 0) {
    s.batch.micro = before;
    s.config.resolve("batch.micro", before, "the value that the checkpoint was trained with");
    return;
  }
  require(s.batch.global % ranks == 0, ExitCode::kConfig, s.config.place("batch.micro"),
          ": 0 divides batch.global evenly, but ", s.batch.global, " samples do not divide among ", ranks,
          " ranks; set batch.micro");
  s.batch.micro = s.batch.global / ranks;
  s.batch.by_ranks = true;
  s.config.resolve("batch.micro", s.batch.micro, str("an equal share of batch.global for each of ", ranks, " ranks"));
}

std::unique_ptr<Settings> bind_settings(const App& app, ConfigTree tree, int ranks, bool resume) {
  auto s = std::make_unique<Settings>();
  s->config = Config(std::move(tree));
  bind_all(*s, app, false);
  s->config.finish();
  const std::optional<CheckpointInfo> resumed = resume ? newest_info(s->run.dir) : std::nullopt;
  if (resumed) {
    s->data.resumed = {resumed->dataset, resumed->samples};
    s->data.like = recorded_data(*resumed, s->run.dir);
  }
  resolve_micro_batch(*s, ranks, resumed);
  begin_steps(*s);
  check_settings(*s, app, ranks);
  s->metrics = app.metrics;
  s->tasks = app.tasks;
  s->settings_of_path = [app](const std::string& path) {
    return is_pretrained(path) ? settings_of_pretrained(app, path)
                               : settings_of_checkpoint(app, open_newest(path, false));
  };
  s->parallel.seed = static_cast<uint64_t>(s->seed);
  s->parallel.frozen_of_files = s->parallel.frozen_as != FrozenAs::kMasters || s->lora.rank > 0;
  s->parallel.frozen = [optim = s->optim, lora = s->lora, fresh = s->init.fresh](const std::string& name) {
    const bool adapted =
        lora.rank > 0 && !is_lora_parameter(name) && !matches_any(lora.train, name) && !matches_any(fresh, name);
    return adapted || is_frozen(optim, name);
  };
  return s;
}

// With the tensors that init.new names ignored in the folder.
std::shared_ptr<const HfModel> without_new(std::shared_ptr<const HfModel> model, const Settings& s) {
  if (!model || s.init.fresh.empty()) return model;
  auto out = std::make_shared<HfModel>(*model);
  if (model->family.empty()) out->ignored = s.init.fresh;  // a file with our names
  std::erase_if(out->tensors, [&](const HfTensor& t) {
    const bool is_new = !s.init_holds(name_in_model(t.name));
    if (is_new) out->ignored.insert(out->ignored.end(), t.from.begin(), t.from.end());
    return is_new;
  });
  return out;
}

// The data of a run that begins with another one's parameters means what it meant there.
std::shared_ptr<const LikeData> data_of_init(const App& app, const Settings& s) {
  std::string why;
  const auto data =
      s.pretrained ? data_of_folder(*s.pretrained) : data_of_run(app, open_newest(s.init.from, false), why);
  if (!data && !s.pretrained)
    log_warning(str(s.init.from, ": what its data means is not known", why.empty() ? "" : str(" (", why, ")"),
                    ": classes and normalisation are those of this run's data"));
  if (!data) return nullptr;
  auto like = std::make_shared<LikeData>(*data);
  like->name = s.init.from;
  like->new_classes = s.init.new_classes || (s.pretrained && !s.init.fresh.empty());
  like->remedy =
      "to learn other classes, set init.new_classes: true and name in init.new the parameters that learn them";
  return like;
}

}  // namespace

bool Settings::init_holds(const std::string& parameter) const {
  return !is_lora_parameter(parameter) && !matches_any(init.fresh, parameter);
}

std::unique_ptr<Settings> load_settings(const App& app, ConfigTree tree, int ranks, bool resume) {
  const auto pretrained = take_model_of_folder(tree);
  const auto adapter = take_adapter_of_folder(tree, pretrained.get());
  auto s = bind_settings(app, std::move(tree), ranks, resume);
  s->pretrained = without_new(pretrained, *s);
  s->adapter = adapter;
  if (!s->init.from.empty() && s->data.resumed.identity.empty())
    s->data_of_init = [app, self = s.get()] { return data_of_init(app, *self); };
  return s;
}

std::unique_ptr<Settings> settings_of_pretrained(const App& app, const std::string& path) {
  ConfigTree tree = ConfigTree::parse("{}", path);
  tree.set(str("init.from=", json_text_of(path)), path);
  return load_settings(app, std::move(tree), 1);
}

std::unique_ptr<Settings> settings_of_checkpoint(const App& app, const Checkpoint& c,
                                                 const std::vector<std::string>& overrides) {
  ConfigTree tree = ConfigTree::parse(c.info.config, c.dir + ": its configuration");
  // sharding.group may not divide the current number of ranks, and this machine may have no GPU; no training step is
  // run.
  for (const char* text : {"sharding.group=0", "device=auto", "graph=false"}) tree.set(text, "this command");
  for (const std::string& text : overrides) tree.apply_override(text);
  // What such a checkpoint does not hold is read from init.from again.
  const auto pretrained = c.info.base.empty() ? nullptr : take_model_of_folder(tree);
  auto s = bind_settings(app, std::move(tree), 1, false);  // an evaluation's samples divide among any number of ranks
  std::error_code ignored;
  require(c.info.base.empty() || std::filesystem::exists(s->init.from, ignored), ExitCode::kMissingInput, c.dir,
          ": does not hold its frozen parameters, which are those of init.from: ", s->init.from,
          ", and nothing is there; where that has moved, give init.from=PATH on the command line");
  s->data.resumed = {c.info.dataset, c.info.samples};
  s->data.like = recorded_data(c.info, c.dir);
  s->pretrained = without_new(pretrained, *s);
  return s;
}

std::vector<Config::WithoutEffect> keys_without_effect(const App& app, ConfigTree tree) {
  const auto pretrained = take_model_of_folder(tree);
  take_adapter_of_folder(tree, pretrained.get());
  Settings s;
  s.config = Config(std::move(tree));
  bind_all(s, app, false);
  return s.config.without_effect();
}

double deadline_of(const ConfigTree& tree) {
  Settings s;
  Config given(tree);
  given.bind("", comm_fields(s));
  return s.deadline;
}

bool resumes(const ConfigTree& tree) {
  RunOptions run;
  Config given(tree);
  given.bind("run", fields(run));
  return run.resume;
}

std::vector<ConfigKey> all_keys(const App& app) {
  Settings s;
  bind_all(s, app, true);
  return s.config.keys();
}

}  // namespace lockstep
