#include "core/models/lstm.h"

namespace lockstep {

Choice<ModelKind> gru_choice() { return model_choice<Gru, RecurrentLmOptions>("gru"); }

}  // namespace lockstep
