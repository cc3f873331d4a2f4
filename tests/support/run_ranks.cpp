#include "tests/support/run_ranks.h"

#include <cstdlib>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "comm/local/local_comm.h"
#include "core/base/log.h"
#include "core/base/trace.h"
#include "core/device/context.h"
#include "tests/support/fake_gpu.h"

namespace lockstep::testing {
namespace {

Device device_of(const RankOptions& options) {
  const char* wish = std::getenv("LOCKSTEP_TEST_DEVICE");
  if (!wish) return options.device;
  if (std::string_view(wish) == "fake-gpu") return fake_gpu();
  check(std::string_view(wish) == "cuda", "LOCKSTEP_TEST_DEVICE=", wish, " is neither fake-gpu nor cuda");
  return {DeviceType::kCuda, 0};
}

}  // namespace

void run_ranks(int size, const std::function<void(Communicator&)>& body, const RankOptions& options) {
  const Device device = device_of(options);
  auto communicators = make_local_communicators(size, options.comm);
  std::mutex mutex;
  std::exception_ptr first;
  bool only_lost = true;  // so far: ranks that lost another
  auto rank_main = [&](std::unique_ptr<Communicator> comm) {
    set_log_prefix(str("rank ", comm->rank()));
    trace_owner.rank = comm->rank();
    const bool async = device.type == DeviceType::kAsyncCpu;
    Stream stream(device, async ? Stream::Mode::kThread : Stream::Mode::kInline, options.threads);
    WithStream with(stream);
    auto failed = [&](const char* what, bool lost) {
      {
        std::lock_guard lock(mutex);
        if (!first || (only_lost && !lost)) {
          first = std::current_exception();
          only_lost = lost;
        }
      }
      comm->abort(Error(ExitCode::kRankLost, str("rank ", comm->rank(), " failed: ", what)));
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
