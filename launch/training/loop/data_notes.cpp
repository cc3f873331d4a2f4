#include "launch/training/loop/data_notes.h"

#include "core/base/log.h"
#include "core/base/text_table.h"
#include "launch/training/weights/build_model.h"

namespace lockstep {
namespace {

constexpr size_t kNamedClasses = 20;

void say_of_long_records(const Settings& s, const DataSpec& spec) {
  if (spec.long_records == 0) return;
  const std::string counted =
      str(spec.long_records, " of ", spec.records, spec.records == 1 ? " text is" : " texts are", " longer than ",
          s.config.place("data.context"), ": ", s.data.context, " tokens, ");
  if (spec.longest > 0)
    log_warning(str(spec.long_records, " of ", spec.records, " pairs have an answer that ends beyond ",
                    s.config.place("data.context"), ": ", s.data.context,
                    " tokens with its prompt, and what is beyond is not read; the longest has ", spec.longest_record));
  else if (spec.vocabulary > 0)
    log_warning(str(counted, "and what is beyond is not read; the longest has ", spec.longest_record));
  else
    log_info(
        str(counted, "and become several samples, each of which begins anew; the longest has ", spec.longest_record));
}

void say_of_class_weights(const Settings& s, const Datasets& data) {
  const std::vector<double> weights = class_weights(s, task_of(data.train->spec()));
  if (weights.empty()) return;
  const auto names = data.like_this ? data.like_this->schema.class_names : std::vector<std::string>{};
  std::string all;
  for (size_t c = 0; c < std::min(weights.size(), kNamedClasses); ++c)
    all += str(c ? ", " : "", fixed(weights[c], 4), " of ", c < names.size() ? names[c] : str("class ", c));
  log_info(str(s.config.place("train.class_weights"), ": ", all,
               weights.size() > kNamedClasses ? str(" and those of ", weights.size() - kNamedClasses, " more") : ""));
}

void say_of_pairs(const Settings& s, const Dataset& data) {
  if (const int64_t left = data.spec().records - data.size(); data.spec().longest > 0 && left > 0)
    log_warning(str(left, " of ", data.spec().records, " pairs are not used: ", s.config.place("data.context"),
                    " or data.ignore_tokens leaves one of their answers without a token"));
}

}  // namespace

void say_of_data(const Settings& settings, const Datasets& data) {
  say_of_pairs(settings, *data.train);
  say_of_long_records(settings, data.train->spec());
  say_of_class_weights(settings, data);
}

}  // namespace lockstep
