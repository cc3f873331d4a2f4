// Checkpoints' manifests: the text as it is, and once more with a closing hash that is right.
#include "tests/fuzz/checkpoint_text.h"

using namespace lockstep;

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t capacity, unsigned seed) {
  static const std::vector<std::string_view> words = {"{",
                                                      "}",
                                                      "[",
                                                      "]",
                                                      ",",
                                                      ":",
                                                      "\"",
                                                      "\n",
                                                      "null",
                                                      "true",
                                                      "1e308",
                                                      "-1",
                                                      "0",
                                                      "64",
                                                      "\\u0000",
                                                      "\\ud800",
                                                      "\"step\":",
                                                      "9223372036854775807",
                                                      "\"version\":",
                                                      "\"ranks\":",
                                                      "\"files\":",
                                                      "\"config\":",
                                                      "\"name\":",
                                                      "\"shape\":",
                                                      "\"begin\":\"0x0\",",
                                                      "\"extent\":",
                                                      "\"offset\":",
                                                      "\"count\":",
                                                      "\"part\":",
                                                      "\"hash\":",
                                                      "\"input\":",
                                                      "\"classes\":",
                                                      "\"loss_scale\":",
                                                      "{\"hash\":\"",
                                                      "18446744073709551615",
                                                      "1000000000000000x1000",
                                                      "\n  keep: 1"};
  return fuzz::mutate_with_words(data, size, capacity, seed, words);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = fuzz::text_of(data, size);
  const std::string closed = fuzz::with_hash(text);
  fuzz::open_manifest(text);
  if (closed != text) fuzz::open_manifest(closed);
  return 0;
}
