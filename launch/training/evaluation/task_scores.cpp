#include "launch/training/evaluation/task_scores.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <limits>

#include "core/base/error.h"
#include "core/models/token_transformer.h"
#include "launch/training/evaluation/predict.h"
#include "sharding/mesh.h"

namespace lockstep {
namespace {

constexpr int64_t kLogits = int64_t{1} << 25;      // of a micro-batch at most
constexpr int64_t kMostTokens = int64_t{1} << 13;  // likewise, of its rows

std::vector<TokensScore> score_together(Task& task, DataParallel& parallel, const ScoreRequests& requests,
                                        const EvalOptions& given) {
  std::vector<TokensScore> out;
  if (requests.size() == 0) return out;
  const int64_t classes = requests.spec().classes, units = requests.spec().units;
  EvalOptions options = given;
  options.micro_batch = std::clamp<int64_t>(std::min(kLogits / (units * classes), kMostTokens / units), 1, 256);
  out.resize(parallel.mesh().data().index == 0 ? static_cast<size_t>(requests.size()) : 0);
  predict(task, parallel, requests, options, encoded_scores, [&](const PredictedSamples& some) {
    check(some.bytes.size() == sizeof(TokensScore) * static_cast<size_t>(some.count), "scores of another size");
    for (int64_t i = 0; i < some.count; ++i) {
      TokensScore& to = out[requests.order()[static_cast<size_t>(some.first + i)]];
      std::memcpy(&to, some.bytes.data() + static_cast<size_t>(i) * sizeof to, sizeof to);
    }
  });
  return out;
}

}  // namespace

std::vector<TokensScore> score_requests(Task& task, DataParallel& parallel, const ScoreRequests& requests,
                                        const EvalOptions& options) {
  const auto* model = dynamic_cast<TokenTransformer*>(&task.module());
  const int64_t turn = model ? model->cached_tokens() : std::numeric_limits<int64_t>::max();
  if (requests.spec().units <= turn) return score_together(task, parallel, requests, options);
  // Longer texts have other frequencies: no short one is padded to their length.
  std::vector<TokensScore> out(requests.requests().size());
  for (const bool is_long : {false, true}) {
    std::vector<ScoreRequest> some;
    std::vector<size_t> which;
    for (size_t i = 0; i < out.size(); ++i) {
      const ScoreRequest& r = requests.requests()[i];
      if ((std::ssize(r.tokens) - 1 > turn) == is_long) some.push_back(r), which.push_back(i);
    }
    const ScoreRequests apart(std::move(some), requests.spec().units, requests.spec().classes);
    const auto found = score_together(task, parallel, apart, options);
    for (size_t i = 0; i < found.size(); ++i) out[which[i]] = found[i];
  }
  if (parallel.mesh().data().index != 0) out.clear();
  return out;
}

TaskScores::TaskScores(const std::vector<std::string>& paths, const Vocabulary* vocabulary, const Surround& around,
                       int64_t context, int64_t classes)
    : tasks_(asked_tasks(paths)) {
  require(paths.empty() || vocabulary, ExitCode::kConfig, "the data does not say what its tokens stand for");
  for (const AskedTask& t : tasks_) {
    require(t.task.kind != ScoringKind::kGenerate, ExitCode::kConfig, t.task.path,
            ": continues texts (generate_until), which is for `lockstep eval --task`");
    const QuestionTokens tokens(*vocabulary, context, around);
    texts_ = tokens.form();
    AskedRequests& asked = asked_.emplace_back(requests_of(t, 0, t.questions.size(), tokens));
    requests_.push_back(std::make_shared<const ScoreRequests>(std::move(asked.requests), context, classes));
  }
}

std::vector<std::string> TaskScores::names() const {
  std::vector<std::string> out;
  for (const AskedTask& t : tasks_)
    for (const ScoringMetric& m : t.task.metrics) out.push_back(t.task.name + "/" + m.name);
  return out;
}

std::optional<bool> TaskScores::higher_is_better(const std::string& name) const {
  const auto all = names();
  if (std::find(all.begin(), all.end(), name) == all.end()) return std::nullopt;
  return !name.ends_with("perplexity") && !name.ends_with("bits_per_byte");
}

std::vector<std::pair<std::string, double>> TaskScores::measure(Task& task, DataParallel& parallel,
                                                                const EvalOptions& options) const {
  std::vector<double> values;
  const Axis& ranks = parallel.mesh().data();
  for (size_t i = 0; i < tasks_.size(); ++i) {
    const AskedTask& t = tasks_[i];
    const auto scores = score_requests(task, parallel, *requests_[i], options);
    std::vector<std::pair<std::string, double>> totals(t.task.metrics.size());
    if (ranks.index == 0) {
      const size_t count = t.questions.size();
      const auto sums = asked_[i].sums(t, 0, count, scores);
      std::vector<std::vector<DocumentFigure>> figures;
      for (size_t d = 0; d < count; ++d) figures.push_back(figures_of(t.task, t.questions[d], sums[d], ""));
      totals = totals_of(t.task, figures);
      std::erase_if(totals, [](const auto& total) { return total.first.ends_with("_stderr"); });
    }
    for (const auto& total : totals) values.push_back(total.second);
  }
  // The first rank alone has them.
  std::string bytes(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(double));
  if (ranks.size > 1) bytes = broadcast_text(ranks.comm(), bytes, 0, "task scores");
  if (!bytes.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  std::vector<std::pair<std::string, double>> out;
  for (size_t i = 0; const std::string& name : names()) out.emplace_back(name, values[i++]);
  return out;
}

}  // namespace lockstep
