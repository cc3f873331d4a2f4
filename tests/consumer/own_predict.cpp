// What a trained model says of a row of numbers: how probable each class is.
//   own_predict RUN NUMBER...
#include <cstdio>
#include <cstdlib>

#include "lockstep/lockstep.h"

using namespace lockstep;

int main(int argc, char** argv) {
  if (argc < 3) return std::printf("usage: own_predict RUN NUMBER...\n"), static_cast<int>(ExitCode::kUsage);
  std::vector<float> row;
  for (int i = 2; i < argc; ++i) row.push_back(std::strtof(argv[i], nullptr));
  try {
    TrainedModel model(argv[1]);  // a run directory, a checkpoint or a folder of transformers
    const Tensor probabilities = model.predict(Tensor::of(row, {1, argc - 2}));  // [samples, classes]
    for (int64_t label = 0; double p : probabilities.to_vector())
      std::printf("%s %.6f\n", model.class_name(label++).c_str(), p);
  } catch (const Error& e) {
    return std::fprintf(stderr, "error: %s\n", e.what()), static_cast<int>(e.code());
  }
}
