// A checkpoint's table of slices: as one writer sends it to another, and within a manifest that is otherwise right.
#include "tests/fuzz/checkpoint_text.h"

using namespace lockstep;

namespace {

constexpr std::string_view kHead =
    R"({"format":"lockstep checkpoint","version":6,"files":3,"writer":"0.1.0","step":7,"epoch":0,"position":21,)"
    R"("updates":7,"skipped_in_row":0,"skipped":0,"loss_scale":1.0,"good_steps":0,)"
    R"("dataset":"0123456789abcdef0123456789abcdef","isa":"avx2","ranks":3,"layout":"3 ranks, level parameters",)"
    R"("math_text":"seed: 1\n","config":"seed: 1\n","vocabulary":"byte","input":"64","classes":256})";

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t capacity, unsigned seed) {
  static const std::vector<std::string_view> words = {"{",
                                                      "}",
                                                      "[",
                                                      "]",
                                                      ",",
                                                      "\"",
                                                      "\"name\":",
                                                      "\"shape\":",
                                                      "\"begin\":",
                                                      "\"extent\":",
                                                      "\"offset\":",
                                                      "\"count\":",
                                                      "\"part\":",
                                                      "\"hash\":",
                                                      "\"0x5\"",
                                                      "\"1000000000x1000000000\"",
                                                      "\"\"",
                                                      "-1",
                                                      "64",
                                                      "128",
                                                      "9223372036854775807",
                                                      "9223372036854775744",
                                                      "18446744073709551615",
                                                      "1e3",
                                                      "null",
                                                      "x",
                                                      "\"a\"",
                                                      "0"};
  return fuzz::mutate_with_words(data, size, capacity, seed, words);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = fuzz::text_of(data, size);
  std::vector<StoredSlice> slices;
  if (!fuzz::is_accepted({ExitCode::kBadData}, [&] { slices = parse_slices(text, "the list"); })) return 0;
  const std::string again = slices_text(slices);
  fuzz::is_accepted({}, [&] { fuzz::expect(slices_text(parse_slices(again, "the list again")) == again, again); });
  fuzz::open_manifest(fuzz::with_hash(str(kHead, "\n", text)));
  return 0;
}
