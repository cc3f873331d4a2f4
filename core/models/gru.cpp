#include "core/models/lstm.h"

namespace lockstep {

Choice<ModelKind> gru_choice() { return model_choice<GruLm, RecurrentLmOptions>("gru"); }

}  // namespace lockstep
