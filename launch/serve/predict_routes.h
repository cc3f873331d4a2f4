// Requests for predictions: /v1/predict, with rows of a table, texts, or an image as its body; and /v1/embeddings, in
// the form of OpenAI's API, for texts and the values of a layer.
#pragma once

#include <string>

#include "launch/predict/predict_service.h"
#include "launch/serve/routes.h"

namespace lockstep {

// The model that is served. Lives as long as the server.
struct ServedPredictions {
  const Predictor& predictor;
  std::string name;           // as requests name it
  std::string fingerprint;    // of its weights; empty: not known
  int64_t most_samples = 64;  // of one request
  bool embeds = false;        // the service gives the values of a layer
};

// Both outlive the routes.
Routes predict_routes(const ServedPredictions& model, PredictService& service);

// The request of a body. Throws ApiError.
PredictRequest read_predict(const HttpRequest& request, const ServedPredictions& model);

struct AskedEmbeddings {
  PredictRequest request;
  bool base64 = false;  // float32, little endian; else lists of numbers
  int64_t tokens = 0;
};
// Of /v1/embeddings. Throws ApiError.
AskedEmbeddings read_embeddings(const HttpRequest& request, const ServedPredictions& model);

}  // namespace lockstep
