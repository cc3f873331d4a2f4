// Options of the commands that continue texts, `lockstep generate` and `lockstep chat`.
#pragma once

#include <memory>
#include <vector>

#include "core/decode/decoder.h"
#include "launch/app.h"
#include "launch/arguments/command_line.h"
#include "launch/text/text_model.h"

namespace lockstep {

// `own`, and the options that the functions below read.
std::vector<Option> with_generation_options(std::vector<Option> own);

// Of the first positional argument, of --best and --at, and of init.from=PATH (take_init_from), which may follow it.
// Throws what open_origin() throws, and ExitCode::kUsage for --ema without averages.
Origin origin_of(const App& app, Arguments& arguments);
// Its model, with what --ema and --precision say. Throws what load_model_of() throws.
std::unique_ptr<Model> model_of(const Origin& origin, const Arguments& arguments);

// By --template, --template-values, --stop, --ignore-end and --special-tokens; `chat`: prompts are messages.
Manner manner_of(const Arguments& arguments, bool chat, Origin& origin);

// What every prompt is continued with: --tokens, --temperature and the like.
DecodeRequest request_of(const Arguments& arguments);

}  // namespace lockstep
