#include "optim/tensor_optimizer.h"

#include <algorithm>

#include "core/device/context.h"
#include "core/ops/ops.h"
#include "core/tensor/raw_ops.h"

namespace lockstep {
namespace {

constexpr int64_t kPart = 1 << 22;  // elements that are updated at a time, which bounds the memory of temporary tensors

}  // namespace

void TensorOptimizer::update_slot(const Slot& slot, const std::vector<Tensor>& moments, const float*) {
  const NoGrad no_grad;
  const WithMemoryUse use(MemoryUse::kScratch);
  const int64_t elements = slot.master.numel();
  for (int64_t begin = 0; begin < elements; begin += kPart)
    update_part(slot, moments, begin, std::min(begin + kPart, elements));
}

void TensorOptimizer::update_part(const Slot& slot, const std::vector<Tensor>& moments, int64_t begin,
                                  int64_t end) const {
  const auto number = [&](int index) { return control().slice(0, index, index + 1); };
  const Tensor skip = number(UpdateControl::kSkip);
  const auto write = [&](const Tensor& to, const Tensor& value, std::string_view what) {
    check(value.shape() == to.shape() && value.dtype() == DType::kFloat32, "optimizer: the new ", what, " of ",
          slot.name, " is ", to_text(value.dtype()), " ", value.shape(), "; it must be fp32 ", to.shape());
    raw::copy(to, where(skip, to, value));
  };
  TensorUpdate update{.parameter = slot.master.slice(0, begin, end),
                      .gradient = slot.gradient.slice(0, begin, end) * number(UpdateControl::kGradScale),
                      .moments = {},
                      .lr = number(UpdateControl::kLr) * slot.lr_scale,
                      .first_correction = number(UpdateControl::kCorrection1),
                      .second_correction = number(UpdateControl::kCorrection2),
                      .decay = slot.decay};
  for (const Tensor& moment : moments) update.moments.push_back(moment.slice(0, begin, end));
  const Tensor parameter = updated(update);
  check(update.moments.size() == moments.size(), "optimizer: an update of ", slot.name, " left ", update.moments.size(),
        " moments of ", moments.size());
  for (size_t i = 0; i < moments.size(); ++i) write(moments[i].slice(0, begin, end), update.moments[i], "moment");
  write(update.parameter, parameter, "value");
  if (slot.copy) raw::copy(slot.copy.slice(0, begin, end), update.parameter);
}

}  // namespace lockstep
