#include "launch/scoring/asked_task.h"

#include <algorithm>

#include "core/base/error.h"
#include "data/text/chat_template.h"
#include "data/text/jinja/value.h"
#include "data/text/tokenizer/pieces.h"

namespace lockstep {
namespace {

AskedTask asked_task(const std::string& path) {
  AskedTask out{read_scoring_task(path), {}};
  const std::vector<Document> documents = read_documents(out.task.data);
  std::vector<Document> shots;
  if (out.task.shots > 0) shots = read_documents(out.task.fewshot_data);
  for (size_t i = 0; i < documents.size(); ++i) try {
      out.questions.push_back(question_of(out.task, documents[i], shots));
    } catch (const Error& e) {
      throw e.with_message(str(path, ": document ", i, " of ", out.task.data[0], ": ", e.what()));
    }
  return out;
}

}  // namespace

std::vector<AskedTask> asked_tasks(const std::vector<std::string>& paths) {
  std::vector<AskedTask> out;
  for (const std::string& path : paths) {
    AskedTask task = asked_task(path);
    for (const AskedTask& other : out)
      require(other.task.name != task.task.name, ExitCode::kConfig, path, ": there are two tasks named ",
              task.task.name);
    out.push_back(std::move(task));
  }
  return out;
}

QuestionTokens::QuestionTokens(const Vocabulary& vocabulary, int64_t context, Surround around)
    : vocabulary_(vocabulary), context_(context), around_(std::move(around)) {
  const SpecialTokens known = vocabulary.chat() ? vocabulary.chat()->tokens : SpecialTokens();
  const auto token = [&](std::string_view wanted) -> std::string {
    for (const auto& [name, text] : known)
      if (name == wanted && vocabulary.special(text) >= 0) return text;
    return "";
  };
  const auto spelt = [&](int32_t id) {
    return vocabulary.pieces() ? vocabulary.pieces()->piece(id).text : vocabulary.decode({id});
  };
  bos_ = token("bos_token");
  if (bos_.empty() && !around_.before.empty()) bos_ = spelt(around_.before.front());
  prefix_ = bos_.empty() ? token("eos_token") : bos_;
  if (constexpr const char* kEnd = "<|endoftext|>"; prefix_.empty() && vocabulary.special(kEnd) >= 0) prefix_ = kEnd;
  if (around_.empty()) return;
  for (const int32_t id : around_.before) form_ += spelt(id);
  form_ += "TEXT";
  for (const int32_t id : around_.after) form_ += spelt(id);
}

std::vector<int32_t> QuestionTokens::encode(const std::string& text, const std::string& beginning) const {
  std::vector<int32_t> out = vocabulary_.encode(text, true);
  if (!beginning.empty() && text.starts_with(beginning)) return out;
  out.insert(out.begin(), around_.before.begin(), around_.before.end());
  out.insert(out.end(), around_.after.begin(), around_.after.end());
  return out;
}

ScoreRequest QuestionTokens::pair(const std::string& given_context, const std::string& given_continuation) const {
  // White space at the end of a context belongs to what follows, as most tokenizers have it.
  const size_t kept = jinja::stripped(jinja::Text(given_context), nullptr, jinja::Sides::kRight).size();
  const std::string context = given_context.substr(0, kept),
                    continuation = given_context.substr(kept) + given_continuation;
  ScoreRequest out;
  size_t first = 0;
  if (given_context.empty() || (context.empty() && around_.empty())) {
    const std::vector<int32_t> all = vocabulary_.encode(continuation, true);
    if (all.empty() || all[0] != prefix_token()) out.tokens.push_back(prefix_token());
    for (const int32_t token : all) out.tokens.push_back(token);
    first = 1;
  } else {
    // The tokens of the context as it is by itself, and as many of the whole as are behind them: also where a token
    // of the whole goes over the border, and where a special token ends both.
    out.tokens = encode(context, prefix_);
    first = out.tokens.size();
    const std::vector<int32_t> whole = encode(context + continuation, prefix_);
    for (size_t i = first; i < whole.size(); ++i) out.tokens.push_back(whole[i]);
  }
  require(first < out.tokens.size(), ExitCode::kBadData, "what is scored behind the context has no token");
  const size_t scored = out.tokens.size() - first, most = static_cast<size_t>(context_) + 1;
  require(scored < most, ExitCode::kBadData, "what is scored has ", scored,
          " tokens, more than the model's context of ", context_);
  if (out.tokens.size() > most) {
    const size_t cut = out.tokens.size() - most;
    out.tokens.erase(out.tokens.begin(), out.tokens.begin() + static_cast<std::ptrdiff_t>(cut));
    first -= std::min(first, cut);
  }
  out.first = static_cast<int64_t>(std::max<size_t>(first, 1));
  return out;
}

std::vector<ScoreRequest> QuestionTokens::windows(const std::string& text) const {
  const std::vector<int32_t> all = encode(text, prefix_);
  const auto n = static_cast<int64_t>(all.size());
  std::vector<ScoreRequest> out;
  for (int64_t done = 0; done < n;) {
    const int64_t count = std::min(context_, n - done), end = done + count;
    ScoreRequest r;
    if (done == 0) r.tokens.push_back(prefix_token());
    for (int64_t i = std::max<int64_t>(0, end - context_ - (done == 0 ? 0 : 1)); i < end; ++i)
      r.tokens.push_back(all[static_cast<size_t>(i)]);
    r.first = static_cast<int64_t>(r.tokens.size()) - count;
    out.push_back(std::move(r));
    done = end;
  }
  return out;
}

std::vector<int32_t> QuestionTokens::prompt(const std::string& context, int64_t added) const {
  std::vector<int32_t> out = encode(context, bos_);
  require(!out.empty(), ExitCode::kBadData, "the context is empty");
  require(added < context_, ExitCode::kBadData, "max_gen_toks ", added, " leaves no room in the model's context of ",
          context_);
  if (const auto most = static_cast<size_t>(context_ - added); out.size() > most)
    out.erase(out.begin(), out.end() - static_cast<std::ptrdiff_t>(most));
  return out;
}

int32_t QuestionTokens::prefix_token() const {
  require(!prefix_.empty(), ExitCode::kBadData,
          "nothing is before what is scored, and the tokenizer tells no token that "
          "begins or ends a text (bos_token, eos_token)");
  return vocabulary_.special(prefix_);
}

AskedRequests requests_of(const AskedTask& asked, size_t begin, size_t end, const QuestionTokens& tokens) {
  AskedRequests out;
  for (size_t d = begin; d < end; ++d) try {
      const Question& q = asked.questions[d];
      for (size_t c = 0; c < q.continuations.size(); ++c) {
        std::vector<ScoreRequest> own;
        if (asked.task.kind == ScoringKind::kRolling) own = tokens.windows(q.continuations[c]);
        else own.push_back(tokens.pair(q.context, q.continuations[c]));
        for (ScoreRequest& r : own) out.requests.push_back(std::move(r)), out.places.emplace_back(d - begin, c);
      }
    } catch (const Error& e) {
      throw e.with_message(str(asked.task.path, ": document ", d, ": ", e.what()));
    }
  return out;
}

std::vector<std::vector<ContinuationScore>> AskedRequests::sums(const AskedTask& asked, size_t begin, size_t end,
                                                                const std::vector<TokensScore>& scores) const {
  std::vector<std::vector<ContinuationScore>> out;
  for (size_t d = begin; d < end; ++d)
    out.emplace_back(asked.questions[d].continuations.size(), ContinuationScore{0, true});
  for (size_t i = 0; i < scores.size(); ++i) {
    ContinuationScore& to = out[places[i].first][places[i].second];
    to.log_probability += scores[i].log_probability;
    to.greedy = to.greedy && scores[i].greedy;
  }
  return out;
}

}  // namespace lockstep
