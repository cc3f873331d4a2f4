#include "sharding/model_blocks.h"

#include <algorithm>

#include "core/base/error.h"

namespace lockstep {
namespace {

double bytes_of(const ModelBlock& block) {
  double bytes = 0;
  for (auto* parameters : {&block.trainable, &block.frozen})
    for (const NamedParameter& p : *parameters)
      bytes += static_cast<double>(p.parameter->value.numel()) * sizeof(float);
  return bytes;
}

template <class T>
void append(std::vector<T>& to, const std::vector<T>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

}  // namespace

ModelBlocks blocks_of(Module& model, const DataParallelOptions& options) {
  const auto is_frozen = [&](const std::string& name) { return options.frozen && options.frozen(name); };
  const std::vector<NamedParameter> all = model.parameters();
  require(std::any_of(all.begin(), all.end(), [&](auto& p) { return !is_frozen(p.name); }), ExitCode::kConfig,
          "the model has no trainable parameter");
  const double least = options.bucket_mb * 1e6;
  ModelBlocks out;
  size_t taken = 0;
  const auto take = [&](ModelBlock& into, size_t count) {
    for (; count > 0; --count, ++taken)
      (is_frozen(all[taken].name) ? into.frozen : into.trainable).push_back(all[taken]);
  };
  size_t of_children = 0;
  for (Module* child : model.blocks()) of_children += child->parameters().size();
  take(out.root, all.size() - of_children);
  const auto is_apart = [&](const Module& child) {
    return std::find(options.apart.begin(), options.apart.end(), child.name()) != options.apart.end();
  };
  bool closed = true;  // the last block takes no more
  for (Module* child : model.blocks()) {
    const size_t count = child->parameters().size();
    if (count == 0) continue;
    const auto first = all.begin() + static_cast<std::ptrdiff_t>(taken),
               end = first + static_cast<std::ptrdiff_t>(count);
    const bool trained = std::any_of(first, end, [&](const NamedParameter& p) { return !is_frozen(p.name); });
    if (!child->self_contained() && (trained || !child->may_be_apart())) {
      take(out.root, count);
      continue;
    }
    if (closed || is_apart(*child) || bytes_of(out.blocks.back()) >= least) out.blocks.emplace_back();
    closed = is_apart(*child);
    out.blocks.back().modules.push_back(child);
    take(out.blocks.back(), count);
  }
  // The last is small: it joins the one before.
  if (options.apart.empty() && out.blocks.size() > 1 && bytes_of(out.blocks.back()) < least) {
    const ModelBlock last = std::move(out.blocks.back());
    out.blocks.pop_back();
    append(out.blocks.back().modules, last.modules);
    append(out.blocks.back().trainable, last.trainable);
    append(out.blocks.back().frozen, last.frozen);
  }
  return out;
}

}  // namespace lockstep
