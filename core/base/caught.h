// Converts any caught exception into an Error with an exit code.
// Plain functions.
#pragma once

#include <cstddef>
#include <exception>
#include <string>
#include <string_view>
#include <system_error>

#include "core/base/error.h"

namespace lockstep {

// An Error is returned as it is. std::bad_alloc, std::length_error, and system errors for lack of memory, threads or
// processes become ExitCode::kDevice, a full disk kStorage, everything else kInternal.
Error as_error(const std::exception_ptr& e);

// ExitCode::kDevice for a thread that could not be started; `whose` says which: "compute thread 3 of 8".
Error thread_refused(std::string_view whose, const std::system_error& e);

// Whether the system would still grant `bytes` of address space, under all limits (ulimit -v and -d, strict
// overcommit). Maps and unmaps them without touching a page. For use before calls of libraries that crash when memory
// runs out.
bool has_address_space(size_t bytes);

// "this process has 512 MiB in memory, 3900 MiB of address space (ulimit -v: 4000 MiB)"
std::string host_memory_text();

}  // namespace lockstep
