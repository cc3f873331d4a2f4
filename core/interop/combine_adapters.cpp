#include "core/interop/combine_adapters.h"

#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "core/base/error.h"
#include "core/interop/hf_config.h"
#include "core/interop/peft_adapter.h"
#include "core/interop/peft_pattern.h"
#include "core/io/pending_file.h"
#include "core/io/safetensors.h"

namespace lockstep {
namespace {

// The two factors of a module by the ends of their tensors' names. A of linear layers is [rank, in] and of embeddings
// [rank, tokens], B [out, rank].
struct Factors {
  std::string a, b;
};
const Factors kFactors[] = {{".lora_A.weight", ".lora_B.weight"}, {".lora_embedding_A", ".lora_embedding_B"}};

struct Opened {
  const WeightedAdapter& given;
  HfConfig config;
  LoraOptions options;
  PeftPattern alphas;
  WeightFiles files;

  explicit Opened(const WeightedAdapter& adapter)
      : given(adapter),
        config(HfConfig::load(str(adapter.folder, "/", kPeftConfig))),
        options(peft_options(config)),
        alphas(config, "alpha_pattern"),
        files(WeightFiles::open(str(adapter.folder, "/", kPeftWeights))) {
    if (options.dora) config.refuse("use_dora", "true: such adapters do not add up");
  }
  double scale_of(const std::string& module, int64_t rank) const {
    return peft_options_of(config, options, alphas, module, rank).scale_of(module);
  }
  std::vector<float> values(const StoredWeight& w) const {
    std::vector<float> out(static_cast<size_t>(w.shape.numel()));
    files.read(w, {0, w.shape.numel()}, out.data());
    return out;
  }
};

// A module's factors in one of the adapters.
struct Share {
  const Opened* from;
  const StoredWeight *a, *b;
};
struct Combined {
  const Factors* factors;
  std::vector<Share> shares;
  int64_t rank = 0;
};

// Modules by name, in the order of names.
std::map<std::string, Combined> modules_of(const std::vector<Opened>& adapters) {
  std::map<std::string, Combined> out;
  for (const Opened& adapter : adapters) {
    std::set<std::string> known;
    for (const Factors& f : kFactors)
      for (const StoredWeight& a : adapter.files.weights()) {
        if (!a.name.starts_with(kPeftPrefix) || !a.name.ends_with(f.a)) continue;
        const std::string module = a.name.substr(0, a.name.size() - f.a.size());
        const StoredWeight* b = adapter.files.find(module + f.b);
        const bool fits = b && a.shape.rank() == 2 && b->shape.rank() == 2 && a.shape[0] == b->shape[1] &&
                          a.shape.numel() > 0 && b->shape.numel() > 0;
        require(fits, ExitCode::kBadData, adapter.files.path(), ": ", a.name, " has the shape ", a.shape, ", and ",
                module, f.b, b ? str(" ", b->shape) : std::string(" is missing"));
        Combined& c = out[module];
        if (!c.shares.empty()) {
          const Share& first = c.shares[0];
          require(c.factors == &f && first.a->shape[1] == a.shape[1] && first.b->shape[0] == b->shape[0],
                  ExitCode::kBadData, adapter.files.path(), ": ", a.name, " has the shape ", a.shape, ", and ", b->name,
                  " ", b->shape, ", but in ", first.from->files.path(), " these are ", first.a->shape, " and ",
                  first.b->shape, ": the adapters are of different models");
        }
        c.factors = &f;
        c.shares.push_back({&adapter, &a, b});
        adapter.scale_of(module.substr(kPeftPrefix.size()), a.shape[0]);  // is the rank in its range?
        c.rank += a.shape[0];
        require(c.rank <= kMostLoraRank, ExitCode::kBadData, adapter.files.path(), ": with ", a.name,
                " the ranks add up to ", c.rank, ", more than ", kMostLoraRank);
        known.insert(a.name), known.insert(b->name);
      }
    for (const StoredWeight& w : adapter.files.weights())
      require(known.contains(w.name) || w.name.ends_with(kBaseLayer), ExitCode::kBadData, adapter.files.path(), ": ",
              w.name, " is no factor of an adapter: what was trained whole does not add up");
  }
  return out;
}

std::vector<float> combined_a(const Combined& c) {
  std::vector<float> out;
  for (const Share& p : c.shares) {
    const std::vector<float> a = p.from->values(*p.a);
    out.insert(out.end(), a.begin(), a.end());
  }
  return out;
}

float number(double value, const StoredWeight& of) {
  require(std::abs(value) <= std::numeric_limits<float>::max(), ExitCode::kBadData, of.name,
          " times its weight: ", value, " is no number in fp32");
  return static_cast<float>(value);
}

std::vector<float> combined_b(const Combined& c, const std::string& module) {
  const int64_t rows = c.shares[0].b->shape[0];
  std::vector<float> out(static_cast<size_t>(rows * c.rank));
  for (int64_t column = 0; const Share& p : c.shares) {
    const std::vector<float> b = p.from->values(*p.b);
    const int64_t rank = p.b->shape[1];
    const double factor = p.from->given.weight * p.from->scale_of(module.substr(kPeftPrefix.size()), rank);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t k = 0; k < rank; ++k)
        out[static_cast<size_t>(r * c.rank + column + k)] = number(factor * b[static_cast<size_t>(r * rank + k)], *p.b);
    column += rank;
  }
  return out;
}

// Each alpha is the rank, so that nothing is scaled.
JsonObject config_of(const HfConfig& first, const std::map<std::string, Combined>& modules) {
  PeftModules out;
  LoraOptions o;
  o.rank = modules.begin()->second.rank;
  for (const auto& [module, c] : modules) {
    const std::string name = module.substr(kPeftPrefix.size());
    out.targets.emplace_back(name);
    if (c.rank != o.rank) out.ranks.emplace_back(name, c.rank);
  }
  out.alphas = out.ranks;
  const auto kept = [&](const char* key) { return first.has(key) ? JsonValue(first.text(key)) : JsonValue(nullptr); };
  return peft_config(out, o, kept("task_type"), kept("base_model_name_or_path"), first.truth("fan_in_fan_out", false));
}

}  // namespace

void combine_adapters(const std::vector<WeightedAdapter>& adapters, const std::string& out) {
  std::vector<Opened> opened;
  opened.reserve(adapters.size());
  for (const WeightedAdapter& adapter : adapters) opened.emplace_back(adapter);
  const std::map<std::string, Combined> modules = modules_of(opened);
  require(!modules.empty(), ExitCode::kBadData, opened.at(0).files.path(), ": holds no adapter");
  std::vector<WeightToWrite> weights;
  for (const auto& [module, c] : modules) {
    weights.push_back({module + c.factors->a, {c.rank, c.shares[0].a->shape[1]}});
    weights.push_back({module + c.factors->b, {c.shares[0].b->shape[0], c.rank}});
  }
  PendingFolder folder(out);
  {
    WeightWriter file(folder / kPeftWeights, weights);
    for (const auto& [module, c] : modules)
      for (const std::vector<float>& values : {combined_a(c), combined_b(c, module)})
        file.write(values.data(), static_cast<int64_t>(values.size()));
    file.commit();
  }
  folder.write(kPeftConfig, json_line(config_of(opened[0].config, modules)) + "\n");
  folder.commit();
}

}  // namespace lockstep
