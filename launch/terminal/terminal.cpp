#include "launch/terminal/terminal.h"

#include <sys/ioctl.h>

namespace lockstep {

int terminal_columns(int fd) {
  winsize size = {};
  return fd >= 0 && ::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace lockstep
