// Whole HDF5 files of any origin, through what `data inspect` does. What opens is read to its end. libhdf5 itself may
// die of a damaged file that is not ours; the driver lists such deaths.
#include "core/base/log.h"
#include "data/import.h"
#include "tests/fuzz/fuzz.h"

using namespace lockstep;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::string path = fuzz::scratch("file.h5");
  set_log_level(LogLevel::kError);  // each file without a seal has a warning
  fuzz::write_file(path, fuzz::text_of(data, size));
  fuzz::is_accepted({ExitCode::kBadData}, [&] { to_text(inspect_dataset(path)); });
  return 0;
}
