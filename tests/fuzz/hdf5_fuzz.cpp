// Whole HDF5 files of any origin, through what `data inspect` and `data verify` do, and read in place by the names of
// two datasets. What opens is read to its end. libhdf5 itself may die of a damaged file that is not ours; the driver
// lists such deaths.
#include <filesystem>

#include "core/base/log.h"
#include "data/import/import.h"
#include "data/samples/foreign_file.h"
#include "data/samples/inspect.h"
#include "data/samples/verify.h"
#include "tests/fuzz/fuzz.h"

using namespace lockstep;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::string path = fuzz::scratch("file.h5");
  set_log_level(LogLevel::kError);  // each file without a seal has a warning
  fuzz::write_file(path, fuzz::text_of(data, size));
  const bool whole = fuzz::is_accepted({ExitCode::kBadData}, [&] { to_text(inspect_dataset(path)); });
  if (verify_dataset(path).whole() != whole) std::abort();
  std::filesystem::remove(hashes_path(path, "images", "labels"));
  fuzz::is_accepted({ExitCode::kBadData, ExitCode::kConfig},
                    [&] { open_foreign_file(path, "images", "labels", 1 << 20); });
  return 0;
}
