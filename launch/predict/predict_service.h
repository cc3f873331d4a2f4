// PredictService: what a run or a folder of transformers predicts for samples that callers have in memory, with one
// model that stays loaded, in a thread of its own. The predictions are those of `lockstep predict` for the same samples
// in a file, whatever else is asked.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/io/json.h"
#include "data/samples/data_kind.h"
#include "launch/predict/layer_values.h"
#include "launch/predict/predictor.h"

namespace lockstep {

struct PredictServiceOptions {
  bool averages = false;   // of the parameters (optim.ema)
  std::string layer = {};  // what this module gives, in the place of predictions (launch/predict/layer_values.h)
  Pooling pooling = Pooling::kMean;
  int64_t most_waiting = 256;  // requests
};

// Samples of one kind, that which the model reads.
struct PredictRequest {
  std::vector<JsonObject> rows = {};     // of a table: cells by the names of columns; of texts: {"text": TEXT}
  std::vector<std::string> images = {};  // PNG or JPEG files' bytes
  int64_t top = 1;                       // how many classes are told; 0: each of them, in their order
  int64_t samples() const { return static_cast<int64_t>(rows.size() + images.size()); }
};

struct Predictions {
  std::vector<JsonObject> samples;    // as a line of JSON of `lockstep predict`, without the request's own columns
  std::vector<std::string> pictures;  // PNG files, of a model of masks
};

class PredictService {
 public:
  // Throws ExitCode::kUsage for a model that predicts nothing of a sample, where no layer is named. The model is loaded
  // with the first request, in the service's thread; where that fails, so does the request. `predictor` lives as long
  // as the service.
  PredictService(Predictor& predictor, const PredictServiceOptions& options);
  ~PredictService();  // requests that wait are answered with an error
  PredictService(const PredictService&) = delete;

  // Called in the service's thread; must not throw. `error`: null, or an Error: ExitCode::kBadData naming the sample
  // that cannot be read, such as "row 2: column 'x' holds 'abc'".
  using OnPredictions = std::function<void(Predictions predictions, std::exception_ptr error)>;
  // False where too many requests wait, or after drain().
  bool submit(PredictRequest request, OnPredictions on_predictions);
  // No more requests are taken. Whether all have ended.
  bool drain();
  struct Counts {
    int64_t waiting = 0;  // requests, also the one that is being answered
    int64_t requests = 0, samples = 0, refused = 0;
    double seconds = 0;  // spent on them
  };
  Counts counts() const;
  bool drains() const;  // whether drain() was called

 private:
  struct Model;
  struct Job {
    PredictRequest request;
    OnPredictions on_predictions;
  };

  void run();
  void work(Model& model);
  Predictions predict_all(Model& model, const PredictRequest& request);

  Predictor& predictor_;
  const PredictServiceOptions options_;

  mutable std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  std::deque<Job> waiting_;
  Counts counts_;
  bool ready_ = false, busy_ = false, drains_ = false, ends_ = false;
  std::exception_ptr failure_;
  std::thread thread_;
};

}  // namespace lockstep
