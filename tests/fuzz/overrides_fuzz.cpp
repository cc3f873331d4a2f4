// Overrides: each line of the input is one, applied to a configuration that is whole; then load_settings.
#include "launch/config/settings.h"
#include "tests/fuzz/config_words.h"
#include "tests/fuzz/fuzz.h"

using namespace lockstep;

namespace {

constexpr size_t kMostOverrides = 16;
constexpr std::string_view kBase = R"(seed: 1
run: {dir: runs/fuzz}
train: {steps: 2000, eval_every: 500}
batch: {global: 12, micro: 3}
model: {name: gpt, layers: 4, heads: 4, width: 128}
optim:
  name: adamw
  lr: 3.0e-3
  rules:
    - {pattern: "*.bias", decay: off}
schedule: {name: cosine, warmup: 100}
data: {path: data.h5, context: 64}
)";

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t capacity, unsigned seed) {
  return fuzz::mutate_with_words(data, size, capacity, seed, fuzz::config_words());
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const App app = builtin();
  const int ranks = 1 + static_cast<int>(size % 4);
  std::vector<std::string> overrides;
  for (std::string_view rest = fuzz::text_of(data, size); !rest.empty() && overrides.size() < kMostOverrides;) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    overrides.emplace_back(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  std::unique_ptr<Settings> settings;
  const bool accepted = fuzz::is_accepted({ExitCode::kConfig}, [&] {
    settings = load_settings(app, ConfigTree::parse(kBase, "base.yaml", overrides), ranks);
  });
  if (accepted) fuzz::expect_same_when_read_again(app, *settings, ranks);
  else fuzz::expect_place(fuzz::outcomes().last_refusal, "base.yaml");
  return 0;
}
