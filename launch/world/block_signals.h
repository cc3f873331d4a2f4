// Signals that end the process are for the main thread alone.
#pragma once

#include <csignal>

#include <pthread.h>

namespace lockstep {

// In the calling thread, and in those that it starts from now on, no signal is delivered that another thread can take.
inline void block_signals() {
  sigset_t all;
  sigfillset(&all);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP}) sigdelset(&all, fault);
  ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
}

}  // namespace lockstep
