#include "core/interop/named_tensors.h"

#include <algorithm>
#include <memory>

#include "core/base/error.h"
#include "core/interop/hf_model.h"
#include "core/interop/load_weights.h"
#include "core/state/state.h"

namespace lockstep {
namespace {
constexpr int64_t kPiece = 1 << 20;  // elements read at a time, of what is not in host memory
}  // namespace

NamedTensors tensors_of(const std::vector<StateEntry>& entries) {
  NamedTensors out;
  auto by_name = std::make_shared<std::map<std::string, StateEntry>>();
  for (const StateEntry& e : entries) {
    check(e.offset == 0 && e.data.numel() == e.region.shape.numel(), e.name, " is not whole");
    out.shapes.emplace(e.name, e.region.shape);
    by_name->emplace(e.name, e);
  }
  out.read = [by_name](const std::string& name, IndexRange range, float* to) {
    for_each_stretch(by_name->at(name).part(range.begin, range.end), kPiece,
                     [&](int64_t at, const float* values, int64_t n) { std::copy_n(values, n, to + at); });
  };
  return out;
}

NamedTensors tensors_of(const HfModel& m, const Module& built) {
  NamedTensors out;
  std::vector<StateEntry> entries;
  const auto add = [&](const std::string& name, const Shape& shape) {
    out.shapes[name] = shape;
    entries.push_back({name, shape, 0, Tensor()});
  };
  for (auto& [name, p] : built.parameters()) add(str(kParameters, name), p->value.shape());
  for (auto& [name, b] : built.buffers()) add(str(kBuffers, name), b->value.shape());
  const auto files = std::make_shared<const WeightFiles>(WeightFiles::open(m.folder));
  require_weights_for(m, *files, entries);
  out.read = [&m, files, shapes = out.shapes](const std::string& name, IndexRange range, float* to) {
    const auto tensor = std::find_if(m.tensors.begin(), m.tensors.end(), [&](auto& t) { return t.name == name; });
    read_weight(*tensor, shapes.at(name), m, *files, range, to);
  };
  return out;
}

}  // namespace lockstep
