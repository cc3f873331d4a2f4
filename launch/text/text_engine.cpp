#include "launch/text/text_engine.h"

#include <algorithm>
#include <utility>

#include "core/base/error.h"
#include "core/base/hash.h"
#include "core/base/host.h"
#include "core/base/philox.h"
#include "core/base/trace.h"
#include "core/device/stream.h"
#include "core/tensor/raw_ops.h"
#include "launch/process/control.h"
#include "launch/world/block_signals.h"
#include "launch/world/devices.h"

namespace lockstep {
namespace {

std::string digest_of(Model& model) {
  const NoGrad no_grad;
  Hasher128 hasher;
  for (const auto& p : model.parameters()) {
    const Tensor value = raw::to_host(p.parameter->value.detach());
    const std::string head = str(p.name, " ", to_text(value.dtype()), " ", value.shape(), "\n");
    hasher.update(head.data(), head.size());
    hasher.update(value.read(), static_cast<size_t>(value.numel()) * size_of(value.dtype()));
  }
  return to_hex(hasher.digest());
}

// How many bytes at the end of a text are the beginning of a character that is not whole.
size_t unfinished(std::string_view text) {
  for (size_t back = 1; back <= std::min<size_t>(3, text.size()); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if ((byte & 0xc0) == 0x80) continue;
    const size_t length = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1;
    return length > back ? back : 0;
  }
  return 0;
}

}  // namespace

uint64_t seed_of_choice(uint64_t seed, int64_t choice) {
  constexpr uint64_t kPurpose = 0x63686f696365;  // keeps these random numbers apart from others of the seed
  if (choice == 0) return seed;
  const auto random = philox(seed, static_cast<uint64_t>(choice), kPurpose);
  return uint64_t{random.v[0]} << 32 | random.v[1];
}

TextEngine::TextEngine(const Origin& origin, const TextEngineOptions& options) : origin_(origin), options_(options) {
  thread_ = std::thread([this] { run(); });
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return ready_; });
  if (!failure_) return;
  lock.unlock();
  thread_.join();
  std::rethrow_exception(failure_);
}

TextEngine::~TextEngine() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

std::optional<int64_t> TextEngine::submit(std::vector<TextJob> jobs, OnUpdate on_update) {
  for (const TextJob& job : jobs) {
    const auto size = static_cast<int64_t>(job.request.prompt.size());
    require(size <= place_tokens_ || job.request.slides, ExitCode::kUsage, "the prompt has ", size,
            " tokens, and a text has room for ", place_tokens_);
    require_valid(job.request.sampling);
  }
  const auto count = static_cast<int64_t>(jobs.size());
  const int64_t room = options_.most_waiting + options_.decoder.places;
  require(count <= room, ExitCode::kUsage, count, " texts at once, and there is room for ", room,
          " (--queue and --batch)");
  const std::lock_guard lock(mutex_);
  if (drains_ || ends_ || std::ssize(waiting_) + counts_.running + count > room) {
    counts_.refused += count;
    return std::nullopt;
  }
  const int64_t group = next_group_++;
  const double now = steady_now();
  for (size_t i = 0; i < jobs.size(); ++i) {
    GrowingText growing(jobs[i].stops, jobs[i].drop_space);
    waiting_.push_back({group, i, std::move(jobs[i]), on_update, std::move(growing), {}, now});
  }
  changed_.notify_all();
  return group;
}

void TextEngine::cancel(int64_t id) {
  const std::lock_guard lock(mutex_);
  const auto of_group = [id](const Text& text) { return text.group == id; };
  const auto removed = std::remove_if(waiting_.begin(), waiting_.end(), of_group);
  counts_.cancelled += std::distance(removed, waiting_.end());
  waiting_.erase(removed, waiting_.end());
  cancelled_.insert(id);
  changed_.notify_all();
}

bool TextEngine::drain() {
  const std::lock_guard lock(mutex_);
  drains_ = true;
  return waiting_.empty() && counts_.running == 0;
}

bool TextEngine::drains() const {
  const std::lock_guard lock(mutex_);
  return drains_;
}

TextEngineCounts TextEngine::counts() const {
  const std::lock_guard lock(mutex_);
  TextEngineCounts out = counts_;
  out.waiting = static_cast<int64_t>(waiting_.size());
  return out;
}

void TextEngine::run() {
  trace_mark();
  block_signals();
  std::unique_ptr<Model> model;
  std::optional<Stream> stream;
  std::optional<WithStream> with;
  std::optional<Decoder> decoder;
  try {
    stream.emplace(place_alone(origin_.settings->device), Stream::Mode::kInline, available_cores());
    with.emplace(*stream);
    apply(origin_.settings->device, *stream);
    model = load_model_of(origin_, options_.precision, options_.averages);
    decoder.emplace(*model, origin_.task, options_.decoder);
    place_tokens_ = decoder->place_tokens();
    digest_ = digest_of(*model);
    for (const auto& p : model->parameters()) parameters_ += p.parameter->value.numel();
  } catch (...) {
    failure_ = std::current_exception();
  }
  {
    const std::lock_guard lock(mutex_);
    ready_ = true;
  }
  changed_.notify_all();
  if (!failure_) work(*decoder);
}

void TextEngine::work(Decoder& decoder) {
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return ends_ || !waiting_.empty() || !running_.empty(); });
      if (ends_) break;
    }
    admit(decoder);
    end_expired(decoder);
    if (running_.empty()) continue;
    try {
      for (const Decoded& d : decoder.step()) deliver(decoder, d);
    } catch (const std::exception& e) {
      fail_all(decoder, e.what());
    }
  }
  fail_all(decoder, "the server ends");
  const std::lock_guard lock(mutex_);
  for (Text& text : waiting_)
    text.on_update(text.index, {.text = "", .finish = Finish::kCancelled, .error = "the server ends"});
  waiting_.clear();
}

// Those that wait take free places, in the order of their submission.
void TextEngine::admit(Decoder& decoder) {
  while (decoder.free_places() > 0) {
    {
      const std::lock_guard lock(mutex_);
      if (waiting_.empty()) break;
      running_.push_back(std::move(waiting_.front()));
      waiting_.pop_front();
      ++counts_.running;
      counts_.prompt_tokens += static_cast<int64_t>(running_.back().job.request.prompt.size());
    }
    const auto text = std::prev(running_.end());
    try {
      by_id_[decoder.admit(text->job.request)] = text;
    } catch (const std::exception& e) {
      finish(text, {.text = "", .finish = Finish::kCancelled, .error = e.what()});
    }
  }
}

std::string TextEngine::too_late() const {
  return str("the text was not finished after ", options_.most_seconds, " s");
}

// Of texts that were cancelled, and of those that took too long.
void TextEngine::end_expired(Decoder& decoder) {
  const double now = steady_now();
  std::set<int64_t> groups;
  {
    const std::lock_guard lock(mutex_);
    groups.swap(cancelled_);
  }
  for (auto entry = by_id_.begin(); entry != by_id_.end();) {
    const auto [id, text] = *entry++;
    const bool cancelled = groups.contains(text->group);
    if (!cancelled && now - text->submitted < options_.most_seconds) continue;
    decoder.cancel(id);
    by_id_.erase(id);
    if (cancelled) text->on_update = nullptr;
    else cancel(text->group);  // one text that fails fails the request
    finish(text, {.text = "", .finish = Finish::kCancelled, .error = too_late()});
  }
  for (;;) {  // of those that wait, the first has waited longest
    std::optional<Text> late;
    {
      const std::lock_guard lock(mutex_);
      if (waiting_.empty() || now - waiting_.front().submitted < options_.most_seconds) break;
      late = std::move(waiting_.front());
      waiting_.pop_front();
      ++counts_.texts, ++counts_.cancelled;
    }
    cancel(late->group);
    late->on_update(late->index, {.text = "", .finish = Finish::kCancelled, .error = too_late()});
  }
}

std::string TextEngine::whole_characters(Text& text, std::string more, bool last) const {
  std::string out = std::exchange(text.incomplete, {}) + more;
  if (last) return out;
  const size_t left = unfinished(out);
  text.incomplete = out.substr(out.size() - left);
  out.resize(out.size() - left);
  return out;
}

void TextEngine::deliver(Decoder& decoder, const Decoded& d) {
  const auto entry = by_id_.find(d.id);
  if (entry == by_id_.end()) return;  // cancelled
  const auto text = entry->second;
  TextUpdate part{.text = "", .prompt = d.prompt, .finish = d.finish};
  std::string more;
  if (d.token) {
    const double now = steady_now();
    if (text->added++ == 0) text->first = now;
    part.tokens.push_back({*d.token, d.log_probs});
    more = text->growing.add(origin_.vocabulary->decode({*d.token}));
    const std::lock_guard lock(mutex_);
    ++counts_.new_tokens;
    if (text->added == 1) ++counts_.first_tokens, counts_.first_token_seconds += now - text->submitted;
  }
  if (!d.token && d.log_probs) part.tokens.push_back({d.log_probs->chosen.token, d.log_probs, true});
  if (text->growing.stopped()) {
    if (d.finish == Finish::kNone) decoder.cancel(d.id);
    part.finish = Finish::kStop;
  }
  const bool last = part.finish != Finish::kNone;
  if (last) more += text->growing.rest();
  part.text = whole_characters(*text, std::move(more), last);
  if (!last) return text->on_update(text->index, std::move(part));
  by_id_.erase(entry);
  finish(text, std::move(part));
}

// The last part of a text.
void TextEngine::finish(std::list<Text>::iterator text, TextUpdate part) {
  {
    const std::lock_guard lock(mutex_);
    --counts_.running, ++counts_.texts;
    counts_.cancelled += part.finish == Finish::kCancelled;
    if (text->added > 1) counts_.later_seconds += steady_now() - text->first, counts_.later_tokens += text->added - 1;
  }
  const OnUpdate on_update = std::move(text->on_update);
  const size_t index = text->index;
  running_.erase(text);
  if (on_update) on_update(index, std::move(part));
}

void TextEngine::fail_all(Decoder& decoder, const std::string& why) {
  for (const auto& [id, text] : std::exchange(by_id_, {})) {
    decoder.cancel(id);
    finish(text, {.text = "", .finish = Finish::kCancelled, .error = why});
  }
}

}  // namespace lockstep
