// Requests for texts: the paths of OpenAI's API, and /tokenize and /detokenize as vLLM has them.
#pragma once

#include <string>

#include "launch/serve/routes.h"
#include "launch/serve/text_request.h"
#include "launch/text/text_engine.h"

namespace lockstep {

// `model` and `engine` outlive the routes. `fingerprint`: replies' system_fingerprint.
Routes text_routes(const ServedText& model, TextEngine& engine, const std::string& fingerprint);

}  // namespace lockstep
