#include "data/import/line_reader.h"

#include "core/base/error.h"

namespace lockstep {

std::string LineReader::place() const { return str(input_.name(), ":", number_); }

bool LineReader::fill() {
  block_.resize(256 << 10);
  at_ = 0;
  block_.resize(input_.read(block_.data(), block_.size()));
  return !block_.empty();
}

bool LineReader::next(std::string_view& line) {
  line_.clear();
  too_long_ = false;
  bool any = false;
  for (;;) {
    if (at_ == block_.size() && !fill()) {
      if (!any) return false;
      break;
    }
    any = true;
    const size_t end = block_.find('\n', at_);
    const size_t count = std::min(end, block_.size()) - at_;
    if (line_.size() + count > kLongestLine) too_long_ = true;
    else line_.append(block_, at_, count);
    at_ += count;
    taken_ += static_cast<int64_t>(count);
    if (end == block_.npos) continue;
    ++at_, ++taken_;
    break;
  }
  ++number_;
  if (line_.ends_with('\r')) line_.pop_back();
  line = line_;
  return true;
}

void LineReader::skip_to(int64_t byte, int64_t number) {
  input_.skip(byte);
  taken_ = byte;
  number_ = number;
}

}  // namespace lockstep
