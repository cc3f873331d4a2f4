// What the log says, as a run begins, of its data and of what the configuration makes of it. A plain function.
#pragma once

#include "data/streams/open_dataset.h"
#include "launch/config/settings.h"

namespace lockstep {

// Logs, with the keys: how many texts are longer than data.context, and what becomes of them; the weight of each class
// by its name (train.class_weights). For one rank.
void say_of_data(const Settings& settings, const Datasets& data);

}  // namespace lockstep
