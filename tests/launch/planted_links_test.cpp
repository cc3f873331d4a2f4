// Links that somebody planted where a run or an import will write: what they lead to is neither written nor cut.
#include <gtest/gtest.h>
#include <unistd.h>

#include "core/base/log.h"
#include "core/io/append_file.h"
#include "core/io/files.h"
#include "core/io/pending_file.h"
#include "data/import/import.h"
#include "launch/records/metrics.h"
#include "launch/records/run_dir.h"
#include "launch/terminal/output.h"
#include "tests/support/files.h"

namespace lockstep::planted_links_test {
namespace {

namespace fs = std::filesystem;
using test::content;
using test::expect_error;
using test::write_file;

class PlantedLinks : public ::testing::Test {
 protected:
  PlantedLinks() { write_file(victim_, "precious\n"); }
  void plant(const std::string& name) { fs::create_symlink(victim_, folder_ / name); }
  void TearDown() override { EXPECT_EQ(content(victim_), "precious\n"); }
  const std::string pid_ = std::to_string(::getpid());
  test::TemporaryFolder folder_;
  std::string victim_ = folder_ / "victim";
};

TEST_F(PlantedLinks, AtTheOldNamesOfTemporaryFilesAreNotFollowed) {
  for (const std::string& name :
       {"out.h5.part-" + pid_, "config.yaml.tmp." + pid_, ".probe." + pid_, std::string("metrics.jsonl.tmp")})
    plant(name);
  write_file(folder_ / "text", "to be or not to be, that is the question");
  import_text({folder_ / "text"}, folder_ / "out.h5", TextLevel::kChar);
  replace_file(folder_ / "config.yaml", "seed: 1\n");
  EXPECT_EQ(content(folder_ / "config.yaml"), "seed: 1\n");
  write_file(folder_ / "metrics.jsonl", "{\"step\":1}\n{\"step\":9}\n");
  MetricsWriter(folder_ / "metrics.jsonl", 1).write(2, {});
  EXPECT_EQ(content(folder_ / "metrics.jsonl"), "{\"step\":1}\n{\"step\":2}\n");
  const RunDir run(folder_ / "", true);
}

TEST_F(PlantedLinks, AtNamesThatMustBeKnownAreRefused) {
  for (const char* name : {"log.txt", "metrics.jsonl", "lock"}) plant(name);
  expect_error(ExitCode::kOutputLocked, {"log.txt", "symbolic link"}, [&] { open_log_file(folder_ / "log.txt"); });
  expect_error(ExitCode::kOutputLocked, {"metrics.jsonl", "symbolic link"},
               [&] { MetricsWriter(folder_ / "metrics.jsonl", 1); });
  expect_error(ExitCode::kOutputLocked, {"symbolic link"}, [&] { RunDir(folder_ / "", true); });
}

TEST_F(PlantedLinks, InPlaceOfAReplacedFileAreReplaced) {
  plant("config.yaml");
  replace_file(folder_ / "config.yaml", "seed: 1\n");
  EXPECT_FALSE(fs::is_symlink(folder_ / "config.yaml"));
  plant("out.h5");
  PendingFile pending(folder_ / "out.h5", true);
  write_file(pending.temporary(), "whole");
  pending.commit();
  EXPECT_FALSE(fs::is_symlink(folder_ / "out.h5"));
}

TEST_F(PlantedLinks, NamesOfTemporaryFilesCannotBeGuessed) {
  PendingFile a(folder_ / "out.h5", true), b(folder_ / "out.h5", true);
  EXPECT_NE(a.temporary(), b.temporary());
  EXPECT_EQ(a.temporary().find(pid_), std::string::npos);
}

TEST_F(PlantedLinks, ALogFileTakesEveryLine) {
  open_log_file(folder_ / "log.txt");
  log_warning("first\x1b[31m");
  close_log_file();
  open_log_file(folder_ / "log.txt");  // a resumed run
  log_debug("second");
  close_log_file();
  const std::string text = content(folder_ / "log.txt");
  EXPECT_NE(text.find("first\\x1b[31m\n"), text.npos) << text;
  EXPECT_NE(text.find("debug second\n"), text.npos) << text;
}

// What a command prints may come from a file as well.
TEST(Print, EscapesUnlessTheTextItselfIsWanted) {
  ::testing::internal::CaptureStdout();
  print_out("name \x1b[2J\n");
  print_out("text \x1b[2J\n", Shown::kAsItIs);
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "name \\x1b[2J\ntext \x1b[2J\n");
}

// Of the owner a link is a larger disk; of another user, in a directory that all may write, it is a trap.
TEST_F(PlantedLinks, InPlaceOfTheFoldersOfARunAreTheOwnersOwn) {
  for (const char* name : {"checkpoints", "tensorboard", "profile"}) {
    const test::TemporaryFolder folder;
    const std::string run = folder / "run", link = run + "/" + name, elsewhere = folder / "elsewhere";
    fs::create_directories(run);
    fs::create_directories(elsewhere);
    fs::create_directory_symlink(elsewhere, link);
    { RunDir dir(run, false); }
    if (::geteuid() != 0) GTEST_SKIP() << "only root gives a link to another user";
    ASSERT_EQ(::lchown(link.c_str(), 65534, 65534), 0);
    for (const auto& use : {std::function<void()>([&] { RunDir dir(run, false); }),
                            std::function<void()>([&] { RunDir::require_usable(run, false); })})
      try {
        use();
        ADD_FAILURE() << name << ": another user's link was followed";
      } catch (const Error& e) {
        EXPECT_EQ(e.code(), ExitCode::kOutputLocked);
        EXPECT_NE(std::string(e.what()).find(link + " is a link that another user (65534)"), std::string::npos)
            << e.what();
      }
  }
}

}  // namespace
}  // namespace lockstep::planted_links_test
