// A palette of masks: what is accepted has a class with a name of its own for each colour but those that are none.
#include <set>

#include "data/import/images/mask_values.h"
#include "tests/fuzz/fuzz.h"

using namespace lockstep;

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t capacity, unsigned seed) {
  static const std::vector<std::string_view> words = {"255", "256", "0",       " ",        "\t", ",",
                                                      "\n",  "#",   " ignore", " class 1", "-1"};
  return fuzz::mutate_with_words(data, size, capacity, seed, words);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::string path = fuzz::scratch("palette.txt");
  fuzz::write_file(path, fuzz::text_of(data, size));
  MaskPalette palette;
  if (!fuzz::is_accepted({ExitCode::kBadData}, [&] { palette = read_mask_palette(path); })) return 0;
  const std::set<std::string> names(palette.names.begin(), palette.names.end());
  fuzz::expect(names.size() == palette.names.size() && !names.contains("") && names.size() < kNoMaskClass, "names");
  std::set<uint8_t> classes;
  for (const auto& [colour, value] : palette.classes) {
    fuzz::expect(colour < 1 << 24 && (value == kNoMaskClass || value < palette.names.size()), "a class that is none");
    if (value != kNoMaskClass) fuzz::expect(classes.insert(value).second, "two colours of one class");
  }
  fuzz::expect(classes.size() == palette.names.size(), "a class without a colour");
  return 0;
}
