// Text from a model in a program of one's own, without YAML or Trainer: a decoder of two places continues prompts of
// bytes, the next one as soon as a place is free.
//   own_decoder PROMPT...
#include <cstdio>
#include <string>
#include <vector>

#include "lockstep/lockstep.h"

using namespace lockstep;

namespace {

void continue_all(Model& model, const TaskSpec& task, const std::vector<std::string>& prompts) {
  Decoder decoder(model, task, {.places = 2, .place_tokens = 64});
  size_t next = 0;
  while (next < prompts.size() || decoder.free_places() < decoder.places()) {
    for (; next < prompts.size() && decoder.free_places() > 0; ++next)
      decoder.admit({.prompt = {prompts[next].begin(), prompts[next].end()},
                     .tokens = 8,
                     .sampling = {.temperature = 0.9, .top_k = 40, .seed = 7},
                     .ends = {'\n'}});
    for (const Decoded& d : decoder.step()) {
      if (d.token) std::printf("%d: token %d\n", static_cast<int>(d.id), *d.token);
      if (d.finish != Finish::kNone) std::printf("%d: %s\n", static_cast<int>(d.id), to_text(d.finish));
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const TaskSpec task{{64}, 256};  // 64 tokens, each a byte
  Gpt model({.layers = 2, .heads = 4, .width = 64}, task);
  place_parameters(model, 1);  // random; model.load() reads a file of weights
  model.eval();
  continue_all(model, task, {argv + 1, argv + argc});
}
