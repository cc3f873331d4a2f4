// FlightRecorder: what the threads of a rank do now and did last (phases of a step, exchanges, saves), in memory that
// outlives the process, without a name in any folder: whoever started the rank made it, and reads it while the rank
// runs, hangs or is gone. Off unless the environment names it (LOCKSTEP_FLIGHT); then a phase costs two readings of the
// clock. One per process.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/plain_file.h"

namespace lockstep {

// The mapped memory; public only for the reader. All numbers are written by one thread each.
struct FlightMemory;

inline std::atomic<FlightMemory*> flight_memory{nullptr};
inline bool flight_recording() { return flight_memory.load(std::memory_order_relaxed) != nullptr; }

// Memory for one recorder, which others open as /proc/PID/fd/NUMBER. Throws ExitCode::kStorage.
Descriptor make_flight_memory();

// Records from now on into such memory, which no other process has recorded into. Throws ExitCode::kStorage.
void start_flight_recorder(const std::string& path);

// Marks what the calling thread does until the end of the scope; scopes may nest. Text longer than an entry is cut.
class FlightPhase {
 public:
  explicit FlightPhase(std::string_view what) {
    if (flight_recording()) begin(what);
  }
  ~FlightPhase() {
    if (on_) end();
  }
  FlightPhase(const FlightPhase&) = delete;
  FlightPhase& operator=(const FlightPhase&) = delete;

 private:
  void begin(std::string_view what);
  void end();
  bool on_ = false;
};

// The same without a scope: for calls whose begin and end stand in different functions. A thread has one at a time.
void begin_flight_call(std::string_view what, int64_t number);
void end_flight_call();

// The numbers of the last finished step.
struct FlightStep {
  int64_t step = 0, total = 0;
  double loss = 0;
  double items_per_s = 0;             // of all ranks
  double step_ms = 0, waited_ms = 0;  // of that step: whole, and waiting for other ranks
  // The rank from which this one receives slowest, and at how many MB/s; -1: not known. Filled in by
  // record_flight_step() from the transfers since the step before.
  int64_t slow_from = -1;
  double slow_mb_s = 0;
};
void record_flight_step(const FlightStep& step);
// `bytes` came from rank `from` of the job within `seconds`. Of each rank the fastest transfer counts, since others may
// include that it was late.
void record_flight_transfer(int from, int64_t bytes, double seconds);

// One thread of the rank.
struct FlightLane {
  int64_t thread = 0;    // the system's number of it
  std::string doing;     // its innermost phase or call; empty: none
  int64_t number = -1;   // of a call: its sequence number
  bool call = false;     // an exchange with other ranks
  int64_t since_ns = 0;  // by CLOCK_MONOTONIC of that host
};
struct FlightEvent {
  std::string what;
  int64_t thread = 0, number = -1;
  bool call = false;
  int64_t begin_ns = 0, end_ns = 0;
};
struct FlightState {
  int64_t process = 0;
  FlightStep step;
  std::vector<FlightLane> lanes;
  std::vector<FlightEvent> events;  // that ended, oldest first; as many as the rings still hold
};

// Reads what another process records, also while it is written. Of one of another version, nothing.
class FlightReader {
 public:
  explicit FlightReader(const Descriptor& memory);
  ~FlightReader();
  FlightReader(const FlightReader&) = delete;
  FlightReader& operator=(const FlightReader&) = delete;
  // Events that ended since the last read; all that are left at the first one.
  std::optional<FlightState> read();

 private:
  const FlightMemory* memory_ = nullptr;
  std::vector<uint64_t> seen_;
};

}  // namespace lockstep
