// What a caught exception means: an Error with its exit code, whatever its type.
// Plain functions.
#pragma once

#include <cstddef>
#include <exception>
#include <string>
#include <string_view>
#include <system_error>

#include "core/base/error.h"

namespace lockstep {

// An Error stays what it is. Memory that ran out (std::bad_alloc, std::length_error) and what the system refuses for
// want of memory, threads or processes are ExitCode::kDevice, a full disk is kStorage, the rest kInternal.
Error as_error(const std::exception_ptr& e);

// ExitCode::kDevice for a thread that could not be started; `whose` says which: "compute thread 3 of 8".
Error thread_refused(std::string_view whose, const std::system_error& e);

// Would the system still give `bytes`? Maps and unmaps them without touching a page, so that every limit counts
// (ulimit -v and -d, strict overcommit). For use before calling libraries that crash when memory runs out.
bool has_address_space(size_t bytes);

// "this process has 512 MiB in memory, 3900 MiB of address space (ulimit -v: 4000 MiB)"
std::string host_memory_text();

}  // namespace lockstep
