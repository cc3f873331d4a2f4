#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>

#include "core/base/error.h"
#include "core/base/flight_recorder.h"
#include "launch/cluster/absent_machines.h"
#include "launch/cluster/diagnosis.h"
#include "launch/cluster/hosts.h"
#include "launch/cluster/mpirun.h"
#include "launch/cluster/restart.h"
#include "launch/cluster/stack_dump.h"
#include "launch/cluster/step_times.h"
#include "launch/cluster/strangers.h"
#include "launch/process/child_process.h"
#include "launch/process/control.h"
#include "tests/launch/scratch.h"
#include "tests/support/time_bound.h"

namespace lockstep::cluster_test {
namespace {

// Calls `over` until it returns true, for at most a minute; whether it did.
template <class F>
bool comes_true(F&& over) {
  for (const double begun = steady_now(); steady_now() - begun < 60; ::usleep(2000))
    if (over()) return true;
  return over();
}

template <class F>
std::string error_of(ExitCode code, F&& action) {
  try {
    action();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    return e.what();
  }
  ADD_FAILURE() << "no error";
  return {};
}

TEST(Hosts, AreReadFromTheCommandLine) {
  EXPECT_EQ(parse_hosts("a:8,b-1.x:2,c"), (std::vector<Host>{{"a", 8}, {"b-1.x", 2}, {"c", 1}}));
  EXPECT_EQ(hosts_text(parse_hosts("a:8,c")), "a:8,c:1");
  for (const char* bad : {"", "a,,b", "a:0", "a:x", "a:8,a:2", "-x", "a b", "a:99999"})
    EXPECT_NE(error_of(ExitCode::kUsage, [&] { parse_hosts(bad); }).find("--hosts"), std::string::npos) << bad;
}

TEST(Hosts, MayHaveUsersRangesAndAddresses) {
  EXPECT_EQ(parse_hosts("n[1-2,4]:8,m"), (std::vector<Host>{{"n1", 8}, {"n2", 8}, {"n4", 8}, {"m", 1}}));
  EXPECT_EQ(parse_hosts("me@a:2,you@n[08-09]"),
            (std::vector<Host>{{"a", 2, "me"}, {"n08", 1, "you"}, {"n09", 1, "you"}}));
  EXPECT_EQ(parse_hosts("[fd00::2]:8,fd00::3,me@[::1]"),
            (std::vector<Host>{{"fd00::2", 8}, {"fd00::3", 1}, {"::1", 1, "me"}}));
  EXPECT_EQ(hosts_text(parse_hosts("me@[fd00::2]:8")), "me@[fd00::2]:8");
  EXPECT_EQ(parse_hosts("me@[fd00::2]:8")[0].target(), "me@fd00::2");
  EXPECT_EQ(mpi_name({"fd00::2", 1}), "v6-fd00xx2");
  for (const char* bad : {"n[1-4", "n[4-1]", "n[1-4]x[", "@a", "me@", "me@-x", "[fd00::2", "[a]:2", "a:b:c", "[]"})
    EXPECT_NE(error_of(ExitCode::kUsage, [&] { parse_hosts(bad); }).find("--hosts"), std::string::npos) << bad;
  MpirunOptions o;
  o.own = "/bin/lockstep";
  o.hosts = parse_hosts("me@a:2,[fd00::2]:1");
  EXPECT_EQ(reach_table(o), "ssh\na=me@a\nv6-fd00xx2=fd00::2");
  const std::string line = shell_line(mpirun_arguments(o));
  EXPECT_NE(line.find("--host a:2,v6-fd00xx2:1 "), std::string::npos) << line;
  EXPECT_NE(line.find("plm_rsh_agent '/bin/lockstep agent --reach'"), std::string::npos) << line;
  o.hosts = parse_hosts("a:2");
  EXPECT_EQ(reach_table(o), "");
}

TEST(Hosts, AreReadFromAFile) {
  const Scratch scratch;
  const std::string path = scratch.path() + "/hosts";
  std::ofstream(path) << "# ours\nn1 slots=4\n\nn2:2   # the small one\nn1\n";
  EXPECT_EQ(read_hostfile(path), (std::vector<Host>{{"n1", 5}, {"n2", 2}}));
  std::ofstream(path) << "n1 slots=4\nn2 slot=2\n";
  EXPECT_NE(error_of(ExitCode::kUsage, [&] { read_hostfile(path); }).find(path + ":2: 'slot=2' is not known"),
            std::string::npos);
  std::ofstream(path) << "\n";
  error_of(ExitCode::kUsage, [&] { read_hostfile(path); });
  error_of(ExitCode::kMissingInput, [&] { read_hostfile(path + ".not"); });
}

TEST(Hosts, OfSlurmAndPbsAreThoseOfTheJob) {
  EXPECT_EQ(expand_nodes("n[1-3,7],m"), (std::vector<std::string>{"n1", "n2", "n3", "n7", "m"}));
  EXPECT_EQ(expand_nodes("gpu[08-11]"), (std::vector<std::string>{"gpu08", "gpu09", "gpu10", "gpu11"}));
  EXPECT_EQ(expand_tasks("2(x3),1"), (std::vector<int>{2, 2, 2, 1}));
  EXPECT_EQ(expand_nodes("rack[1-2]_node[08-09],m"),
            (std::vector<std::string>{"rack1_node08", "rack1_node09", "rack2_node08", "rack2_node09", "m"}));
  EXPECT_EQ(expand_nodes("a[1]b"), std::vector<std::string>{"a1b"});
  error_of(ExitCode::kUsage, [] { expand_nodes("a[1-4096]b[1-4096]"); });
  error_of(ExitCode::kUsage, [] { expand_nodes("a[1]]"); });
  error_of(ExitCode::kUsage, [] { expand_nodes("a[1][2"); });
  error_of(ExitCode::kUsage, [] { expand_nodes("n[1-"); });
  error_of(ExitCode::kUsage, [] { expand_tasks("many"); });
  const Scratch scratch;
  ::setenv("SLURM_JOB_ID", "7", 1);
  ::setenv("SLURM_JOB_NODELIST", "n[1-2]", 1);
  ::setenv("SLURM_TASKS_PER_NODE", "4(x2)", 1);
  EXPECT_EQ(current_allocation().hosts, (std::vector<Host>{{"n1", 4}, {"n2", 4}}));
  for (const char* name : {"SLURM_JOB_ID", "SLURM_JOB_NODELIST", "SLURM_TASKS_PER_NODE"}) ::unsetenv(name);
  std::ofstream(scratch.path() + "/nodes") << "n1\nn1\nn2\n";
  ::setenv("PBS_NODEFILE", (scratch.path() + "/nodes").c_str(), 1);
  EXPECT_EQ(current_allocation().scheduler, "PBS");
  EXPECT_EQ(current_allocation().hosts, (std::vector<Host>{{"n1", 2}, {"n2", 1}}));
  ::unsetenv("PBS_NODEFILE");
  EXPECT_EQ(current_allocation().scheduler, "");
}

bool has(const std::vector<std::string>& words, const std::string& a, const std::string& b) {
  for (size_t i = 0; i + 1 < words.size(); ++i)
    if (words[i] == a && words[i + 1] == b) return true;
  return false;
}

TEST(Mpirun, IsComposedForOpenMpi4And5) {
  MpirunOptions o;
  o.ranks = 3;
  o.hosts = {{"a", 2}, {"b", 1}};
  o.interface = "eth0";
  o.remote_shell = "my ssh";
  o.exported = {"X"};
  o.command = {"prog", "it's"};
  auto words = mpirun_arguments(o);
  EXPECT_TRUE(has(words, "-n", "3") && has(words, "--host", "a:2,b:1") && has(words, "-x", "X"));
  EXPECT_TRUE(has(words, "plm_rsh_agent", "my ssh") && has(words, "oob_tcp_if_include", "eth0"));
  EXPECT_NE(shell_line(words).find("'my ssh'"), std::string::npos);
  EXPECT_TRUE(shell_line(words).ends_with("prog 'it'\\''s'")) << shell_line(words);
  o.version = 5;
  words = mpirun_arguments(o);
  EXPECT_TRUE(has(words, "--prtemca", "prte_if_include") && has(words, "--prtemca", "plm_ssh_agent"));
  EXPECT_FALSE(has(words, "--mca", "oob_tcp_keepalive_time"));
  o.hosts.clear();
  o.crowded = true;
  EXPECT_TRUE(has(mpirun_arguments(o), "mpi_yield_when_idle", "1"));
}

TEST(Mpirun, ItsOwnWordsAreKept) {
  EXPECT_EQ(
      mpirun_complaint("ssh: connect to host n7 port 22: Connection refused\n---\nORTE was unable to reliably start"),
      "ssh: connect to host n7 port 22: Connection refused");
  EXPECT_EQ(mpirun_complaint("me@n7: Permission denied (publickey).\n"), "me@n7: Permission denied (publickey).");
  EXPECT_EQ(
      mpirun_complaint("------\nNone of the TCP networks specified to be included\ncould be found:\n\n  Value given: "
                       "eth9\n\nPlease revise\n"),
      "a host has no such network interface as --interface names: None of the TCP networks specified to be "
      "included could be found: Value given: eth9");
  EXPECT_EQ(mpirun_complaint("[vm:1] ORTE_ERROR_LOG: x\n-----\n  Something new\nhappened.\n\nMore.\n"),
            "mpirun says: Something new happened.");
  EXPECT_EQ(mpirun_complaint("lost communication with\n  Remote daemon: [[1,0],2] on node n3\n"),
            "the connection to n3 was lost");
  EXPECT_EQ(mpirun_complaint("-----\n"), "");
}

TEST(Control, MessagesArriveWholeAndGarbageClosesTheConnection) {
  const Scratch scratch;
  Descriptor listener;
  const std::string address = listen_on("unix:" + scratch.path() + "/s", listener);
  Connection client(connect_to(address, 60));
  std::string peer;
  Connection server(accept_from(listener, peer), peer);
  for (int i = 0; i < 100; ++i) client.send({{"type", "out"}, {"n", int64_t{i}}, {"x", 0.5}});
  std::vector<JsonObject> got;
  while (got.size() < 100 && server.receive(got)) client.flush();
  ASSERT_EQ(got.size(), 100u);
  EXPECT_EQ(integer_of(got[99], "n"), 99);
  EXPECT_EQ(number_of(got[99], "x"), 0.5);
  EXPECT_EQ(text_of(got[99], "n"), "");  // of another kind
  for (const std::string& garbage : {std::string("\x16\x03\x01 GET /\n"), std::string(1 << 17, 'x')}) {
    Connection bad(connect_to(address, 60));
    Connection seen(accept_from(listener, peer), peer);
    ASSERT_GT(::write(bad.number(), garbage.data(), garbage.size()), 0);
    std::vector<JsonObject> none;
    EXPECT_TRUE(comes_true([&] { return !seen.receive(none); }));
    EXPECT_TRUE(seen.closed());
    EXPECT_TRUE(none.empty());
    EXPECT_NE(seen.problem(), "");
  }
}

TEST(Control, ALauncherThatIsNotThereIsAnError) {
  EXPECT_NE(error_of(ExitCode::kRankLost, [] { connect_to("tcp:127.0.0.1:1", 0.1); }).find("tcp:127.0.0.1:1"),
            std::string::npos);
  EXPECT_NE(random_secret(), random_secret());
  EXPECT_EQ(random_secret().size(), 32u);
}

TEST(Control, ASocketWithoutAFileIsReachedByItsName) {
  Descriptor listener;
  const std::string address = listen_on("unix:@lockstep-test-" + random_secret(), listener);
  const Descriptor client = connect_to(address, 60);
  std::string peer;
  EXPECT_TRUE(accept_from(listener, peer));
  listener = Descriptor();
  const double begun = steady_now();
  error_of(ExitCode::kRankLost, [&] { connect_to(address, 300); });  // nobody listens any more: no use to wait long
  EXPECT_LT(steady_now() - begun, testing::time_bound(5));
  error_of(ExitCode::kRankLost, [&] { connect_to("tcp:127.0.0.1:1", 10, [] { return true; }); });
}

TEST(Control, SilentConnectionsDoNotKeepAgentsOut) {
  Descriptor listener;
  const std::string address = listen_on("tcp:127.0.0.1", listener);
  Strangers strangers(20);
  std::vector<std::string> met;
  std::vector<Connection> agents;
  const auto meet = [&](Connection& peer, const JsonObject& hello) -> std::string {
    met.push_back(text_of(hello, "name"));
    if (met.back() != "agent") return "it is no agent";
    agents.push_back(std::move(peer));
    return {};
  };
  std::vector<Descriptor> silent;
  for (int i = 0; i < 300; ++i) silent.push_back(connect_to(address, 60));
  Connection agent(connect_to(address, 60));
  agent.send({{"type", "hello"}, {"name", "agent"}});
  EXPECT_TRUE(comes_true([&] {
    strangers.look(listener, meet, 100);
    return !agents.empty();
  }));
  EXPECT_EQ(met, std::vector<std::string>{"agent"});
  EXPECT_EQ(strangers.count(), 20u);
  strangers.look(listener, meet, 103);  // those that are left had their time
  EXPECT_EQ(strangers.count(), 0u);
  std::vector<JsonObject> none;
  EXPECT_TRUE(agents.at(0).receive(none));
}

TEST(FlightRecorder, TellsAnotherProcessWhatARankDoesAndDidLast) {
  const Descriptor memory = make_flight_memory();
  const std::string path = str("/proc/", int64_t{::getpid()}, "/fd/", memory.number());
  FlightReader reader(memory);
  EXPECT_FALSE(reader.read());
  const pid_t child = ::fork();
  if (child == 0) {
    start_flight_recorder(path);
    record_flight_transfer(3, 1 << 20, 0.5);  // it was late
    record_flight_transfer(3, 1 << 20, 0.25);
    record_flight_transfer(1, 1 << 20, 0.125);
    record_flight_transfer(2, 100, 0.125);  // too little to tell
    record_flight_step({.step = 7, .total = 9, .loss = 1.5, .items_per_s = 10, .step_ms = 3, .waited_ms = 1});
    { FlightPhase done("load batch"); }
    FlightPhase outer("forward");
    begin_flight_call("all_gather #3 of x", 3);
    end_flight_call();
    FlightPhase inner("backward");
    ::raise(SIGKILL);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  const auto state = reader.read();  // it outlives the process
  ASSERT_TRUE(state);
  EXPECT_EQ(state->process, child);
  EXPECT_EQ(state->step.step, 7);
  EXPECT_EQ(state->step.loss, 1.5);
  EXPECT_EQ(state->step.slow_from, 3);
  EXPECT_DOUBLE_EQ(state->step.slow_mb_s, 4.194304);
  ASSERT_EQ(state->lanes.size(), 1u);
  EXPECT_EQ(state->lanes[0].doing, "backward");
  ASSERT_EQ(state->events.size(), 2u);
  EXPECT_EQ(state->events[0].what, "load batch");
  EXPECT_TRUE(state->events[1].call);
  EXPECT_EQ(state->events[1].number, 3);
  EXPECT_TRUE(reader.read()->events.empty());  // each is told once
  error_of(ExitCode::kStorage, [&] { start_flight_recorder(path); });
  const Scratch scratch;
  std::ofstream(scratch.path() + "/other") << "a user's";
  error_of(ExitCode::kStorage, [&] { start_flight_recorder(scratch.path() + "/other"); });
}

std::vector<RankView> four() {
  std::vector<RankView> out;
  for (int r = 0; r < 4; ++r) {
    RankView v;
    v.rank = r;
    v.host = "n" + std::to_string(r / 2);
    v.process = 100 + r;
    v.connected = true;
    v.heard = 50;
    v.state = 'R';
    v.step.step = 12;
    v.call = {"all_gather #3 of x", 0.1, 0.01};
    out.push_back(v);
  }
  return out;
}

TEST(Diagnosis, NothingIsWrong) {
  EXPECT_FALSE(diagnosis_of(four(), {}, 50.1));
  EXPECT_TRUE(notices_on(four(), {}, 50.1).empty());
}

TEST(Diagnosis, ASignalExplainsTheOthersErrors) {
  auto ranks = four();
  ranks[0].ended = true, ranks[0].code = 69, ranks[0].ended_at = 49.9, ranks[0].first_error = "rank 2 is missing";
  ranks[2].ended = true, ranks[2].code = 128 + SIGKILL, ranks[2].ended_at = 50;
  const auto v = diagnosis_of(ranks, {}, 50.1);
  ASSERT_TRUE(v);
  EXPECT_EQ(v->rank, 2);
  EXPECT_EQ(v->code, ExitCode::kRankLost);
  EXPECT_NE(v->text.find("rank 2 on n1 (process 102) was killed by SIGKILL"), std::string::npos) << v->text;
  EXPECT_NE(v->text.find("ranks 0, 1 and 3 wait in all_gather #3 of x"), std::string::npos) << v->text;
  ranks[2].memory_limit = 1 << 30;
  EXPECT_NE(diagnosis_of(ranks, {}, 50.1)->text.find("the limit of its control group is 1.00 GiB"), std::string::npos);
}

TEST(Diagnosis, ACodeAboveThoseOfSignalsExplainsNothing) {
  auto ranks = four();
  ranks[1].ended = true, ranks[1].code = 195, ranks[1].ended_at = 50;  // Open MPI's, where mpirun is gone
  const auto v = diagnosis_of(ranks, {}, 50.1);
  ASSERT_TRUE(v);
  EXPECT_FALSE(v->explained);
  EXPECT_NE(v->text.find("ended with exit code 195"), std::string::npos) << v->text;
}

TEST(Diagnosis, ARanksOwnWordsAndExitCodeComeFirst) {
  auto ranks = four();
  ranks[3].ended = true, ranks[3].code = 70, ranks[3].ended_at = 50, ranks[3].first_error = "rank 3 on n1: not finite";
  ranks[0].ended = true, ranks[0].code = 70, ranks[0].ended_at = 49;  // silent: another one reports
  const auto v = diagnosis_of(ranks, {}, 50.1);
  EXPECT_EQ(v->code, ExitCode::kNumeric);
  EXPECT_EQ(v->text, "rank 3 on n1: not finite");
}

TEST(Diagnosis, SavedOnRequestIsNoFailure) {
  auto ranks = four();
  for (RankView& r : ranks) r.ended = true, r.code = 75;
  EXPECT_FALSE(diagnosis_of(ranks, {}, 100));
}

TEST(Diagnosis, AStoppedRankIsSaidAndThenGivenUp) {
  auto ranks = four();
  ranks[1].state = 'T', ranks[1].stopped_since = 48;
  ASSERT_EQ(notices_on(ranks, {}, 50).size(), 1u);
  EXPECT_FALSE(diagnosis_of(ranks, {}, 50));
  for (RankView& r : ranks) r.heard = 58.5;
  EXPECT_NE(
      diagnosis_of(ranks, {}, 58.5)->text.find("rank 1 on n0 (process 101) has been stopped for 10 s, by SIGSTOP"),
      std::string::npos)
      << diagnosis_of(ranks, {}, 58.5)->text;
}

TEST(Diagnosis, AMachineThatDoesNotAnswerIsLost) {
  auto ranks = four();
  ranks[2].heard = ranks[3].heard = 39;
  EXPECT_EQ(notices_on(ranks, {.silence = 100}, 50).size(), 2u);
  const auto v = diagnosis_of(ranks, {}, 50);
  EXPECT_EQ(v->lost_hosts, std::set<std::string>{"n1"});
  EXPECT_NE(v->text.find("n1 (ranks 2 and 3) does not answer for 11 s"), std::string::npos) << v->text;
  ranks[3].heard = 50;  // one rank of it does
  EXPECT_TRUE(diagnosis_of(ranks, {}, 50)->lost_hosts.empty());
}

TEST(Diagnosis, APhaseWithoutProgressIsNamedWithItsThread) {
  auto ranks = four();
  ranks[1].call = {};
  ranks[1].phase = {"load batch", 7, 0.5, 1234, "futex"};
  ranks[1].stack = "Loader::next < Trainer::start";
  const auto notices = notices_on(ranks, {}, 50);
  ASSERT_EQ(notices.size(), 1u);
  EXPECT_EQ(notices[0].stack_of, 1234);
  EXPECT_NE(notices[0].text.find(
                "no progress for 7.0 s in load batch, which waits in futex, at Loader::next < Trainer::start"),
            std::string::npos)
      << notices[0].text;
  EXPECT_FALSE(diagnosis_of(ranks, {.deadline = 60}, 50));
  EXPECT_EQ(diagnosis_of(ranks, {.deadline = 6}, 50)->rank, 1);
  ranks[1].phase.median_s = 1;  // then 7 s are nothing special
  EXPECT_TRUE(notices_on(ranks, {}, 50).empty());
}

// What is said in 40 steps, once each second; `step_of` gives a rank's step.
template <class StepOf>
std::vector<std::string> said_of_steps(StepOf step_of) {
  auto ranks = four();
  StepTimes times;
  std::vector<std::string> said;
  for (int step = 1; step <= 40; ++step) {
    for (RankView& r : ranks) r.step = step_of(r.rank, step);
    if (const auto line = times.update(ranks, step)) said.push_back(*line);
  }
  return said;
}

TEST(StepTimes, AStragglerIsNamedWithItsRatio) {
  const auto said =
      said_of_steps([](int rank, int step) { return FlightStep{step, 100, 1, 1, 300, rank == 3 ? 0.0 : 200.0}; });
  ASSERT_EQ(said.size(), 1u);
  EXPECT_NE(said[0].find("rank 3 on n1 (process 103) is slow: it computes 3.0 times as long"), std::string::npos)
      << said[0];
}

TEST(StepTimes, AStragglerThatCostsLittleIsNotNamed) {
  // 34 ms in place of 19, of a step of 844 ms whose rest is exchanges: these are named.
  const auto said =
      said_of_steps([](int rank, int step) { return FlightStep{step, 100, 1, 1, 844, rank == 3 ? 810.0 : 825.0}; });
  ASSERT_EQ(said.size(), 1u);
  EXPECT_NE(said[0].find("exchanges between the machines take 810 of the 844 ms of a step, in which no rank computes "
                         "longer than 34 ms"),
            std::string::npos)
      << said[0];
}

TEST(StepTimes, TheSlowestLinkIsNamed) {
  // Within a machine nothing is a link; rank 3 on n1 gets all of rank 0 on n0 slowly.
  const auto said = said_of_steps([](int rank, int step) {
    return FlightStep{step, 100, 1, 1, 844, 825.0, rank == 3 ? 0 : rank ^ 1, rank == 3 ? 2.34 : 120.0};
  });
  ASSERT_EQ(said.size(), 1u);
  EXPECT_NE(said[0].find("; the slowest is from rank 0 on n0 to rank 3 on n1, 2.3 MB/s: the links are slow"),
            std::string::npos)
      << said[0];
}

TEST(StepTimes, RanksThatAreSlowInTurnAreNotNamed) {
  const auto said = said_of_steps(
      [](int rank, int step) { return FlightStep{step, 100, 1, 1, 300, rank == step / 3 % 4 ? 0.0 : 200.0}; });
  EXPECT_TRUE(said.empty()) << said[0];
}

TEST(AbsentMachines, AreAskedInTurnWithoutWaiting) {
  const Scratch scratch;
  const std::string up = scratch.path("up"), asked = scratch.path("asked");
  // A machine that is asked before `up` is there says no, as soon as it is there. Later a says no and b yes at once.
  const std::string shell =
      scratch.write("shell", str("#!/bin/sh\necho $1 >>", asked, "\n[ -e ", up, " ] && { [ $1 = b ]; exit; }\n",
                                 "while [ ! -e ", up, " ]; do sleep 0.05; done\nexit 255\n"));
  ::chmod(shell.c_str(), 0700);
  AbsentMachines absent(parse_hosts("a,b"), shell);
  EXPECT_EQ(absent.ask(0), "");
  absent.add({"a", "b"});
  const auto answer = [&](double now) {
    std::string out;
    EXPECT_TRUE(comes_true([&] { return !(out = absent.ask(now)).empty(); }));
    return out;
  };
  const auto is_asked = [&](const std::string& all) { return comes_true([&] { return read_all(asked) == all; }); };
  EXPECT_EQ(absent.ask(10), "");
  EXPECT_TRUE(is_asked("a\n"));
  const double begun = steady_now();
  EXPECT_EQ(absent.ask(20), "") << "a does not answer yet, and is not waited for";
  EXPECT_LT(steady_now() - begun, testing::time_bound(0.5));
  scratch.write("up", "");
  EXPECT_EQ(answer(20), "b") << "a was not up";
  for (int i = 0; i < 20; ++i, ::usleep(10'000)) EXPECT_EQ(absent.ask(24), "") << "too soon";
  EXPECT_EQ(read_all(asked), "a\nb\n");
  EXPECT_EQ(absent.ask(30), "");
  EXPECT_TRUE(is_asked("a\nb\na\n"));
  EXPECT_EQ(answer(36), "b") << "a's own answer is no";
  EXPECT_EQ(read_all(asked), "a\nb\na\nb\n");
  EXPECT_EQ(absent.names(), (std::set<std::string>{"a", "b"}));
  absent.remove_answering();
  EXPECT_EQ(absent.names(), std::set<std::string>{"a"});
}

TEST(Restart, StopsWhereItWouldNotHelp) {
  RestartPolicy policy(10);
  EXPECT_TRUE(policy.decide(ExitCode::kRankLost, 5, -1).again);
  EXPECT_FALSE(policy.decide(ExitCode::kConfig, 9, -1).again);
  EXPECT_FALSE(policy.decide(ExitCode::kRanksDisagree, 9, -1).again);
  EXPECT_TRUE(policy.decide(ExitCode::kRanksDisagree, 9, 5).again);
  const auto second = policy.decide(ExitCode::kRankLost, 9, -1);
  EXPECT_TRUE(second.again);
  EXPECT_GT(second.pause_s, 1);
  const auto third = policy.decide(ExitCode::kRankLost, 9, -1);
  EXPECT_FALSE(third.again);
  EXPECT_NE(third.why_not.find("3 attempts in a row ended at or before step 9"), std::string::npos) << third.why_not;
  EXPECT_FALSE(RestartPolicy(0).decide(ExitCode::kRankLost, 1, -1).again);
  EXPECT_EQ(without({{"a", 1}, {"b", 2}}, {"a"}), (std::vector<Host>{{"b", 2}}));
}

TEST(StackDump, NamesFunctions) {
  StackLines lines;
  EXPECT_FALSE(lines.take("training"));
  EXPECT_TRUE(lines.take("---- stack of a thread"));
  EXPECT_TRUE(lines.take("/bin/lockstep(_ZN8lockstep6Loader4nextEv+0x1c) [0x5581]"));
  EXPECT_TRUE(lines.take("/lib/libc.so.6(+0x1234) [0x7f]"));
  EXPECT_TRUE(lines.take("/bin/lockstep(main+0x10) [0x5582]"));
  EXPECT_TRUE(lines.take("---- end of the stack"));
  EXPECT_TRUE(lines.complete());
  EXPECT_EQ(lines.text(), "Loader::next < main");
}

}  // namespace
}  // namespace lockstep::cluster_test
