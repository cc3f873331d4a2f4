// Timelines of real steps, read by the rules of the Trace Event Format, and what is advised of planted ones.
#include "launch/training/profiling/timeline.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <map>
#include <thread>

#include <gtest/gtest.h>

#include "core/io/files.h"
#include "launch/report/profile_summary.h"
#include "launch/training/step/shared_data.h"
#include "launch/training/step/trainer.h"
#include "tests/launch/scratch.h"
#include "tests/support/run_ranks.h"
#include "tests/support/time_bound.h"

namespace lockstep::timeline_test {
namespace {

std::unique_ptr<Settings> settings_for(int ranks) {
  const std::string yaml =
      "train:\n  steps: 20\nbatch:\n  global: 8\n  micro: 1\nmodel:\n  name: gpt\n  layers: 2\n  heads: 2\n"
      "  width: 32\noptim:\n  lr: 0.01\n"
      "data:\n  name: synthetic_tokens\n  context: 32\n  validation: 0\n"
      "  synthetic:\n    tokens: 7000\n    vocabulary: 40\n";
  return load_settings(builtin(), ConfigTree::parse(yaml, "test.yaml"), ranks);
}

struct Read {
  std::string text;
  std::map<std::pair<int64_t, int64_t>, std::vector<std::pair<double, double>>> tracks;  // begin and end
  std::vector<JsonObject> steps, flows, all;
  std::vector<double> activations;  // in use, as the counters say
  // How long a step took: as its trainer reported it, and by two looks at the clock within the step of the timeline and
  // two around it.
  struct Took {
    double reported_ms = 0, within_ms = 0, around_ms = 0;
  };
  std::map<int, std::vector<Took>> took;  // by rank
};

// Steps 3 to 5 of each rank; `slow` sleeps in them.
Read traced(int ranks, int slow = -1, int64_t shown = 16, std::chrono::milliseconds sleep = {}) {
  Scratch folder;
  const std::string path = folder.path() + "/profile/steps.json";
  const auto settings = settings_for(ranks);
  SharedData data(*settings);
  Read out;
  std::mutex mutex;
  testing::run_ranks(ranks, [&](Communicator& comm) {
    Trainer trainer(*settings, data.open(comm), comm);
    Timeline timeline(comm, {3, 5}, shown, path,
                      {{"first_step", int64_t{3}}, {"last_step", int64_t{5}}, {"ranks", ranks}});
    for (int64_t step = 1; step <= 6; ++step) {
      const int64_t before = trace_now_ns();
      timeline.before(step);
      const int64_t begun = trace_now_ns();
      if (comm.rank() == slow) std::this_thread::sleep_for(sleep);
      const StepReport r = trainer.step();
      const int64_t ended = trace_now_ns();
      EXPECT_EQ(timeline.after(step), step == 5);
      const int64_t after = trace_now_ns();
      std::lock_guard lock(mutex);
      const auto ms = [](int64_t ns) { return 1e-6 * static_cast<double>(ns); };
      if (step >= 3 && step <= 5) out.took[comm.rank()].push_back({r.step_ms, ms(ended - begun), ms(after - before)});
    }
  });
  out.text = read_head(path, 1 << 26);
  const auto file = parse_json_object(out.text);
  EXPECT_TRUE(file);
  const bool whole = visit_json_list(std::get<JsonText>(*find_member(*file, "traceEvents")).text, [&](JsonObject&& e) {
    const std::string kind = text_of(e, "ph");
    EXPECT_TRUE(kind == "X" || kind == "M" || kind == "s" || kind == "f" || kind == "C") << kind;
    if (kind == "X") {
      const double begin = number_of(e, "ts", -1), dur = number_of(e, "dur", -1);
      EXPECT_GE(dur, 0);
      if (text_of(e, "cat") == "step") out.steps.push_back(e);
      else out.tracks[{integer_of(e, "pid"), integer_of(e, "tid")}].emplace_back(begin, begin + dur);
    }
    if (kind == "C")
      out.activations.push_back(
          number_of(*parse_json_object(std::get<JsonText>(*find_member(e, "args")).text), "activations", -1));
    if (kind == "s" || kind == "f") out.flows.push_back(e);
    out.all.push_back(std::move(e));
  });
  EXPECT_TRUE(whole);
  return out;
}

constexpr double kRounding = 0.002;  // microseconds

void expect_nested(const Read& r) {
  for (auto [track, spans] : r.tracks) {
    std::sort(spans.begin(), spans.end(),
              [](auto& a, auto& b) { return a.first != b.first ? a.first < b.first : a.second > b.second; });
    std::vector<double> open;
    for (auto& [begin, end] : spans) {
      while (!open.empty() && open.back() <= begin + kRounding / 2) open.pop_back();
      if (!open.empty()) {
        EXPECT_LE(end, open.back() + kRounding) << "rank " << track.first << " thread " << track.second;
      }
      open.push_back(end);
    }
  }
}

class Timelines : public ::testing::TestWithParam<int> {};

// By how much the steps of a rank take longer or shorter on the timeline than as they are reported, at most, as a
// part of what is allowed.
double disagreement(const Read& r) {
  std::map<int, double> of_steps;
  for (const JsonObject& e : r.steps) of_steps[static_cast<int>(integer_of(e, "pid"))] += number_of(e, "dur") / 1e3;
  double most = 0;
  for (auto& [rank, took] : r.took) {
    double reported = 0;
    for (const Read::Took& step : took) reported += step.reported_ms;
    most = std::max(most, std::abs(of_steps[rank] - reported) / (0.02 * reported + 0.3));
  }
  return most;
}

// Each step takes as long on the timeline as by the clock within and around it, whatever its rank waited for, and its
// trainer reports no more than that.
void expect_agreement(const Read& r) {
  std::map<int, std::vector<double>> on_timeline;
  for (const JsonObject& e : r.steps)
    on_timeline[static_cast<int>(integer_of(e, "pid"))].push_back(number_of(e, "dur") / 1e3);
  for (auto& [rank, took] : r.took) {
    const std::vector<double>& steps = on_timeline[rank];
    ASSERT_EQ(steps.size(), took.size()) << "rank " << rank;
    for (size_t i = 0; i < took.size(); ++i) {
      EXPECT_GE(steps[i] + kRounding / 1e3, took[i].within_ms) << "rank " << rank;
      EXPECT_LE(steps[i] - kRounding / 1e3, took[i].around_ms) << "rank " << rank;
      EXPECT_GT(took[i].reported_ms, 0) << "rank " << rank;
      EXPECT_LE(took[i].reported_ms, took[i].within_ms) << "rank " << rank;
    }
  }
}

TEST_P(Timelines, NestAndAgreeWithTheStepsOfEachRank) {
  const int ranks = GetParam();
  Read r = traced(ranks);
  if (testing::bounds_are_tested()) {
    // A rank that has to wait for a core between its two looks at the clock is measured again.
    for (int again = 0; again < 4 && disagreement(r) > 1; ++again) r = traced(ranks);
    EXPECT_LE(disagreement(r), 1);
  }
  expect_agreement(r);
  expect_nested(r);
  ASSERT_GT(r.activations.size(), 10u) << "they come and go";
  const auto [least, most] = std::minmax_element(r.activations.begin(), r.activations.end());
  EXPECT_GT(*most, 2 * *least);
  ASSERT_EQ(r.steps.size(), static_cast<size_t>(3 * ranks));
  // Parts of steps, modules of both passes, and work that knows its module.
  std::map<std::string, int> names;
  int forward_of_module = 0, backward_of_module = 0;
  for (const JsonObject& e : r.all) {
    ++names[text_of(e, "name")];
    const JsonValue* args = find_member(e, "args");
    if (text_of(e, "cat") != "work" || !args) continue;
    const auto more = parse_json_object(std::get<JsonText>(*args).text);
    if (text_of(*more, "module") != "blocks.1.qkv") continue;
    ++(json_bool(*more, "backward").value_or(false) ? backward_of_module : forward_of_module);
  }
  EXPECT_EQ(names["forward"], 3 * 8);
  EXPECT_EQ(names["backward"], 3 * 8);
  EXPECT_EQ(names["optimizer"] > 0, true);
  EXPECT_EQ(names["blocks.1.qkv"], 3 * 8);
  EXPECT_GE(forward_of_module, 3 * 8);
  EXPECT_GE(backward_of_module, 3 * 8);
  if (ranks > 1) {
    EXPECT_GT(names["share"] + names["all_gather"], 0);
  }
  const ProfileSums sums = read_profile(r.text, "steps.json");
  EXPECT_EQ(sums.steps, 3);
  EXPECT_EQ(sums.ranks.size(), static_cast<size_t>(ranks));
  for (auto& [rank, one] : sums.ranks) {
    double work = 0;
    for (auto& [_, w] : one.work) work += w.us;
    EXPECT_LE(work, 1.001 * one.step_us);
    EXPECT_GT(work, testing::bounds_are_tested() ? 0.1 * one.step_us : 0);
    // Two layers with two products each.
    const int64_t passes = 3 * 8 / ranks;
    for (const char* op : {"feed_forward", "feed_forward backward"}) {
      ASSERT_TRUE(one.work.contains(op)) << op << " of rank " << rank;
      EXPECT_GT(one.work.at(op).us, 0) << op << " of rank " << rank;
    }
    EXPECT_EQ(one.work.at("feed_forward").calls, 4 * passes) << "rank " << rank;
    EXPECT_EQ(one.work.at("wait_for_batch").calls, 3) << "rank " << rank;
    EXPECT_TRUE(one.work.contains("optimizer")) << "rank " << rank;
  }
}
INSTANTIATE_TEST_SUITE_P(Ranks, Timelines, ::testing::Values(1, 2, 4));

TEST(Timeline, PointsToTheRankThatIsWaitedFor) {
  Read r;
  int from_slow = 0;
  bool advised = false;
  // On a busy machine the others may be later than a rank that sleeps a little: once it sleeps long enough, it is the
  // one that is waited for.
  for (const int ms : {100, 400, 1600, 6400}) {
    r = traced(3, 1, 16, std::chrono::milliseconds(ms));
    from_slow = 0;
    for (const JsonObject& e : r.flows) from_slow += text_of(e, "ph") == "s" && integer_of(e, "pid") == 1;
    const auto advice = profile_advice(read_profile(r.text, "steps.json"));
    advised = std::any_of(advice.begin(), advice.end(), [](auto& a) { return a.change == "rank 1"; });
    if (from_slow >= 3 && advised) break;
  }
  EXPECT_GE(from_slow, 3);
  EXPECT_TRUE(advised);
  // An arrow begins and ends at the same time, on two ranks, under one id.
  std::map<int64_t, std::vector<JsonObject>> by_id;
  for (const JsonObject& e : r.flows) by_id[integer_of(e, "id")].push_back(e);
  for (auto& [id, ends] : by_id) {
    ASSERT_EQ(ends.size(), 2u);
    EXPECT_EQ(number_of(ends[0], "ts"), number_of(ends[1], "ts"));
    EXPECT_NE(integer_of(ends[0], "pid"), integer_of(ends[1], "pid"));
  }
}

TEST(Timeline, HasNoMoreRanksThanAsked) {
  const Read r = traced(4, -1, 2);
  std::map<int64_t, int> ranks;
  for (const JsonObject& e : r.steps) ++ranks[integer_of(e, "pid")];
  EXPECT_EQ(ranks, (std::map<int64_t, int>{{0, 3}, {2, 3}}));
}

TEST(Profile, RefusesWhatIsNoTimeline) {
  for (const char* text :
       {"", "{", "[]", "{}", "{\"traceEvents\":[],\"otherData\":{}}",
        "{\"traceEvents\":[],\"otherData\":{\"first_step\":1}}", "{\"traceEvents\":3,\"otherData\":{\"first_step\":1}}",
        "{\"traceEvents\":[1],\"otherData\":{\"first_step\":1}}"}) {
    try {
      read_profile(text, "odd.json");
      ADD_FAILURE() << text;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ExitCode::kBadData);
      EXPECT_EQ(std::string(e.what()).rfind("odd.json: ", 0), 0u) << e.what();
    }
  }
}

std::string first_change(ProfileSums s) {
  const auto advice = profile_advice(s);
  return advice.empty() ? "" : advice[0].change;
}

TEST(Profile, AdvisesByWhatIsPlanted) {
  ProfileSums plain;
  plain.steps = 10;
  plain.about = {{"gflops", 100.0},
                 {"gb_s", 20.0},
                 {"threads", int64_t{2}},
                 {"cores", int64_t{4}},
                 {"ranks", int64_t{2}},
                 {"isa", std::string("avx512")},
                 {"compute", std::string("fp32")},
                 {"level", std::string("none")}};
  for (int rank = 0; rank < 2; ++rank) {
    plain.ranks[rank].step_us = 1e6;
    plain.ranks[rank].work["linear"] = {100, 7e5, 0, 7e5 * 80e3};
  }
  EXPECT_EQ(first_change(plain), "");
  ProfileSums s = plain;
  s.about[2].second = int64_t{1};
  EXPECT_EQ(first_change(s), "compute.threads=2");
  s = plain;
  s.about[5].second = std::string("avx512_bf16");
  EXPECT_EQ(first_change(s), "precision.compute=bf16");
  s = plain;
  for (auto& [_, r] : s.ranks) r.data_us = 2e5;
  EXPECT_EQ(first_change(s), "data.threads, data.prefetch: more");
  s = plain;
  for (auto& [_, r] : s.ranks) r.waited_us = 3e5, r.exchanges["share"] = {500, 3e5, 0, 0};
  EXPECT_EQ(first_change(s), "comm.bucket: larger");
  s = plain;
  for (auto& [_, r] : s.ranks) r.optimizer_us = 2.5e5;
  EXPECT_EQ(first_change(s), "sharding.level=optimizer");
  s = plain;
  s.about.emplace_back("recompute", true);
  EXPECT_EQ(first_change(s), "recompute=none");
  s = plain;
  s.ranks[0].waited_us = 4e5;
  EXPECT_EQ(first_change(s), "rank 1");
}

}  // namespace
}  // namespace lockstep::timeline_test
