// Adam with weight decay in the gradient. The optimizer itself is AdamW's (adamw.cpp).
#include "optim/adam_family.h"

namespace lockstep {

Choice<OptimizerKind> adam_choice() { return choice<OptimizerKind, AdamFamilyKind<make_adam>>("adam"); }

}  // namespace lockstep
