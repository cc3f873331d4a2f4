// Configuration: a YAML text through the whole of load_settings.
#include "launch/config/settings.h"
#include "tests/fuzz/config_words.h"
#include "tests/fuzz/fuzz.h"

using namespace lockstep;

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t capacity, unsigned seed) {
  return fuzz::mutate_with_words(data, size, capacity, seed, fuzz::config_words());
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const App app = builtin();
  const int ranks = 1 + static_cast<int>(size % 4);
  std::unique_ptr<Settings> settings;
  const bool accepted = fuzz::is_accepted({ExitCode::kConfig}, [&] {
    settings = load_settings(app, ConfigTree::parse(fuzz::text_of(data, size), "fuzz.yaml"), ranks);
  });
  if (accepted) fuzz::expect_same_when_read_again(app, *settings, ranks);
  else fuzz::expect_place(fuzz::outcomes().last_refusal, "fuzz.yaml");
  return 0;
}
