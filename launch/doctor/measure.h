// Measures the ranks of a job, for `lockstep doctor`.
#pragma once

#include <string>

#include "comm/communicator.h"
#include "launch/doctor/doctor_report.h"

namespace lockstep {

// Measures how fast each rank computes and reads memory, the links between ranks, the clocks, and the file system of
// `dir`, where each machine writes and reads a temporary file. Returns the same on every rank. Collective. Throws on
// all ranks ExitCode::kStorage or kOutputLocked where `dir` cannot be written.
Health examine(Communicator& comm, const std::string& dir);

}  // namespace lockstep
