#include "launch/arguments/vocabulary_options.h"

#include "core/base/error.h"

namespace lockstep {

Option whole_texts_option() {
  return {"whole-texts", "encode texts whole though tokenizer.json has truncation or padding, which is else refused"};
}

Option template_values_option(const std::string& readers) {
  return {"template-values",
          readers + "what the chat template may ask for, in every conversation: {\"enable_thinking\": false}", "JSON",
          ""};
}

LengthRules length_rules(const Arguments& arguments) {
  return arguments.has("whole-texts") ? LengthRules::kIgnore : LengthRules::kRefuse;
}

Option invalid_option() {
  return {"invalid", "bytes that are no UTF-8: refuse them, or replace them by U+FFFD; default: refuse", "HOW", ""};
}

InvalidBytes invalid_bytes(const Arguments& arguments) {
  const std::string& how = arguments.text("invalid");
  require(how.empty() || how == "refuse" || how == "replace", ExitCode::kUsage, "--invalid ", how,
          ": must be refuse or replace");
  return how == "replace" ? InvalidBytes::kReplace : InvalidBytes::kRefuse;
}

}  // namespace lockstep
