#include "data/samples/sample_target.h"

#include <algorithm>

#include "core/base/error.h"
#include "data/samples/report_parts.h"

namespace lockstep {

// Each in a file of its own in data/samples/targets.
const SampleTarget& label_target();
const SampleTarget& number_target();
const SampleTarget& mask_target();
const SampleTarget& box_target();

const std::vector<const SampleTarget*>& sample_targets() {
  static const std::vector<const SampleTarget*> all = {&label_target(), &number_target(), &mask_target(),
                                                       &box_target()};
  return all;
}

const SampleTarget& sample_target(TargetKind kind) { return *sample_targets()[static_cast<size_t>(kind)]; }

size_t target_of_name(const std::string& name) {
  const auto& all = sample_targets();
  const auto has_name = [&](const SampleTarget* target) { return target->words().name == name; };
  return static_cast<size_t>(std::find_if(all.begin(), all.end(), has_name) - all.begin());
}

// The line about classes, without its end.
std::string SampleTarget::text(const DatasetReport& r, const std::string& samples) const {
  return str("classes: ", r.classes, "\n", words_.counted.empty() ? samples : words_.counted,
             " per class: ", joined(counts_by_class(r), 20));
}

}  // namespace lockstep
