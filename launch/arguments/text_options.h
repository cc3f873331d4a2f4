// Options of the commands that continue texts: `lockstep generate`, `lockstep chat` and `lockstep serve`.
#pragma once

#include <memory>
#include <vector>

#include "core/decode/decoder.h"
#include "launch/app.h"
#include "launch/arguments/command_line.h"
#include "launch/text/text_model.h"

namespace lockstep {

// `own`, and the options of origin_of() and precision_of().
std::vector<Option> with_model_options(std::vector<Option> own);
// These, and the options that all functions below read.
std::vector<Option> with_generation_options(std::vector<Option> own);

// Of the first positional argument, of --best and --at, and of init.from=PATH (take_init_from), which may follow it.
// Throws what open_origin() throws, and ExitCode::kUsage for --ema without averages.
Origin origin_of(const App& app, Arguments& arguments);
// What the model computes in, by --precision. Says so where the run was trained in another type.
DType precision_of(const Arguments& arguments, const Origin& origin);
// Its model, with what --ema and --precision say. Throws what load_model_of() throws.
std::unique_ptr<Model> model_of(const Origin& origin, const Arguments& arguments);

// By --template, --template-values, --stop, --ignore-end and --special-tokens; `chat`: prompts are messages.
Manner manner_of(const Arguments& arguments, bool chat, Origin& origin);

// What every prompt is continued with: --tokens, --temperature and the like.
DecodeRequest request_of(const Arguments& arguments);

}  // namespace lockstep
