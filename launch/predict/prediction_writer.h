// PredictionWriter: the output of `lockstep predict`: a line of CSV or JSON for each sample, an array of NumPy, or a
// folder of PNG files. A file or folder appears under its name when it is complete; standard output is written as it
// comes. Owns the file; used by one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/json.h"
#include "launch/predict/predicted_values.h"

namespace lockstep {

// What the input says of a sample, such as its row's number, and a name of its own for a file.
struct KnownOfSample {
  JsonObject kept;
  std::string name;  // without ending; it may have folders
};

class PredictionWriter {
 public:
  virtual ~PredictionWriter() = default;
  virtual void add(const KnownOfSample& known, std::string_view sample) = 0;  // of the next sample
  virtual void finish() = 0;
};

enum class PredictionFormat : uint8_t { kCsv, kJson, kNumpy, kFolder };

// By the ending of a file's name, .csv, .jsonl, .ndjson or .npy; `named`, of --format, takes its place. Of pictures
// that is .npy, or any other name of a folder. Throws ExitCode::kUsage.
PredictionFormat prediction_format(const std::string& path, const std::string& named, bool pictures);

struct PredictionOutput {
  std::string path;  // empty: standard output
  PredictionFormat format = PredictionFormat::kCsv;
  bool replace = false;
};

// Throws what the writer would throw for the output's place.
void check_place(const PredictionOutput& output);

// `kept`: the names of what the input says of each sample; `count`: of samples. Throws ExitCode::kUsage where one of
// these is also a name of a predicted value, and what PendingFile throws.
std::unique_ptr<PredictionWriter> prediction_writer(const PredictionOutput& output, const PredictedValues& values,
                                                    const std::vector<std::string>& kept, int64_t count);

}  // namespace lockstep
