#include "launch/world/fail_together.h"

#include <exception>
#include <string>

#include "core/base/caught.h"

namespace lockstep {

void fail_together(Communicator& comm, const std::function<void()>& mine, std::string_view label) {
  std::string problem;
  std::exception_ptr own;
  try {
    mine();
  } catch (const Error& e) {
    own = std::current_exception();
    problem = str(static_cast<int>(e.code()), " ", e.what());
  } catch (...) {
    const Error e = as_error(std::current_exception());
    problem = str(static_cast<int>(e.code()), " ", e.what());
  }
  const auto all = all_gather_text(comm, problem, label);
  for (int r = 0; r < comm.size(); ++r) {
    const std::string& text = all[static_cast<size_t>(r)];
    if (text.empty()) continue;
    if (r == comm.rank() && own) std::rethrow_exception(own);
    const auto code = static_cast<ExitCode>(std::stoi(text));
    if (r != comm.rank()) throw Error::secondary(code);
    throw Error(code, text.substr(text.find(' ') + 1));
  }
}

}  // namespace lockstep
