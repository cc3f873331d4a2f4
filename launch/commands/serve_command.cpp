#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "core/base/hash.h"
#include "core/base/log.h"
#include "core/base/trace.h"
#include "core/interop/hf_family.h"
#include "core/interop/hf_model.h"
#include "launch/arguments/chosen_checkpoint.h"
#include "launch/arguments/text_options.h"
#include "launch/arguments/vocabulary_options.h"
#include "launch/commands/commands.h"
#include "launch/http/http_server.h"
#include "launch/predict/predict_service.h"
#include "launch/serve/predict_routes.h"
#include "launch/serve/text_routes.h"
#include "launch/text/text_engine.h"
#include "launch/training/weights/build_model.h"
#include "launch/world/open_files.h"
#include "launch/world/world.h"

namespace lockstep {
namespace {

constexpr int64_t kPromptChunk = 512;  // tokens of a prompt that a step reads, so that other texts go on meanwhile
constexpr int kHandlers = 2;

std::string read_key(const std::string& file) {
  std::ifstream in(file);
  require(in.good(), ExitCode::kMissingInput, "--key ", file, ": cannot be opened");
  std::string key;
  std::getline(in, key);
  while (!key.empty() && (key.back() == '\r' || key.back() == ' ')) key.pop_back();
  require(!key.empty(), ExitCode::kUsage, "--key ", file, ": its first line is empty; that line is the key");
  return key;
}

// The name by which requests name the model: of runs/a/checkpoints/step-00000100 it is "a".
std::string name_of(const std::string& place) {
  std::filesystem::path path = std::filesystem::weakly_canonical(place);
  if (path.filename().empty()) path = path.parent_path();
  if (path.parent_path().filename() == "checkpoints") path = path.parent_path().parent_path();
  return path.filename().empty() ? "lockstep" : path.filename().string();
}

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "";
}

HttpOptions http_options_of(const Arguments& a) {
  HttpOptions out;
  out.address = parse_http_address(a.text("listen"), "--listen");
  if (!a.text("key").empty()) out.policy.key = read_key(a.text("key"));
  require(out.address.is_loopback || !out.policy.key.empty() || a.has("insecure"), ExitCode::kUsage, "--listen ",
          a.text("listen"),
          ": other machines can reach this address: add --key FILE, whose first line requests must "
          "show, or --insecure to serve anybody");
  out.policy.hosts = a.list("host");
  if (!out.address.is_loopback) out.policy.hosts.push_back(host_name());
  out.policy.origins = a.list("allow-origin");
  out.policy.open_paths = {"/", "/health"};
  out.most_connections = a.integer("connections", 1, 1 << 20);
  out.handler_threads = kHandlers;
  out.quick_paths = {"/health"};
  return out;
}

// Reads conversations and completions of the model.
ServedText served_text(const Arguments& a, Origin& origin) {
  ServedText out{.origin = origin,
                 .name = a.text("name").empty() ? name_of(origin.place) : a.text("name"),
                 .most_choices = a.integer("choices", 1, 4096),
                 .ends = origin.ends,
                 .chat = {},
                 .chat_ends = {}};
  try {
    out.chat = manner_of(MannerOptions{.chat = true,
                                       .chat_template = a.text("template"),
                                       .template_values = a.text("template-values"),
                                       .stop = ""},
                         origin);
    out.chat_ends = origin.ends;
  } catch (const Error& e) {
    if (!a.text("template").empty() || !a.text("template-values").empty()) throw;
    out.no_chat = e.what();
  }
  return out;
}

std::string short_hash(const std::string& text) { return "fp_" + to_hex(hash128(text)).substr(0, 16); }

// Of all that a text depends on beside its request.
std::string fingerprint_of(const Origin& origin, const ServedText& model, const std::string& weights, DType precision) {
  const auto ids = [](const std::vector<int32_t>& all) {
    std::string out;
    for (const int32_t id : all) out += str(id, " ");
    return out;
  };
  return short_hash(str(weights, "\n", to_text(precision), "\n", model.context, "\n",
                        origin.checkpoint ? origin.checkpoint->info.math_text : origin.settings->config.dump_yaml(),
                        "\n", vocabulary_text(origin.vocabulary.get()), "\n", ids(model.ends), "\n",
                        ids(model.chat_ends), "\n", model.chat.form.chat ? model.chat.form.chat->identity() : ""));
}

// Signals that end the server. Other threads that run then have them blocked (block_signals), or inherit that.
class EndingSignals {
 public:
  EndingSignals() {
    sigemptyset(&set_);
    for (const int signal : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&set_, signal);
    ::pthread_sigmask(SIG_BLOCK, &set_, &before_);
  }
  ~EndingSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  EndingSignals(const EndingSignals&) = delete;

  void wait() const {
    int signal = 0;
    ::sigwait(&set_, &signal);
  }
  bool came_within(int64_t milliseconds) const {
    const timespec time{milliseconds / 1000, milliseconds % 1000 * 1000000};
    return ::sigtimedwait(&set_, nullptr, &time) > 0;
  }

 private:
  sigset_t set_{}, before_{};
};

// Answers until a signal comes; then what has begun is finished, unless a second signal comes or it takes too long.
// `drained`: takes nothing more, and says whether all has ended.
void serve(const Arguments& a, const HttpOptions& http, const EndingSignals& signals, const Routes& routes,
           const std::string& what, const std::function<bool()>& drained) {
  HttpServer server(
      http, [&routes](const std::shared_ptr<HttpExchange>& exchange) { routes.handle(exchange); },
      "--listen " + a.text("listen"));
  log_info(str("serving ", what, " at ", server.url()));
  signals.wait();
  server.stop_accepting();
  const double patience = a.number("drain", 0);
  constexpr int64_t kInterval = 20;
  for (double waited = 0; !drained() || server.unanswered() > 0; waited += 1e-3 * kInterval) {
    if (waited == 0) log_info("finishing what has begun; a second signal ends it");
    if (waited > patience) return log_warning(str("not all is finished after ", patience, " s (--drain): it ends"));
    if (signals.came_within(kInterval)) {
      log_warning("a second signal: what has begun ends unfinished");
      std::_Exit(0);  // whatever a request is doing
    }
  }
}

// Whether it continues texts; else it predicts something of samples.
bool continues_texts(const App& app, const std::string& from) {
  if (is_hf_folder(from)) {
    const auto settings = settings_of_pretrained(app, from);
    return settings->pretrained->table->use == HfUse::kText && settings->pretrained->task.vocabulary == 0;
  }
  const CheckpointInfo info = open_newest(from, false).info;
  if (info.data_schema.empty()) return !info.vocabulary.empty();
  const DataSchema schema = parse_schema(info.data_schema, from);
  return schema.kind == DataKind::kTokens && schema.classes == 0;
}

int serve_texts(const App& app, Arguments& a, const HttpOptions& http) {
  TextEngineOptions options{.decoder = {.places = a.integer("batch", 1, 4096),
                                        .place_tokens = a.integer("context", 0),
                                        .prompt_chunk = kPromptChunk},
                            .averages = a.has("ema"),
                            .most_waiting = a.integer("queue", 1),
                            .most_seconds = a.number("time", 1)};
  Origin origin = origin_of(app, a);
  options.precision = precision_of(a, origin);
  ServedText model = served_text(a, origin);
  TextEngine engine(origin, options);
  const EndingSignals signals;
  model.context = engine.place_tokens();
  const std::string fingerprint = fingerprint_of(origin, model, engine.digest(), options.precision);
  if (!model.no_chat.empty()) log_info(str("it takes no conversations: ", model.no_chat));
  serve(a, http, signals, text_routes(model, engine, fingerprint),
        str(model.name, " (", engine.parameters(), " parameters, ", to_text(options.precision), ", a context of ",
            model.context, " tokens, ", options.decoder.places, " texts at once)"),
        [&] { return engine.drain(); });
  return 0;
}

Pooling pooling_of(const std::string& name) {
  require(name == "mean" || name == "first" || name == "last", ExitCode::kUsage, "--pool ", name,
          ": must be mean, first or last");
  return name == "mean" ? Pooling::kMean : name == "first" ? Pooling::kFirst : Pooling::kLast;
}

int serve_predictions(const App& app, Arguments& a, const HttpOptions& http) {
  const std::vector<std::string> moved = take_init_from(a);
  Predictor predictor = open_predictor(app, chosen_checkpoint(a), moved);
  require(predictor.checkpoint || !a.has("ema"), ExitCode::kUsage, "--ema: ", predictor.place,
          " holds no averages of parameters");
  require(a.text("template").empty() && a.text("template-values").empty(), ExitCode::kUsage,
          "--template: is of conversations, and ", predictor.place, " continues no texts");
  ServedPredictions model{.predictor = predictor,
                          .name = a.text("name").empty() ? name_of(predictor.place) : a.text("name"),
                          .fingerprint = {},
                          .most_samples = a.integer("choices", 1, 4096)};
  if (predictor.checkpoint)
    model.fingerprint = short_hash(str(to_hex(digest_of(*predictor.checkpoint)), a.has("ema") ? " averages" : ""));
  model.embeds = !a.text("layer").empty();
  PredictService service(predictor, {.averages = a.has("ema"),
                                     .layer = a.text("layer"),
                                     .pooling = pooling_of(a.text("pool")),
                                     .most_waiting = a.integer("queue", 1)});
  const EndingSignals signals;
  serve(a, http, signals, predict_routes(model, service), str(model.name, " (", described(predictor.data->schema), ")"),
        [&] { return service.drain(); });
  return 0;
}

}  // namespace

std::vector<Command> serve_forms() {
  return {
      {"serve",
       "serve RUN [init.from=PATH] [--listen ADDRESS:PORT] [--key FILE | --insecure] [--host NAME,...] "
       "[--allow-origin URL,...] [--name NAME] [--batch N] [--context N] [--template NAME] [--template-values JSON] "
       "[--layer NAME [--pool HOW]] [--precision P] [--best | --at STEP] [--ema]",
       "Answers over HTTP with the model of RUN, a run directory (its newest checkpoint), a checkpoint, or a folder of "
       "transformers. One that continues texts answers requests of OpenAI's API: /v1/completions, "
       "/v1/chat/completions, /tokenize, /detokenize; a text has the tokens that `lockstep generate` gives it with the "
       "same seed, whatever else is asked at the same time. Others answer /v1/predict, with the predictions of "
       "`lockstep predict` for rows, texts or an image; with --layer that and /v1/embeddings give the values of a "
       "layer. "
       "All have /v1/models, /health, /metrics, and a page for "
       "browsers at /. SIGTERM or Ctrl-C finishes what has begun and ends the server; a second one ends it at once.",
       with_model_options(
           {{"listen", "where to listen: a port of this machine alone, or ADDRESS:PORT; port 0: one that is free",
             "ADDRESS:PORT", "8000"},
            {"key", "a file whose first line is the key that requests must show (Authorization: Bearer KEY)", "FILE",
             ""},
            {"insecure", "listen without a key where other machines can ask"},
            {"host", "names of this server that requests may have as their Host, beside localhost and addresses",
             "NAME,...", ""},
            {"allow-origin", "pages of other origins that may ask, such as https://example.org; *: any", "URL,...", ""},
            {"name", "the model's name in requests; default: that of the run directory or folder", "NAME", ""},
            {"batch", "how many texts are continued at once", "N", "8"},
            {"context",
             "tokens of a prompt and its continuation; memory grows with this times --batch; default: the "
             "model's context",
             "N", "0"},
            {"queue", "how many texts may wait for a place; beyond, requests are refused with 429", "N", "256"},
            {"choices", "how many texts or predictions one request may ask for", "N", "64"},
            {"connections", "how many connections there may be at once", "N", "1024"},
            {"time", "seconds after which a text that is not finished ends", "S", "600"},
            {"drain", "seconds that texts have to be finished once the server is to end", "S", "30"},
            {"layer",
             "what this module of the model gives, by its dotted name: /v1/embeddings of texts, and /v1/predict",
             "NAME", ""},
            {"pool", "of a layer that gives each token of a text values: mean, first or last", "HOW", "mean"},
            {"template",
             "of conversations: chatml, llama3, plain or a file NAME.jinja, as in data import json; default: the one "
             "that the model was tuned with or that its tokenizer has, else chatml, or llama3 where the tokenizer has "
             "the tokens of that alone",
             "NAME", ""},
            template_values_option()}),
       1, 2}};
}

int serve_command(const App& app, const std::vector<std::string>& given) {
  trace_mark();
  Arguments arguments = parse_arguments(serve_forms(), given);
  if (arguments.help) return 0;
  const HttpOptions http = http_options_of(arguments);
  arguments.number("drain", 0);  // refused here rather than at the end
  const bool texts = arguments.text("layer").empty() && continues_texts(app, chosen_checkpoint(arguments));
  if (!is_first_process()) return 0;
  require_open_files(http.most_connections + 64, str("for ", http.most_connections, " connections (--connections)"));
  return texts ? serve_texts(app, arguments, http) : serve_predictions(app, arguments, http);
}

}  // namespace lockstep
