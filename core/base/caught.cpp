#include "core/base/caught.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <new>

namespace lockstep {
namespace {

Error out_of_memory(std::string_view what) {
  return Error(ExitCode::kDevice, str("out of memory", what.empty() ? "" : ": ", what, "; ", host_memory_text()));
}

bool wants_storage(const std::error_code& code) {
  return code == std::errc::no_space_on_device || code == std::errc::io_error || code == std::errc::file_too_large ||
         code == std::error_code(EDQUOT, std::generic_category());
}

}  // namespace

Error as_error(const std::exception_ptr& e) {
  try {
    std::rethrow_exception(e);
  } catch (const Error& error) {
    return error;
  } catch (const std::bad_alloc& error) {
    const std::string_view what = error.what();
    return out_of_memory(what.find("asked for") == what.npos ? "" : what);  // the standard library's says nothing
  } catch (const std::length_error& error) {
    return out_of_memory(str("more elements asked for than memory can have (", error.what(), ")"));
  } catch (const std::system_error& error) {
    if (error.code() == std::errc::resource_unavailable_try_again) return thread_refused("a thread", error);
    if (error.code() == std::errc::not_enough_memory) return out_of_memory(error.what());
    return Error(wants_storage(error.code()) ? ExitCode::kStorage : ExitCode::kInternal, error.what());
  } catch (const std::exception& other) {
    return Error(ExitCode::kInternal, other.what());
  } catch (...) {
    return Error(ExitCode::kInternal, "an exception of unknown type");
  }
}

Error thread_refused(std::string_view whose, const std::system_error& e) {
  return Error(ExitCode::kDevice,
               str(whose, " cannot be started: ", e.code().message(),
                   "; the system limits threads (ulimit -u, a cgroup's pids.max) and their memory (ulimit -v): ",
                   "raise the limit or use fewer; ", host_memory_text()));
}

bool has_address_space(size_t bytes) {
  void* probe = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (probe == MAP_FAILED) return false;
  ::munmap(probe, bytes);
  return true;
}

std::string host_memory_text() {
  auto mib = [](double bytes) { return str(static_cast<int64_t>(bytes / (1 << 20)), " MiB"); };
  long pages = 0, resident = 0;
  if (FILE* file = std::fopen("/proc/self/statm", "r")) {
    if (std::fscanf(file, "%ld %ld", &pages, &resident) != 2) pages = resident = 0;
    std::fclose(file);
  }
  const auto page = static_cast<double>(::sysconf(_SC_PAGESIZE));
  std::string out = str("this process has ", mib(static_cast<double>(resident) * page), " in memory, ",
                        mib(static_cast<double>(pages) * page), " of address space");
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    out += str(" (ulimit -v: ", mib(static_cast<double>(limit.rlim_cur)), ")");
  return out;
}

}  // namespace lockstep
