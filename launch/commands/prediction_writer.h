// PredictionWriter: the output of `lockstep predict`: a line of CSV or JSON for each sample, or an array of NumPy. A
// file appears under its name when it is complete; standard output is written as it comes. Owns the file; used by one
// thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/json.h"
#include "launch/commands/predicted_values.h"

namespace lockstep {

class PredictionWriter {
 public:
  virtual ~PredictionWriter() = default;
  // What the input says of the next sample, such as its row's number, and its predicted values.
  virtual void add(const JsonObject& kept, std::string_view sample) = 0;
  virtual void finish() = 0;
};

enum class PredictionFormat : uint8_t { kCsv, kJson, kNumpy };

// By the ending of a file's name, .csv, .jsonl, .ndjson or .npy; `named`, of --format, takes its place. Throws
// ExitCode::kUsage.
PredictionFormat prediction_format(const std::string& path, const std::string& named);

struct PredictionOutput {
  std::string path;  // empty: standard output
  PredictionFormat format = PredictionFormat::kCsv;
  bool replace = false;
};

// `kept`: the names of what the input says of each sample; `count`: of samples. Throws ExitCode::kUsage where one of
// these is also a name of a predicted value, and what PendingFile throws.
std::unique_ptr<PredictionWriter> prediction_writer(const PredictionOutput& output, const PredictedValues& values,
                                                    const std::vector<std::string>& kept, int64_t count);

}  // namespace lockstep
