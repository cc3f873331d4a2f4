// What the system says of a process: for explaining why a rank does not answer. Linux's /proc.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

// 'R' running, 'S' sleeping, 'D' in the kernel, 'T' stopped by a signal, 't' by a debugger, 'Z' ended; 0: no such
// process.
char process_state(int64_t process);
// CPU seconds of the process so far; 0 if the system does not say.
double cpu_seconds(int64_t process);
// When it began, in ticks since the machine's start; -1 if the system does not say. With its number it tells it from
// any other process of this machine.
int64_t start_time(int64_t process);
std::string program_of(int64_t process);  // the path of its program; "" if the system does not say
// The program that this process runs: the same file, or one at its path, as after an update.
bool runs_this_program(int64_t process);
// Whether it has the file or folder open, by whatever path.
bool has_open(int64_t process, const std::string& path);
// The system call that a thread waits in: "futex", "poll", "system call 17"; "" if it runs or the system does not say.
std::string waits_in(int64_t process, int64_t thread);

}  // namespace lockstep
