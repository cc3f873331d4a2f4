// Samples a second that the loader gives, without training.
//   loader_bench FILE BATCH THREADS [context=N | size=N]
// FILE is a dataset file; context, of text, the tokens of a sample; size, of images, the pixels of its sides. For 3 s;
// the first batch, for which threads begin, is not counted. peers/torch_loader.py runs it beside PyTorch's.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "core/base/error.h"
#include "data/streams/loader.h"
#include "data/streams/open_dataset.h"

using namespace lockstep;

int main(int argc, char** argv) {
  if (argc < 4 || argc > 5) {
    std::fprintf(stderr, "usage: loader_bench FILE BATCH THREADS [context=N | size=N]\n");
    return 64;
  }
  try {
    DataOptions options;
    options.path = argv[1];
    options.validation = 0;
    const int64_t batch = std::atoll(argv[2]);
    const std::string_view extent = argc > 4 ? argv[4] : "";
    if (extent.starts_with("context=")) options.context = std::atoll(argv[4] + 8);
    if (extent.starts_with("size=")) options.image.height = options.image.width = std::atoll(argv[4] + 5);
    const Datasets data = open_datasets(options, 1);
    LoaderOptions o;
    o.batch_global = o.batch_micro = batch;
    o.threads = std::atoi(argv[3]);
    Loader loader(*data.train, o);
    loader.next();
    const auto start = std::chrono::steady_clock::now();
    int64_t samples = 0;
    double seconds = 0;
    while (seconds < 3) {
      samples += loader.next().samples;
      seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    }
    std::printf("%.0f samples/s\n", static_cast<double>(samples) / seconds);
  } catch (const Error& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
  }
}
