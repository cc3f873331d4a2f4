#include "launch/predict/predict_service.h"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <utility>

#include "comm/local/local_comm.h"
#include "core/base/error.h"
#include "core/base/host.h"
#include "core/base/log.h"
#include "core/base/trace.h"
#include "core/device/stream.h"
#include "data/streams/unlabelled.h"
#include "launch/predict/predicted_values.h"
#include "launch/predict/prediction_inputs.h"
#include "launch/training/evaluation/predict.h"
#include "launch/training/step/placed_task.h"
#include "launch/training/weights/build_model.h"
#include "launch/world/block_signals.h"
#include "launch/world/devices.h"
#include "launch/world/temp_dir.h"

namespace lockstep {

// What the service's thread owns.
struct PredictService::Model {
  explicit Model(Predictor& from)
      : comm(std::move(make_local_communicators(1).front())),
        stream(place_alone(from.settings->device), Stream::Mode::kInline, available_cores()),
        with(stream),
        folder(*comm) {
    apply(from.settings->device, stream);
  }

  std::unique_ptr<Communicator> comm;
  Stream stream;
  WithStream with;
  TempDir folder;                 // of the samples of a request, as files
  std::optional<Datasets> first;  // which the task refers to
  std::optional<PlacedTask> placed;
  std::unique_ptr<PredictedValues> of_layer;  // null where predictions are asked for
};

namespace {

constexpr const char* kRows = "rows.jsonl";

void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  out.close();
  require(out.good(), ExitCode::kStorage, path, ": cannot be written");
}

// The samples of a request as the files that `lockstep predict` reads.
std::vector<std::string> write_samples(const PredictRequest& request, const std::string& folder) {
  std::vector<std::string> out;
  if (!request.rows.empty()) {
    std::string lines;
    for (const JsonObject& row : request.rows) lines += json_line(row) + "\n";
    write_file(out.emplace_back(str(folder, "/", kRows)), lines);
  }
  for (size_t i = 0; i < request.images.size(); ++i) {
    const bool png = request.images[i].starts_with("\x89PNG");
    write_file(out.emplace_back(str(folder, "/image ", i, png ? ".png" : ".jpg")), request.images[i]);
  }
  return out;
}

// An error in the request's own terms: without the folder of its files.
std::exception_ptr of_request(const Error& e, const std::string& folder) {
  std::string text = e.what();
  for (size_t at; (at = text.find(folder + "/")) != text.npos;) text.erase(at, folder.size() + 1);
  const std::string rows = std::string(kRows) + ":";
  for (size_t at = 0; (at = text.find(rows, at)) != text.npos;) text.replace(at, rows.size(), "row ");
  return std::make_exception_ptr(e.with_message(text));
}

}  // namespace

PredictService::PredictService(Predictor& predictor, const PredictServiceOptions& options)
    : predictor_(predictor), options_(options) {
  thread_ = std::thread([this] { run(); });
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return ready_; });
  if (!failure_) return;
  lock.unlock();
  thread_.join();
  std::rethrow_exception(failure_);
}

PredictService::~PredictService() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

bool PredictService::submit(PredictRequest request, OnPredictions on_predictions) {
  const std::lock_guard lock(mutex_);
  if (drains_ || ends_ || static_cast<int64_t>(waiting_.size()) >= options_.most_waiting) {
    ++counts_.refused;
    return false;
  }
  waiting_.push_back({std::move(request), std::move(on_predictions)});
  changed_.notify_all();
  return true;
}

bool PredictService::drain() {
  const std::lock_guard lock(mutex_);
  drains_ = true;
  return waiting_.empty() && !busy_;
}

PredictService::Counts PredictService::counts() const {
  const std::lock_guard lock(mutex_);
  Counts out = counts_;
  out.waiting = static_cast<int64_t>(waiting_.size()) + busy_;
  return out;
}

bool PredictService::drains() const {
  const std::lock_guard lock(mutex_);
  return drains_;
}

void PredictService::run() {
  trace_mark();
  block_signals();
  std::optional<Model> model;
  try {
    if (options_.layer.empty()) {
      require(predictor_.settings->data.mask == 0, ExitCode::kUsage, predictor_.place,
              ": was trained to find hidden tokens (data.mask), and says nothing of a whole text; --layer tells what a "
              "layer of it gives");
      predicted_values(predictor_.data->schema, predictor_.input, {});  // refuses what predicts nothing
    }
    model.emplace(predictor_);
  } catch (...) {
    failure_ = std::current_exception();
  }
  {
    const std::lock_guard lock(mutex_);
    ready_ = true;
  }
  changed_.notify_all();
  if (!failure_) work(*model);
}

void PredictService::work(Model& model) {
  for (;;) {
    Job job;
    {
      std::unique_lock lock(mutex_);
      busy_ = false;
      changed_.wait(lock, [this] { return ends_ || !waiting_.empty(); });
      if (ends_) break;
      job = std::move(waiting_.front());
      waiting_.pop_front();
      busy_ = true;
    }
    const auto begun = std::chrono::steady_clock::now();
    Predictions found;
    std::exception_ptr error;
    const std::string folder = model.folder / "request";
    try {
      std::filesystem::create_directory(folder);
      found = predict_all(model, job.request);
    } catch (const Error& e) {
      error = of_request(e, folder);
    } catch (...) {
      error = std::current_exception();
    }
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
    {
      const std::lock_guard lock(mutex_);
      ++counts_.requests, counts_.samples += job.request.samples();
      counts_.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
    }
    job.on_predictions(std::move(found), error);
  }
  const std::lock_guard lock(mutex_);
  for (const Job& job : waiting_)
    job.on_predictions({}, std::make_exception_ptr(Error(ExitCode::kInternal, "the server ends")));
  waiting_.clear();
}

Predictions PredictService::predict_all(Model& model, const PredictRequest& request) {
  trace_mark();
  const std::string folder = model.folder / "request";
  const DataSchema& schema = predictor_.data->schema;
  Settings& settings = *predictor_.settings;
  InputOptions how;
  how.context = predictor_.input.rank() == 1 && settings.data.mask == 0 ? predictor_.input[0] : 0;
  how.is_table = schema.kind == DataKind::kTokens;
  if (schema.kind != DataKind::kImages) how.keep = std::vector<std::string>{};
  PredictionInputs inputs(write_samples(request, folder), *predictor_.data, folder, std::move(how));
  DataOptions data = settings.data;
  data.measured = DataPart::kAll;
  if (schema.kind == DataKind::kImages)  // of any size, resized to that of the run
    data.image.height = predictor_.input[0], data.image.width = predictor_.input[1];
  const UnlabelledSource source(inputs.datasets(), predictor_.data);
  Datasets opened = source.open(data, static_cast<uint64_t>(settings.seed));
  const std::shared_ptr<const Dataset> samples = opened.validation;
  if (!model.placed) {
    TaskSpec shapes = task_of(samples->spec());
    if (samples->spec().next_tokens) shapes.input = predictor_.input;  // texts may be shorter
    require(shapes.input == predictor_.input, ExitCode::kBadData, "the samples are ", samples->spec().input().name, " ",
            shapes.input, ", but ", predictor_.place, " was trained on ", predictor_.input);
    model.first = std::move(opened);
    try {
      model.placed.emplace(settings, *model.first, *model.comm, shapes, PlacedTask::Use::kPredict);
      if (predictor_.checkpoint) model.placed->load_parameters(*predictor_.checkpoint, options_.averages);
      else model.placed->load_initial();
      if (!options_.layer.empty())
        model.of_layer = layer_values(model.placed->task().module(), options_.layer, options_.pooling);
    } catch (...) {
      model.of_layer.reset();
      model.placed.reset();  // the next request tries again, and never computes with other weights
      throw;
    }
  }
  std::unique_ptr<PredictedValues> predicted;
  if (!model.of_layer) predicted = predicted_values(schema, predictor_.input, {.top = request.top, .colours = {}});
  PredictedValues& values = model.of_layer ? *model.of_layer : *predicted;
  EvalOptions options = model.placed->eval_options();
  options.micro_batch = samples_at_once(samples->spec());
  Predictions out;
  std::string parts;  // of a sample: the windows of a text
  predict(
      model.placed->task(), model.placed->parallel(), *samples, options,
      [&](const Tensor& output, const Batch& batch) { return values.encode(output, batch); },
      [&](const PredictedSamples& some) {
        const size_t bytes = values.bytes();
        for (int64_t i = 0; i < some.count; ++i) {
          if (parts.empty()) inputs.next();
          parts += some.bytes.substr(static_cast<size_t>(i) * bytes, bytes);
          if (parts.size() < bytes * static_cast<size_t>(inputs.parts())) continue;
          const std::string sample = values.joined(parts);
          parts.clear();
          if (values.is_picture()) out.pictures.push_back(values.png(sample));
          else out.samples.push_back(values.json(sample));
        }
      });
  return out;
}

}  // namespace lockstep
