// A data race detector for kernels on the stand-in for CUDA.
//
// The kernels are compiled with -fsanitize=thread, so that they call a function before each access to memory. races.cpp
// defines those functions in place of the compiler's library, which knows the threads of the operating system only.
// Two accesses to one byte by different threads of a launch, at least one of them a write, are a race unless a barrier
// of the block or a synchronisation of the warp (a shuffle, a vote, __syncwarp) lies between them. Happens-before is
// tracked as in FastTrack (Flanagan and Freund, PLDI 2009), with a count of barriers for each block and vector clocks
// within each warp. A race ends the launch with an error that names both threads.
//
// A read of shared memory that no thread of the block has written is an error, too. The kernel's `extern` array is
// exempt: it holds NaN until it is written, which shows in the results where such a value is used.
//
// Limits: of the reads of a byte, only the last one and the last one of another warp are kept; memcpy() is not seen
// where the compiler calls the C library's.
#pragma once

#include <cstddef>

namespace cuda_stand_in::races {

// Whether launches are examined: as LOCKSTEP_STAND_IN_RACES=1 in the environment says, until enable() is called.
bool enabled();
void enable(bool on);

// For the launcher of kernels, which runs one launch at a time. Nothing happens in them while the detector is disabled.
void begin_launch(const void* extern_shared, size_t bytes);
void begin_block(unsigned threads);
// A thread of the block begins or goes on, on this stack, whose accesses are its own.
void begin_thread(unsigned thread, const void* stack, size_t stack_bytes);
void meet_warp(unsigned warp, unsigned lanes);  // all of `lanes`, a bit each, have come
void meet_block();                              // all threads of the block have come
void end_launch();

}  // namespace cuda_stand_in::races
