#include "data/streams/data_identity.h"

#include "core/base/error.h"
#include "data/samples/dataset_file.h"
#include "data/samples/foreign_file.h"
#include "data/streams/open_dataset.h"

namespace lockstep {

std::vector<std::string> named_files(const DataOptions& o) {
  std::vector<std::string> out{o.path, o.validation_path};
  for (const DataSourceFile& source : o.sources) out.push_back(source.path);
  std::erase(out, "");
  return out;
}

std::map<std::string, std::string> file_identities(const DataOptions& o) {
  std::map<std::string, std::string> out;
  if (o.name != "hdf5") return out;
  const bool foreign = !o.hdf5.samples.empty() || !o.hdf5.labels.empty();
  for (const std::string& pattern : named_files(o)) {
    try {
      const std::vector<std::string> paths = files_of(pattern, o);
      std::string all;
      for (const std::string& path : paths) {
        const Hdf5File file = Hdf5File::open(foreign ? hashes_path(path, o.hdf5.samples, o.hdf5.labels) : path);
        out[path] = foreign ? file.string_attribute("", "identity") : to_hex(read_dataset_header(file).identity);
        all += str(path, " ", out[path], "\n");
      }
      if (paths != std::vector{pattern}) out[pattern] = to_hex(hash128(all.data(), all.size()));
    } catch (const Error&) {
      // The run that opens it fails and says why.
    }
  }
  return out;
}

}  // namespace lockstep
