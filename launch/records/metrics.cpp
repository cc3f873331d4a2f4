#include "launch/records/metrics.h"

#include <sys/stat.h>

#include <cerrno>
#include <charconv>
#include <filesystem>
#include <fstream>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/base/plain_file.h"
#include "core/base/temporary.h"
#include "core/io/files.h"

namespace lockstep {
namespace {

// Lines that lockstep wrote begin with the step, so a complete line need not be parsed; that saves time with a million
// lines.
std::optional<int64_t> step_of(const std::string& line) {
  constexpr std::string_view kBegin = "{\"step\":";
  int64_t step = 0;
  if (line.starts_with(kBegin) && line.ends_with('}')) {
    auto [end, error] = std::from_chars(line.data() + kBegin.size(), line.data() + line.size(), step);
    if (error == std::errc() && (*end == ',' || *end == '}')) return step;
  }
  return json_integer(line, "step");
}

// Copies the lines to keep into `out`, unless it is null, and appends those of steps beyond `keep_through` to
// earlier_metrics(path); returns the number of lines left out.
int64_t filter(const std::string& path, int64_t keep_through, std::ofstream* out, int64_t& last_step) {
  std::ifstream in(path, std::ios::binary);
  require(in.good(), ExitCode::kOutputLocked, "cannot read ", path, ", which this run would continue");
  int64_t left_out = 0;
  std::unique_ptr<AppendFile> earlier;
  last_step = -1;
  std::string line;
  while (std::getline(in, line)) {
    auto step = step_of(line);
    bool whole = !in.eof();  // a line without a newline is incomplete
    if (!whole || !step || *step > keep_through || *step <= last_step) {
      ++left_out;
      if (!out || !whole || !step || *step <= keep_through) continue;
      if (!earlier) earlier = std::make_unique<AppendFile>(earlier_metrics(path));
      earlier->append(line + "\n");
      continue;
    }
    last_step = *step;
    if (out) *out << line << '\n';
  }
  return left_out;
}

}  // namespace

std::string earlier_metrics(const std::string& path) {
  const size_t end = path.rfind('.');
  return str(path.substr(0, end), ".earlier", end == std::string::npos ? "" : path.substr(end));
}

std::optional<int64_t> last_recorded_step(const std::string& path) {
  constexpr int64_t kMost = 1 << 20;  // bytes, of many lines
  try {
    const auto file = open_if_there(path);
    if (!file) return {};
    const int64_t from = std::max<int64_t>(0, file->size - kMost);
    std::string text(static_cast<size_t>(file->size - from), '\0');
    file->read(from, text.data(), file->size - from);
    for (size_t end = text.rfind('\n'); end != text.npos && end > 0;) {  // what follows the last end is incomplete
      const size_t before = text.rfind('\n', end - 1);
      const size_t begin = before == text.npos ? 0 : before + 1;
      if (const auto step = step_of(text.substr(begin, end - begin))) return step;
      end = before;
    }
    return 0;
  } catch (const Error&) {
    return {};  // what is wrong with it is said when the run goes on in it
  }
}

MetricsWriter::MetricsWriter(const std::string& path, int64_t keep_through) {
  struct stat st = {};
  if (::lstat(path.c_str(), &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0) {
    int64_t left_out = filter(path, keep_through, nullptr, last_step_);
    if (left_out > 0) {
      const Temporary made = make_temporary_file(path + ".tmp-");
      if (!made.lock) fail_write(path, errno);
      const std::string& temporary = made.path;
      {
        std::ofstream out(temporary, std::ios::binary | std::ios::trunc);
        filter(path, keep_through, &out, last_step_);
        out.flush();
        if (!out.good()) {
          std::error_code ignored;
          std::filesystem::remove(temporary, ignored);
          throw Error(ExitCode::kStorage, str("cannot rewrite ", path, " (disk full?); it was not changed"));
        }
      }
      sync_and_rename(temporary, path);
      log_info(str(path, ": ", left_out, " lines removed; it continues after step ", last_step_,
                   "; steps of earlier attempts are in ", earlier_metrics(path)));
    }
  }
  file_ = std::make_unique<AppendFile>(path);
}

void MetricsWriter::write(int64_t step, const JsonObject& values) {
  check(step > last_step_, "metrics of step ", step, " after those of step ", last_step_);
  JsonObject line = {{"step", step}};
  line.insert(line.end(), values.begin(), values.end());
  last_step_ = step;
  file_->append(json_line(line) + "\n");
}

}  // namespace lockstep
