#include "comm/progress_board.h"

#include <gtest/gtest.h>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <thread>

#include "comm/mpi/mpi_launch.h"

namespace lockstep::progress_board_test {
namespace {

const std::string kName = "/lockstep-test-" + std::to_string(getpid());

TEST(ProgressBoard, EveryMappingSeesWhatOnePosts) {
  auto mine = ProgressBoard::create(kName, 3);
  ASSERT_TRUE(mine);
  EXPECT_FALSE(ProgressBoard::create(kName, 3)) << "a name is taken once";
  auto theirs = ProgressBoard::open(kName, 3);
  ProgressBoard::unlink(kName);
  ASSERT_TRUE(theirs);
  EXPECT_EQ(theirs->last(2), "");
  mine->post(2, 17, "all_reduce #17 of grads.3");
  mine->leave(1);
  EXPECT_EQ(theirs->number(2), 17);
  EXPECT_EQ(theirs->last(2), "all_reduce #17 of grads.3");
  EXPECT_TRUE(theirs->left(1));
  EXPECT_FALSE(theirs->left(2));
  EXPECT_FALSE(ProgressBoard::open(kName, 3)) << "unlinked";
}

TEST(ProgressBoard, LiesWhereTheLauncherSays) {
  std::string folder = ::testing::TempDir() + "board-XXXXXX";
  ASSERT_TRUE(::mkdtemp(folder.data()));
  ::setenv(kSharedFolder, folder.c_str(), 1);
  const auto mine = ProgressBoard::create(kName, 2), theirs = ProgressBoard::open(kName, 2);
  EXPECT_EQ(::access((folder + kName).c_str(), F_OK), 0);
  ProgressBoard::unlink(kName);
  ::unsetenv(kSharedFolder);
  EXPECT_EQ(::rmdir(folder.c_str()), 0) << "nothing is left in it";
  ASSERT_TRUE(mine && theirs);
  mine->leave(1);
  EXPECT_TRUE(theirs->left(1));
}

TEST(ProgressBoard, WaitsUntilAllHaveArrived) {
  constexpr int kRanks = 3, kMeetings = 200;
  constexpr std::chrono::minutes kLong{5};
  const auto board = ProgressBoard::create(kName, kRanks);
  ASSERT_NE(board, nullptr);
  ProgressBoard::unlink(kName);
  std::atomic<int> met{0};
  std::vector<std::thread> ranks;
  for (int place = 0; place < kRanks; ++place)
    ranks.emplace_back([&, place] {
      for (int i = 0; i < kMeetings; ++i) {
        if (i % 20 == 0 && place == i % kRanks) std::this_thread::sleep_for(std::chrono::milliseconds(2));
        ++met;
        board->arrive(place);
        board->wait_for_arrivals(place, kRanks, kLong);
        EXPECT_TRUE(board->all_arrived(place, kRanks));
        EXPECT_GE(met.load(), (i + 1) * kRanks);
      }
    });
  for (std::thread& rank : ranks) rank.join();
  // One that is missing: the wait ends.
  board->arrive(0);
  board->wait_for_arrivals(0, kRanks, std::chrono::milliseconds(5));
  EXPECT_FALSE(board->all_arrived(0, kRanks));
}

TEST(ProgressBoard, LongTextsAreCut) {
  auto board = ProgressBoard::create(kName, 1);
  ASSERT_TRUE(board);
  ProgressBoard::unlink(kName);
  board->post(0, 1, std::string(1000, 'x'));
  EXPECT_EQ(board->last(0), std::string(159, 'x'));
  board->abort(Error(ExitCode::kStorage, std::string(5000, 'y')));
  EXPECT_EQ(std::string(board->aborted()->what()), std::string(999, 'y'));
}

TEST(ProgressBoard, TheFirstAbortCounts) {
  auto board = ProgressBoard::create(kName, 1);
  ASSERT_TRUE(board);
  ProgressBoard::unlink(kName);
  EXPECT_FALSE(board->aborted());
  board->abort(Error::secondary(ExitCode::kRankLost, "first"));
  board->abort(Error(ExitCode::kStorage, "second"));
  EXPECT_STREQ(board->aborted()->what(), "first");
  EXPECT_EQ(board->aborted()->code(), ExitCode::kRankLost);
  EXPECT_TRUE(board->aborted()->is_secondary());
}

TEST(ProgressBoard, MarksAreKeptForAWhile) {
  auto board = ProgressBoard::create(kName, 2);
  ASSERT_TRUE(board);
  ProgressBoard::unlink(kName);
  EXPECT_FALSE(board->mark_of(1, 1));
  for (int64_t n = 1; n <= ProgressBoard::kMarks + 1; ++n) board->mark(1, n, {7, 9, std::string(200, 'x')});
  EXPECT_FALSE(board->mark_of(1, 1)) << "overwritten";
  EXPECT_FALSE(board->mark_of(0, 2)) << "another rank's";
  EXPECT_FALSE(board->mark_of(1, ProgressBoard::kMarks + 2)) << "not there yet";
  const auto mark = board->mark_of(1, 2);
  ASSERT_TRUE(mark);
  EXPECT_EQ(mark->fingerprint, 7u);
  EXPECT_EQ(mark->balance, 9u);
  EXPECT_EQ(mark->details, std::string(103, 'x'));
}

TEST(ProgressBoard, SaysWhichProcessIsStopped) {
  auto board = ProgressBoard::create(kName, 2);
  ASSERT_TRUE(board);
  ProgressBoard::unlink(kName);
  EXPECT_EQ(board->stopped(0), "") << "nobody is there";
  const pid_t child = fork();
  if (child == 0) {
    board->enter(1);
    raise(SIGSTOP);
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, WUNTRACED), child);
  EXPECT_EQ(board->stopped(1), str("its process ", child, " is stopped, by SIGSTOP or a debugger"));
  kill(child, SIGCONT);
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(board->stopped(1), "");
  board->enter(0);
  EXPECT_EQ(board->stopped(0), "") << "it runs";
}

}  // namespace
}  // namespace lockstep::progress_board_test
