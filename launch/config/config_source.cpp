#include "launch/config/config_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/base/system_call.h"
#include "launch/config/config_tree.h"

namespace lockstep {
namespace {

// Length of the UTF-8 sequence at `at`; 0 if it is invalid (including overlong forms and surrogates).
size_t utf8_length(std::string_view text, size_t at) {
  auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  auto tail = [&](size_t i, unsigned lo = 0x80, unsigned hi = 0xBF) { return byte(i) >= lo && byte(i) <= hi; };
  unsigned b = byte(at);
  if (b < 0x80) return 1;
  if (b >= 0xC2 && b <= 0xDF) return tail(at + 1) ? 2 : 0;
  if (b >= 0xE0 && b <= 0xEF) {
    bool second = tail(at + 1, b == 0xE0 ? 0xA0 : 0x80, b == 0xED ? 0x9F : 0xBF);
    return second && tail(at + 2) ? 3 : 0;
  }
  if (b >= 0xF0 && b <= 0xF4) {
    bool second = tail(at + 1, b == 0xF0 ? 0x90 : 0x80, b == 0xF4 ? 0x8F : 0xBF);
    return second && tail(at + 2) && tail(at + 3) ? 4 : 0;
  }
  return 0;
}

}  // namespace

bool is_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    size_t length = utf8_length(text, i);
    if (length == 0) return false;
    i += length;
  }
  return true;
}

void check_config_text(std::string_view text, const std::string& name, bool has_lines) {
  auto fail = [&](int line, std::string_view what) {
    throw Error(ExitCode::kConfig, str(name, line > 0 ? str(":", line) : std::string(), ": ", what));
  };
  int line = has_lines ? 1 : 0;
  if (static_cast<int64_t>(text.size()) > ConfigTree::kMaxBytes)
    fail(0, str("larger than ", ConfigTree::kMaxBytes, " bytes: not a configuration"));
  int punctuation = 0, open = 0;
  for (size_t i = 0; i < text.size();) {
    unsigned char c = static_cast<unsigned char>(text[i]);
    size_t length = utf8_length(text, i);
    if (length == 0)
      fail(line, has_lines ? "not UTF-8: save the file with UTF-8 encoding"
                           : "not UTF-8, in which configurations are written; where that is the name of a file or "
                             "folder, rename it, or name it by a link");
    if ((c < 0x20 && c != '\n' && c != '\t' && c != '\r') || c == 0x7F)
      fail(line, str("a control character (byte ", int{c}, "): not a text file"));
    if (c == '[' || c == '{') {
      ++punctuation;
      // Brackets inside texts are counted too, hence the wide margin; the exact depth is checked while parsing.
      if (++open > 8 * ConfigTree::kMaxDepth) fail(line, "brackets are nested too deeply");
    }
    if (c == ']' || c == '}') open = std::max(0, open - 1);
    if (c == ',') ++punctuation;
    if (punctuation > ConfigTree::kMaxPunctuation)
      fail(line, str("more than ", ConfigTree::kMaxPunctuation, " brackets and commas: not a configuration"));
    if (c == '\n' && has_lines) ++line;
    i += length;
  }
}

std::string read_config_file(const std::string& path) {
  int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // opening a pipe must not block
  require_done(fd >= 0, ExitCode::kMissingInput, "cannot read the configuration ", path);
  struct Closer {
    int fd;
    ~Closer() { ::close(fd); }
  } closer{fd};
  struct stat st = {};
  require(::fstat(fd, &st) == 0 && S_ISREG(st.st_mode), ExitCode::kMissingInput, "the configuration ", path,
          " is not a regular file");
  require(st.st_size <= ConfigTree::kMaxBytes, ExitCode::kConfig, path, ": ", static_cast<int64_t>(st.st_size),
          " bytes, more than ", ConfigTree::kMaxBytes, ": not a configuration");
  std::string text(static_cast<size_t>(ConfigTree::kMaxBytes) + 1,
                   '\0');  // one byte more: the file may grow while it is read
  size_t size = 0;
  while (size < text.size()) {
    ssize_t n = ::read(fd, text.data() + size, text.size() - size);
    if (n < 0 && errno == EINTR) continue;
    require_done(n >= 0, ExitCode::kMissingInput, "cannot read the configuration ", path);
    if (n == 0) break;
    size += static_cast<size_t>(n);
  }
  text.resize(size);
  return text;
}

}  // namespace lockstep
