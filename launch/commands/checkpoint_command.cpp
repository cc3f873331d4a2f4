#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>

#include "core/base/log.h"
#include "core/interop/combine_adapters.h"
#include "core/io/json.h"
#include "core/state/checkpoint.h"
#include "data/samples/schema.h"
#include "launch/arguments/chosen_checkpoint.h"
#include "launch/arguments/command_line.h"
#include "launch/checkpoints/machine_parts.h"
#include "launch/commands/commands.h"
#include "launch/config/config.h"
#include "launch/export/checkpoint_export.h"
#include "launch/terminal/output.h"
#include "launch/world/world.h"

namespace lockstep {
namespace {

constexpr int64_t kCompared = 1 << 20;  // elements read at a time

// One tensor of a checkpoint, merged from all its slices.
struct StoredTensor {
  Shape shape;
  int64_t slices = 0;
};
std::map<std::string, StoredTensor> tensors_of(const Checkpoint& c) {
  std::map<std::string, StoredTensor> out;
  for (const StoredSlice& s : c.slices) {
    StoredTensor& t = out[s.name];
    if (t.slices++ == 0) t.shape = s.region.shape;
  }
  return out;
}

int64_t bytes_of(const Checkpoint& c) {
  int64_t bytes = 0;
  for (const StoredSlice& s : c.slices) bytes += s.count * 4;
  return bytes;
}

std::string size_text(const Checkpoint& c) { return str(tensors_of(c).size(), " tensors, ", bytes_of(c), " bytes"); }

std::string describe(const Checkpoint& c) {
  const CheckpointInfo& i = c.info;
  const std::string layout = i.layout.empty() ? str(i.ranks, i.ranks == 1 ? " rank" : " ranks") : i.layout;
  std::string out =
      str("checkpoint  ", c.dir, "\nstep        ", i.step, "\ndata        epoch ", i.epoch, ", ", i.position,
          " samples done; dataset ", i.dataset, "\nupdates     ", i.updates, ", ", i.skipped, " steps skipped\n");
  if (!i.data_schema.empty()) out += str("schema      ", described(parse_schema(i.data_schema, c.dir)), "\n");
  if (!i.base.empty()) out += str("base        frozen parameters with the hash ", i.base, ", which init.from holds\n");
  if (!i.reference.empty()) out += str("reference   a model with the hash ", i.reference, "\n");
  if (i.loss_scale != 1) out += str("loss scale  ", i.loss_scale, ", for ", i.good_steps, " steps\n");
  if (const auto& v = i.validation; v.loss || v.best) {
    out += str("validation  ", v.loss ? str("loss ", *v.loss) : std::string("not measured here"));
    if (v.value) out += str("; ", v.metric, " ", *v.value);
    out += v.best ? str("; the ", v.highest ? "highest" : "lowest", " so far: ", *v.best, ", after step ", v.best_step,
                        "\n")
                  : std::string("\n");
  }
  out += str("written by  lockstep ", i.writer, ", ", layout, ", ", i.isa, "\n\n");
  for (auto& [name, t] : tensors_of(c))
    out += str("fp32 ", t.shape, "  ", name, t.slices > 1 ? str("  in ", t.slices, " slices") : "", "\n");
  return out + str("\n", size_text(c), ", all checksums match\n");
}

JsonObject described(const Checkpoint& c) {
  const CheckpointInfo& i = c.info;
  std::vector<JsonObject> tensors;
  for (auto& [name, t] : tensors_of(c))
    tensors.push_back({{"name", name}, {"type", "fp32"}, {"shape", JsonText{to_text(t.shape)}}, {"slices", t.slices}});
  return {{"checkpoint", c.dir},
          {"step", i.step},
          {"epoch", i.epoch},
          {"samples_done", i.position},
          {"dataset", i.dataset},
          {"schema", i.data_schema.empty() ? JsonValue(nullptr) : JsonValue(JsonText{i.data_schema})},
          {"base", i.base.empty() ? JsonValue(nullptr) : JsonValue(i.base)},
          {"reference", i.reference.empty() ? JsonValue(nullptr) : JsonValue(i.reference)},
          {"updates", i.updates},
          {"skipped_steps", i.skipped},
          {"loss_scale", i.loss_scale},
          {"good_steps", i.good_steps},
          {"validation_loss", i.validation.loss ? JsonValue(*i.validation.loss) : JsonValue(nullptr)},
          {"writer", i.writer},
          {"ranks", i.ranks},
          {"layout", i.layout},
          {"isa", i.isa},
          {"digest", to_hex(digest_of(c))},
          {"bytes", bytes_of(c)},
          {"tensors", json_array(tensors)}};
}

// All checkpoints of a run directory, or `dir` itself if it is a checkpoint.
void verify(const std::string& dir, bool json) {
  std::vector<std::string> all = list_checkpoints(dir);
  const bool listed = !all.empty();
  if (!listed) {
    std::error_code error;
    require(!std::filesystem::is_directory(dir, error) || std::filesystem::exists(dir + "/manifest.json", error),
            ExitCode::kMissingInput, dir, ": holds no checkpoint");
    all = {dir};
  }
  std::string first_problem;
  int64_t damaged = 0;
  std::vector<JsonObject> list;
  for (const std::string& path : all) {
    try {
      const Checkpoint c = hold_checkpoint(path);
      verify_checkpoint(c);
      list.push_back({{"checkpoint", path},
                      {"whole", true},
                      {"tensors", static_cast<int64_t>(tensors_of(c).size())},
                      {"bytes", bytes_of(c)}});
      if (!json) print_out(str("whole    ", path, "  ", size_text(c), "\n"));
    } catch (const Error& e) {
      if (listed && was_retired(path)) {  // by its run, which goes on
        if (!json) print_out(str("retired  ", path, "  meanwhile\n"));
        continue;
      }
      if (e.code() != ExitCode::kBadData) throw;
      if (++damaged == 1) first_problem = e.what();
      list.push_back({{"checkpoint", path}, {"whole", false}, {"problem", std::string(e.what())}});
      if (!json) print_out(str("damaged  ", path, "  ", e.what(), "\n"));
    }
  }
  if (json) print_out(json_line({{"damaged", damaged}, {"checkpoints", json_array(list)}}) + "\n");
  require(
      damaged == 0, ExitCode::kBadData,
      damaged > 1 ? str(dir, ": ", damaged, " of ", all.size(), " checkpoints are damaged; the newest of them: ") : "",
      first_problem);
}

std::string place_text(const Shape& shape, int64_t element) {
  Shape at = shape;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    at[i] = element % shape[i];
    element /= shape[i];
  }
  return to_text(at);
}

// Counts the elements of one tensor that differ in bits, so a NaN equals itself.
struct Elements {
  int64_t count = 0, first = 0;
  float first_a = 0, first_b = 0;
  double largest = 0;
};
Elements different_elements(const Checkpoint& a, const Checkpoint& b, const std::string& name, int64_t n) {
  Elements out;
  std::vector<float> x(static_cast<size_t>(std::min(n, kCompared))), y(x.size());
  for_each_piece({0, n}, kCompared, [&](IndexRange r) {
    read_elements(a, name, r, x.data());
    read_elements(b, name, r, y.data());
    for (int64_t i = 0; i < r.size(); ++i) {
      const float v = x[static_cast<size_t>(i)], w = y[static_cast<size_t>(i)];
      if (std::bit_cast<uint32_t>(v) == std::bit_cast<uint32_t>(w)) continue;
      if (++out.count == 1) out.first = r.begin + i, out.first_a = v, out.first_b = w;
      const double difference = std::abs(static_cast<double>(v) - static_cast<double>(w));
      out.largest =
          std::isnan(difference) ? std::numeric_limits<double>::infinity() : std::max(out.largest, difference);
    }
  });
  return out;
}

// The comparison of two checkpoints, as lines of text and as one JSON object.
class StateComparison {
 public:
  StateComparison(const Checkpoint& a, const Checkpoint& b) {
    text_ = str("A: ", a.dir, "\nB: ", b.dir, "\n");
    json_ = {{"a", a.dir}, {"b", b.dir}};
    const CheckpointInfo &i = a.info, &j = b.info;
    value("step", i.step, j.step);
    value("epoch", i.epoch, j.epoch);
    value("samples done", i.position, j.position);
    value("updates", i.updates, j.updates);
    const auto later = [](const CheckpointInfo& c, size_t k) {
      return k < c.later_updates.size() ? c.later_updates[k] : int64_t{0};
    };
    for (size_t k = 0; k < std::max(i.later_updates.size(), j.later_updates.size()); ++k)
      value(str("updates of phase ", k + 2), later(i, k), later(j, k));
    value("steps skipped", i.skipped, j.skipped);
    value("loss scale", str(i.loss_scale, " for ", i.good_steps, " steps"),
          str(j.loss_scale, " for ", j.good_steps, " steps"));
    value("dataset", i.dataset, j.dataset);
    if (!i.base.empty() || !j.base.empty()) value("base", i.base, j.base);
    if (!i.reference.empty() || !j.reference.empty()) value("reference", i.reference, j.reference);
    const auto keys = diff(i.math_text, j.math_text);
    for (const ConfigDifference& d : keys) value(d.key, d.a, d.b);
    if (keys.empty()) text_ += "configuration that shapes the mathematics: equal\n";
    compare_tensors(a, b);
    const bool equal = values_.empty() && different_ == 0;
    text_ += equal ? "equal\n"
                   : str("different; ", different_, " of ", static_cast<int64_t>(tensors_.size()), " tensors differ\n");
    json_.emplace_back("equal", equal);
    json_.emplace_back("differences", json_array(values_));
    json_.emplace_back("different_tensors", different_);
    json_.emplace_back("tensors", json_array(tensors_));
    equal_ = equal;
  }

  bool equal() const { return equal_; }  // in everything that digest_of covers
  const std::string& text() const { return text_; }
  std::string json() const { return json_line(json_) + "\n"; }

 private:
  template <class T>
  void value(const std::string& what, const T& x, const T& y) {
    text_ += x == y ? str(what, ": ", x, "\n") : str(what, ": ", x, " in A, ", y, " in B\n");
    if (!(x == y)) values_.push_back({{"what", what}, {"a", x}, {"b", y}});
  }

  void tensor(const std::string& name, const std::string& said, bool equal, const JsonObject& more = {}) {
    text_ += str(name, " ", said, "\n");
    JsonObject& object = tensors_.emplace_back(JsonObject{{"name", name}, {"equal", equal}, {"said", said}});
    object.insert(object.end(), more.begin(), more.end());
    different_ += !equal;
  }

  void compare_tensors(const Checkpoint& a, const Checkpoint& b) {
    const auto in_a = tensors_of(a), in_b = tensors_of(b);
    for (auto& [name, t] : in_a) {
      const auto other = in_b.find(name);
      if (other == in_b.end()) {
        tensor(name, str(t.shape, ": only in A"), false);
      } else if (!(t.shape == other->second.shape)) {
        tensor(name, str(t.shape, " in A, ", other->second.shape, " in B"), false);
      } else if (digest_of(a, name) == digest_of(b, name)) {
        tensor(name, str(t.shape, ": equal"), true);
      } else {
        const int64_t n = t.shape.numel();
        const Elements e = different_elements(a, b, name, n);
        tensor(name,
               str(t.shape, ": ", e.count, " of ", n, " elements differ, by ", e.largest, " at most; the first at ",
                   place_text(t.shape, e.first), ": ", e.first_a, " in A, ", e.first_b, " in B"),
               false, {{"elements", n}, {"different_elements", e.count}, {"largest_difference", e.largest}});
      }
    }
    for (auto& [name, t] : in_b)
      if (!in_a.count(name)) tensor(name, str(t.shape, ": only in B"), false);
  }

  std::string text_;
  JsonObject json_;
  std::vector<JsonObject> values_, tensors_;
  int64_t different_ = 0;
  bool equal_ = true;
};

}  // namespace

std::vector<Command> checkpoint_forms() {
  const std::string dir =
      "DIR is a checkpoint, or a run directory, which stands for its newest valid one. Every checksum is verified.";
  const char* kFormats = "h5, safetensors, npz, hf, hf-bf16, llmc or llmc-bf16";
  const std::vector<Option> json{{"json", "one JSON object"}};
  return {
      {"checkpoint inspect", "checkpoint inspect DIR [--json]", "Lists what a checkpoint holds.\n" + dir, json, 1, 1},
      {"checkpoint digest", "checkpoint digest DIR [--json]",
       "Prints one value for the logical state, independent of its layout; equal runs have equal digests. It is\n"
       "alone on standard output.\n" +
           dir,
       json, 1, 1},
      {"checkpoint verify", "checkpoint verify DIR [--json]",
       "Checks that a checkpoint is complete and undamaged; of a run directory, each checkpoint. Exit code 65 if\n"
       "one is not.",
       json, 1, 1},
      {"checkpoint diff", "checkpoint diff A B [--json]",
       "Prints how two states differ, independent of their layouts; exit code 1 if they differ. A and B are\n"
       "checkpoints, or run directories, which stand for their newest valid ones.",
       json, 2, 2},
      {"checkpoint export",
       "checkpoint export DIR OUT [init.from=PATH] [--to FORMAT] [--best | --at STEP] [--ema] [--json]",
       "Writes parameters and buffers, unsharded, to a new file or folder. By default the name of OUT says which:\n"
       "with .safetensors, .npz (NumPy), .h5 or .hdf5 it is such a file, with the names of this program. --to hf\n"
       "writes a folder that Hugging Face's transformers opens: config.json and weights with its names, of the models "
       "gpt,\n"
       "llama, bert, vit and resnet, hf-bf16 with weights in bf16; --to llmc writes a GPT-2 as llm.c reads it, "
       "llmc-bf16 in bf16. What a LoRA run\n"
       "trained is merged into its model; --to peft writes the adapters alone, as a folder that Hugging Face's peft\n"
       "opens.\n" +
           dir,
       with_choice_of_checkpoint({{"to", "h5, safetensors, npz, hf, hf-bf16, llmc, llmc-bf16 or peft", "FORMAT", ""},
                                  {"ema", "the averages of the parameters (optim.ema)"},
                                  json[0]}),
       2, 3},
      {"checkpoint collect", "checkpoint collect DIR FROM... [--json]",
       "Brings together in the run directory DIR the files of checkpoints that several machines wrote on disks of\n"
       "their own (run.per_machine); each FROM is the run directory of one of them. Then verifies all of DIR's.",
       json, 2, 100000},
      {"checkpoint convert",
       "checkpoint convert MODEL OUT [--to FORMAT] [--json]",
       "Writes the weights of MODEL, a folder of transformers or a GPT-2 of llm.c, in another format, as export does\n"
       "those of a checkpoint.",
       {{"to", kFormats, "FORMAT", ""}, json[0]},
       2,
       2},
      {"checkpoint combine", "checkpoint combine OUT ADAPTER[=WEIGHT]... [--json]",
       "Writes one adapter of peft, the new folder OUT, that does what several do together: each ADAPTER, a folder of\n"
       "an adapter of the same model, counts by its WEIGHT, any number (1). Ranks add up.",
       json, 2, 1000}};
}

namespace {

// "folder=0.5"; without a number it counts 1.
WeightedAdapter weighted(const std::string& text) {
  const size_t at = text.rfind('=');
  if (at == text.npos) return {text, 1};
  require(at > 0, ExitCode::kUsage, "checkpoint combine: ", text, ": names no folder");
  double weight = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data() + at + 1, end, weight);
  require(error == std::errc() && rest == end && std::isfinite(weight), ExitCode::kUsage, "checkpoint combine: ", text,
          ": '", text.substr(at + 1), "' is no weight; give a number, such as ", text.substr(0, at), "=0.5");
  return {text.substr(0, at), weight};
}

int combine(const Arguments& a) {
  std::vector<WeightedAdapter> adapters;
  for (size_t i = 1; i < a.positional.size(); ++i) adapters.push_back(weighted(a.positional[i]));
  const std::string& out = a.positional[0];
  combine_adapters(adapters, out);
  print_out(a.has("json") ? json_line({{"adapter", out}, {"combined", static_cast<int64_t>(adapters.size())}}) + "\n"
                          : str("combined ", adapters.size(), " adapters in ", out, "\n"));
  return 0;
}

}  // namespace

int checkpoint_command(const App& app, const std::vector<std::string>& given) {
  Arguments a = parse_arguments(checkpoint_forms(), given);
  if (a.help || !is_first_process()) return 0;
  const std::vector<std::string> moved = a.form == "export" ? take_init_from(a) : std::vector<std::string>{};
  require(a.form != "export" || a.positional.size() == 2, ExitCode::kUsage, "lockstep checkpoint export: ",
          a.positional.size() < 2 ? "missing argument OUT" : str("unexpected argument '", a.positional.back(), "'"),
          "; --help says more");
  const bool json = a.has("json");
  if (a.form == "verify") {
    verify(a.positional[0], json);
    return 0;
  }
  if (a.form == "collect") {
    collect_checkpoints(a.positional[0], {a.positional.begin() + 1, a.positional.end()});
    verify(a.positional[0], json);
    return 0;
  }
  if (a.form == "combine") return combine(a);
  if (a.form == "convert") {
    convert_weights(app, a.positional[0], {a.positional[1], a.text("to"), false, json});
    return 0;
  }
  const Checkpoint c = open_newest(a.form == "export" ? chosen_checkpoint(a) : a.positional[0]);
  if (a.form == "diff") {
    const StateComparison d(c, open_newest(a.positional[1]));
    print_out(json ? d.json() : d.text());
    return d.equal() ? 0 : 1;
  }
  if (a.form == "export") {
    export_checkpoint(app, c, {a.positional[1], a.text("to"), a.has("ema"), json, moved});
  } else if (a.form == "inspect") {
    print_out(json ? json_line(described(c)) + "\n" : describe(c));
  } else {
    const std::string digest = to_hex(digest_of(c));
    if (!json) log_info(str("step ", c.info.step, " of ", c.dir));
    print_out(json ? json_line({{"checkpoint", c.dir}, {"step", c.info.step}, {"digest", digest}}) + "\n"
                   : digest + "\n");
  }
  return 0;
}

}  // namespace lockstep
