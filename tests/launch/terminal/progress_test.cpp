#include "launch/terminal/progress.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <thread>
#include <vector>

#include "core/base/log.h"
#include "core/base/text_table.h"
#include "tests/launch/scratch.h"

namespace lockstep::progress_test {
namespace {

int count_of(const std::string& text, const std::string& part) {
  int n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++n;
  return n;
}

// A pseudo-terminal: what is written to `slave` is read back as a terminal would get it.
class Terminal {
 public:
  explicit Terminal(int columns) {
    master_ = ::posix_openpt(O_RDWR | O_NOCTTY);
    if (master_ < 0 || ::grantpt(master_) != 0 || ::unlockpt(master_) != 0) return;
    slave_ = ::open(::ptsname(master_), O_RDWR | O_NOCTTY);
    resize(columns);
    ::fcntl(master_, F_SETFL, O_NONBLOCK);
  }
  ~Terminal() {
    ::close(slave_);
    ::close(master_);
  }
  void resize(int columns) {
    winsize size = {24, static_cast<unsigned short>(columns), 0, 0};
    ::ioctl(slave_, TIOCSWINSZ, &size);
  }
  int fd() const { return slave_; }
  std::string read() {
    std::string out;
    char buffer[4096];
    for (ssize_t n; (n = ::read(master_, buffer, sizeof buffer)) > 0;) out.append(buffer, static_cast<size_t>(n));
    return out;
  }

 private:
  int master_ = -1, slave_ = -1;
};

ProgressView view() {
  ProgressView v;
  v.title = "train";
  v.unit = "steps";
  v.rate_unit = "tokens";
  v.extra = "loss 2.31";
  v.done = 500;
  v.total = 2000;
  v.rate = 12345;
  v.elapsed = 62;
  v.remaining = 186;
  return v;
}

int columns(const std::string& s) {
  int n = 0;
  for (char c : s) n += (c & 0xC0) != 0x80;
  return n;
}

TEST(Progress, NumbersAndTimesAreShort) {
  EXPECT_EQ(short_number(0), "0");
  EXPECT_EQ(short_number(0.5), "0.50");
  EXPECT_EQ(short_number(950), "950");
  EXPECT_EQ(short_number(12345), "12.3k");
  EXPECT_EQ(short_number(999999), "1.00M");
  EXPECT_EQ(short_number(4.56e9), "4.56G");
  EXPECT_EQ(short_time(4.9), "0:04");
  EXPECT_EQ(short_time(750), "12:30");
  EXPECT_EQ(short_time(3 * 3600 + 130), "3:02:10");
  EXPECT_EQ(short_time(2 * 86400 + 3 * 3600 + 600), "2d 03:10:00");
}

TEST(Progress, TheLiveLineFitsAnyWidth) {
  EXPECT_EQ(live_line(view(), 100),
            "train   500/2000  25% [=======>                      ]  loss 2.31  12.3k tokens/s  1:02 left 3:06");
  auto v = view();
  v.extra = "lö\nss \x1b[2J";
  for (int width = 0; width < 140; ++width) {
    std::string line = live_line(v, width);
    EXPECT_LE(columns(line), width);
    EXPECT_FALSE(contains(line, "\n") || contains(line, "\x1b")) << line;
  }
  v.total = 0;  // nothing known about the end
  v.remaining = -1;
  EXPECT_FALSE(contains(live_line(v, 100), "%"));
  v.total = 10, v.done = 50;  // more than expected
  EXPECT_TRUE(contains(live_line(v, 100), "50/10"));
}

TEST(Progress, PlainLinesComeAtGrowingDistance) {
  Scratch scratch;
  open_log_file(scratch.path("log"));
  int pipe_fds[2];
  ASSERT_EQ(pipe(pipe_fds), 0);
  double now = 100;
  {
    Progress progress(
        {.title = "train", .total = 1000, .rate_unit = "tokens", .rate_scale = 64, .fd = pipe_fds[1], .clock = [&] {
           return now;
         }});
    EXPECT_FALSE(progress.live());
    for (int i = 1; i <= 1000; ++i) {
      now += 0.125;  // exact in binary
      progress.set(i, "loss 1.5");
    }
    progress.finish();
    progress.finish();
  }
  close_log_file();
  std::string log = read_all(scratch.path("log"));
  EXPECT_TRUE(contains(log, "train 1/1000 steps (0%), loss 1.5, 512 tokens/s, 0:00, 2:04 left")) << log;
  EXPECT_TRUE(contains(log, "train 1000/1000 steps (100%), loss 1.5, 512 tokens/s, 2:05")) << log;
  // 125 s: the first, after 1, 2, 4, 8, 16 s, then each 30 s, and the last
  EXPECT_EQ(count_of(log, "train "), 10) << log;
  EXPECT_FALSE(contains(log, "\x1b"));
  close(pipe_fds[0]);
  close(pipe_fds[1]);
}

TEST(Progress, PlainLinesEverySoManySteps) {
  Scratch scratch;
  open_log_file(scratch.path("log"));
  int pipe_fds[2];
  ASSERT_EQ(pipe(pipe_fds), 0);
  {
    Progress progress({.title = "train", .total = 100, .start = 50, .every = 10, .fd = pipe_fds[1], .clock = {}});
    for (int i = 51; i <= 100; ++i) progress.set(i);
    progress.finish();
  }
  close_log_file();
  std::string log = read_all(scratch.path("log"));
  EXPECT_EQ(count_of(log, "train "), 5) << log;
  EXPECT_TRUE(contains(log, "train 60/100 steps (60%)")) << log;
  close(pipe_fds[0]);
  close(pipe_fds[1]);
}

TEST(Progress, TheLiveLineIsRedrawnTenTimesASecondWithinTheTerminal) {
  setenv("TERM", "xterm", 1);
  Terminal terminal(60);
  if (terminal.fd() < 0) GTEST_SKIP() << "no pseudo-terminals here";
  double now = 0;
  Progress progress({.title = "train", .total = 1000, .fd = terminal.fd(), .clock = [&] { return now; }});
  ASSERT_TRUE(progress.live());
  for (int i = 1; i <= 1000; ++i) {
    now += 0.001;
    progress.set(i, "loss 1.5");
  }
  std::string out = terminal.read();
  EXPECT_LE(count_of(out, "\r"), 11);
  EXPECT_GE(count_of(out, "\r"), 9);
  EXPECT_FALSE(contains(out, "\n"));
  terminal.resize(30);
  now += 1;
  progress.set(1000);
  out = terminal.read();
  EXPECT_LE(columns(out), 29 + 4) << out;  // and "\r", and the escape that clears the rest
  progress.finish();
  out = terminal.read();
  EXPECT_TRUE(out.ends_with("\r\n")) << out;
  progress.set(1000, "late");
  EXPECT_EQ(terminal.read(), "");
}

// mpirun: its standard error is the terminal, that of its processes a pipe.
TEST(Progress, BehindALauncherItsTerminalCounts) {
  setenv("TERM", "xterm", 1);
  Terminal terminal(40);
  if (terminal.fd() < 0) GTEST_SKIP() << "no pseudo-terminals here";
  for (bool launched : {true, false}) {
    int pipe_fds[2];
    ASSERT_EQ(pipe(pipe_fds), 0);
    pid_t launcher = fork();
    if (launcher == 0) {
      dup2(terminal.fd(), 2);
      pid_t worker = fork();
      if (worker == 0) {
        if (launched) setenv("OMPI_COMM_WORLD_RANK", "0", 1);
        Progress progress({.title = "train", .total = 10, .fd = pipe_fds[1], .clock = [] { return 0.0; }});
        progress.set(5, "a text that is longer than the terminal is wide");
        _exit(progress.live() ? 0 : 7);
      }
      int status = 0;
      waitpid(worker, &status, 0);
      _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 9);
    }
    int status = 0;
    waitpid(launcher, &status, 0);
    EXPECT_EQ(WEXITSTATUS(status), launched ? 0 : 7);
    close(pipe_fds[1]);
    char buffer[1000];
    ssize_t n = read(pipe_fds[0], buffer, sizeof buffer);
    std::string out(buffer, static_cast<size_t>(std::max<ssize_t>(n, 0)));
    EXPECT_EQ(contains(out, "5/10"), launched) << out;
    EXPECT_LE(columns(out), 39 + 4) << out;
    close(pipe_fds[0]);
  }
}

TEST(Progress, StyleOverrulesTheTerminal) {
  setenv("TERM", "xterm", 1);
  Terminal terminal(40);
  if (terminal.fd() < 0) GTEST_SKIP() << "no pseudo-terminals here";
  EXPECT_FALSE(Progress({.title = "t", .style = ProgressStyle::kPlain, .fd = terminal.fd(), .clock = {}}).live());
  int pipe_fds[2];
  ASSERT_EQ(pipe(pipe_fds), 0);
  EXPECT_TRUE(Progress({.title = "t", .style = ProgressStyle::kLive, .fd = pipe_fds[1], .clock = {}}).live());
  setenv("TERM", "dumb", 1);
  EXPECT_FALSE(Progress({.title = "t", .fd = terminal.fd(), .clock = {}}).live());
  setenv("TERM", "xterm", 1);
  close(pipe_fds[0]);
  close(pipe_fds[1]);
}

TEST(Progress, LogLinesPushTheLiveLineAside) {
  setenv("TERM", "xterm", 1);
  Terminal terminal(60);
  if (terminal.fd() < 0) GTEST_SKIP() << "no pseudo-terminals here";
  double now = 0;
  {
    Progress progress({.title = "train", .total = 10, .fd = terminal.fd(), .clock = [&] { return now; }});
    log_info("before the first drawing");
    EXPECT_EQ(terminal.read(), "");
    progress.set(3);
    terminal.read();
    log_info("a line");
    std::string out = terminal.read();
    EXPECT_TRUE(out.starts_with("\r\x1b[K\r")) << out;  // cleared, then drawn again
    EXPECT_TRUE(contains(out, "3/10")) << out;
  }
  EXPECT_EQ(terminal.read(), "\r\x1b[K");
  log_info("after");
  EXPECT_EQ(terminal.read(), "");
}

TEST(Progress, OnePausesForAnother) {
  setenv("TERM", "xterm", 1);
  Terminal terminal(60);
  if (terminal.fd() < 0) GTEST_SKIP() << "no pseudo-terminals here";
  double now = 0;
  auto clock = [&] { return now; };
  Progress train({.title = "train", .total = 10, .fd = terminal.fd(), .clock = clock});
  now = 1, train.set(1);
  now = 2, train.set(2);
  train.pause();
  {
    terminal.read();
    Progress eval({.title = "eval", .total = 10, .fd = terminal.fd(), .clock = clock});
    now = 100, eval.set(5);
    log_info("while the other waits");
    EXPECT_FALSE(contains(terminal.read(), "train"));
    eval.finish();
  }
  log_info("between the two");
  terminal.read();
  now = 101, train.set(2);
  now = 102, train.set(3);
  EXPECT_TRUE(contains(terminal.read(), "1 steps/s  1:42 left 0:07"));
  log_info("heard again");
  EXPECT_TRUE(contains(terminal.read(), "\x1b[K\rtrain"));
}

TEST(Progress, OtherThreadsMayLogMeanwhile) {
  setenv("TERM", "xterm", 1);
  Terminal terminal(60);
  if (terminal.fd() < 0) GTEST_SKIP() << "no pseudo-terminals here";
  set_log_level(LogLevel::kError);
  Progress progress({.title = "t", .total = 2000, .fd = terminal.fd(), .clock = {}});
  std::thread other([] {
    for (int i = 0; i < 20; ++i) log_error("from another thread");
  });
  for (int i = 0; i < 2000; ++i) progress.set(i);
  other.join();
  progress.finish();
  set_log_level(LogLevel::kInfo);
  EXPECT_TRUE(contains(terminal.read(), "2000"));
}

}  // namespace
}  // namespace lockstep::progress_test
