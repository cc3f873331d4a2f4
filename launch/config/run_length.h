// How many steps a run has: train.steps, or what train.epochs or train.tokens amount to with its data. Plain functions.
#pragma once

#include "data/samples/dataset.h"
#include "launch/config/settings.h"

namespace lockstep {

// Whether train.epochs or train.tokens says how long the run is, and no data has told yet how many steps that is.
bool needs_data_for_steps(const Settings& settings);

// While the configuration is loaded, without data: where train.epochs or train.tokens is given, train.steps is 0 until
// resolve_steps(); otherwise schedules that end with the run get their end. Throws ExitCode::kConfig naming the keys
// where more than one of the three is given.
void begin_steps(Settings& settings);

// With the training part of the data: train.steps becomes the fewest steps with which the run is as long as it is to
// be, the other key becomes 0, and schedules get their end; from then on the configuration shows that. Nothing
// happens where that is known. Ranks that are threads may call it at the same time. Throws ExitCode::kConfig where
// the data has no tokens, or samples of several lengths, for train.tokens, and where there would be more than 1e12
// steps.
void resolve_steps(Settings& settings, const Dataset& train);

// The steps of an epoch are ceil(samples / batch): none of them reaches into the next epoch.
int64_t steps_of_samples(int64_t samples, int64_t epoch, int64_t batch);

// "1000 steps", "3 epochs", "50000000 tokens": as given, or what the data made of it.
std::string length_text(const Settings& settings);

}  // namespace lockstep
