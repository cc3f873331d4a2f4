// A race detector for kernels on the stand-in for CUDA. Kernels are compiled with -fsanitize=thread, and this file's
// source defines the functions that such code calls before each access to memory, in place of the compiler's library,
// which knows threads of the operating system only. Two accesses to one byte by different threads of a launch, of which
// one writes, are a race unless a barrier of the block or a meeting of the warp lies between them. Happens-before is
// kept as in FastTrack (Flanagan and Freund, PLDI 2009): a number of barriers for each block, vector clocks within each
// warp. Reads of shared memory that no thread of the block has written are reported too, but for the `extern` array,
// which holds NaN until it is written: what is read there and not used does no harm.
// Limits: of the reads of a byte the last is kept, and the last of another warp; calls to memcpy are not seen.
#pragma once

#include <cstddef>

namespace cuda_stand_in::races {

// Whether launches are examined: from the environment, LOCKSTEP_STAND_IN_RACES=1, until it is set.
bool enabled();
void enable(bool on);

// What the launch of kernels reports, from one thread of the operating system at a time.
void begin_launch(const void* extern_shared, size_t bytes);
void begin_block(unsigned threads);
void begin_thread(unsigned thread, const void* stack, size_t stack_bytes);  // whenever a thread goes on
void meet_warp(unsigned warp, unsigned lanes);                              // all of them have come
void meet_block();
void end_launch();

}  // namespace cuda_stand_in::races
