#include "tests/support/run_ranks.h"

#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "comm/local_comm.h"
#include "core/base/log.h"
#include "core/device/context.h"

namespace lockstep::testing {

void run_ranks(int size, const std::function<void(Communicator&)>& body, const RankOptions& options) {
  auto communicators = make_local_communicators(size, options.comm);
  std::mutex mutex;
  std::exception_ptr first;
  bool only_lost = true;  // so far: ranks that lost another
  auto rank_main = [&](std::unique_ptr<Communicator> comm) {
    set_log_prefix(cat("rank ", comm->rank()));
    const bool async = options.device.type == DeviceType::kAsyncCpu;
    Stream stream(options.device, async ? Stream::Mode::kThread : Stream::Mode::kInline, options.threads);
    WithStream with(stream);
    auto failed = [&](const char* what, bool lost) {
      {
        std::lock_guard lock(mutex);
        if (!first || (only_lost && !lost)) {
          first = std::current_exception();
          only_lost = lost;
        }
      }
      comm->abort(cat("rank ", comm->rank(), " failed: ", what));
    };
    try {
      body(*comm);
      stream.synchronize();
    } catch (const Error& e) {
      failed(e.what(), e.code() == ExitCode::kRankLost);
    } catch (const std::exception& e) {
      failed(e.what(), false);
    } catch (...) {
      failed("an exception of unknown type", false);
    }
    comm.reset();
  };
  std::vector<std::thread> threads;
  for (auto& comm : communicators) threads.emplace_back(rank_main, std::move(comm));
  for (std::thread& t : threads) t.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace lockstep::testing
