#include "core/models/model.h"

#include <algorithm>

#include "core/base/trace.h"

namespace lockstep {

const Shape& TaskSpec::shape_of(std::string_view name) const {
  if (const TensorSpec* found = find(name)) return found->shape;
  std::string there;
  for (const TensorSpec& t : tensors) there += str(there.empty() ? "'" : ", '", t.name, "'");
  throw Error(ExitCode::kConfig,
              str("the model does not fit the data: it reads '", name, "', but the data gives ", there));
}

Tensor Model::forward(const Tensor&) {
  throw Error(ExitCode::kInternal, "this model is of several tensors, and is called with one");
}

Tensor Model::output_of(const Batch& batch) {
  trace_mark();
  const std::vector<TensorNeed> needs = reads();
  const std::string name = needs.empty() ? "" : needs.front().name;
  return (*this)(name.empty() ? batch.tensors().front().second : batch[name]);
}

std::string unmet_need(const std::vector<TensorNeed>& needs, const std::vector<TensorSpec>& there) {
  using Type = TensorNeed::Type;
  for (const TensorNeed& need : needs) {
    const auto found = std::find_if(there.begin(), there.end(), [&](const TensorSpec& t) {
      return (need.name.empty() ? &t == &there.front() : t.name == need.name) &&
             (need.type == Type::kAny || is_floating(t.dtype) == (need.type == Type::kFloating)) &&
             (need.rank < 0 || t.shape.rank() == need.rank);
    });
    if (found != there.end()) continue;
    std::string text = str("it reads '", need.name.empty() ? "the first tensor" : need.name, "'");
    if (need.type != Type::kAny) text += need.type == Type::kFloating ? ", floating point" : ", integers";
    if (need.rank >= 0) text += str(", ", need.rank, need.rank == 1 ? " dimension a sample" : " dimensions a sample");
    text += ", but the data gives ";
    for (size_t i = 0; i < there.size(); ++i)
      text += str(i ? ", " : "", "'", there[i].name, "' (", to_text(there[i].dtype), " ", there[i].shape, ")");
    if (!need.source.empty()) text += "; set " + need.source;
    return text;
  }
  return "";
}

}  // namespace lockstep
