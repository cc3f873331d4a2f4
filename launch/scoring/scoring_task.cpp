#include "launch/scoring/scoring_task.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <limits>
#include <map>

#include "core/base/error.h"
#include "core/base/hash.h"
#include "core/base/plain_file.h"
#include "data/import/record_reader.h"
#include "launch/config/config_tree.h"

namespace lockstep {
namespace fs = std::filesystem;
namespace {

constexpr int64_t kLargestFile = int64_t{1} << 32;  // bytes

constexpr std::pair<std::string_view, ScoringKind> kKinds[] = {{"multiple_choice", ScoringKind::kMultipleChoice},
                                                               {"loglikelihood", ScoringKind::kLoglikelihood},
                                                               {"loglikelihood_rolling", ScoringKind::kRolling},
                                                               {"generate_until", ScoringKind::kGenerate}};

// The metrics of each kind; the first ones are those of a task that lists none.
struct KindOfMetric {
  std::string_view name;
  ScoringKind kind;
  bool usual;
};
constexpr KindOfMetric kMetrics[] = {
    {"acc", ScoringKind::kMultipleChoice, true},        {"acc_norm", ScoringKind::kMultipleChoice, true},
    {"acc_bytes", ScoringKind::kMultipleChoice, false}, {"perplexity", ScoringKind::kLoglikelihood, true},
    {"acc", ScoringKind::kLoglikelihood, true},         {"word_perplexity", ScoringKind::kRolling, true},
    {"byte_perplexity", ScoringKind::kRolling, true},   {"bits_per_byte", ScoringKind::kRolling, true},
    {"exact_match", ScoringKind::kGenerate, true}};

// What the harness reads and no figure depends on.
constexpr std::string_view kIgnoredKeys[] = {"tag",
                                             "group",
                                             "metadata",
                                             "task_alias",
                                             "training_split",
                                             "repeats",
                                             "dataset_name",
                                             "should_decontaminate",
                                             "doc_to_decontamination_query"};

[[noreturn]] void refuse(const ConfigNode& node, const std::string& what) {
  throw Error(ExitCode::kConfig, str(node.where(), ": ", node.key, what));
}

// A scalar as it is written; YAML's null is "".
std::string text_in(const ConfigNode& node) {
  if (node.kind == ConfigNode::Kind::kNull) return "";
  if (node.kind != ConfigNode::Kind::kScalar) refuse(node, ": must be a text");
  return node.scalar;
}

int64_t integer_in(const ConfigNode& node, int64_t least) {
  const std::string text = text_in(node);
  int64_t out = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (error != std::errc() || end != text.data() + text.size() || out < least)
    refuse(node, str(": must be an integer of at least ", least, ", not ", json_text_of(text)));
  return out;
}

bool truth_in(const ConfigNode& node) {
  const std::string text = text_in(node);
  if (text != "true" && text != "false") refuse(node, ": must be true or false");
  return text == "true";
}

std::vector<std::string> texts_in(const ConfigNode& node) {
  if (node.kind != ConfigNode::Kind::kList) return {text_in(node)};
  std::vector<std::string> out;
  for (const ConfigNode& child : node.children) out.push_back(text_in(child));
  return out;
}

ScoringMetric metric_in(const ConfigNode& node, ScoringKind kind) {
  const ConfigNode* name = node.find("metric");
  if (!name) refuse(node, ": an element of the list has no key metric");
  ScoringMetric out{text_in(*name)};
  const bool known = std::any_of(std::begin(kMetrics), std::end(kMetrics),
                                 [&](const KindOfMetric& m) { return m.name == out.name && m.kind == kind; });
  if (!known) refuse(*name, str(": ", out.name, " is no metric of ", to_text(kind), " here"));
  for (const ConfigNode& child : node.children) {
    if (child.key == "ignore_case") out.ignore_case = truth_in(child);
    else if (child.key == "ignore_punctuation") out.ignore_punctuation = truth_in(child);
    else if (child.key == "ignore_numbers") out.ignore_numbers = truth_in(child);
    else if (child.key == "regexes_to_ignore") out.ignored = texts_in(child);
    else if (child.key != "metric" && child.key != "aggregation" && child.key != "higher_is_better")
      refuse(child, ": is not supported");
  }
  return out;
}

// A list of steps, of which take_first is the rest of several answers to one question.
std::vector<AnswerFilter> filters_in(const ConfigNode& steps) {
  std::vector<AnswerFilter> out;
  for (const ConfigNode& step : steps.children) {
    const ConfigNode* function = step.find("function");
    if (!function) refuse(steps, ": an element of the list has no key function");
    const std::string name = text_in(*function);
    if (name == "take_first") continue;
    AnswerFilter f;
    if (name == "regex") f.kind = AnswerFilter::Kind::kRegex;
    else if (name == "lowercase") f.kind = AnswerFilter::Kind::kLower;
    else if (name != "remove_whitespace")
      refuse(*function, str(": ", name, " is none of regex, remove_whitespace, lowercase, take_first"));
    std::string expression = "#### (\\-?[0-9\\.\\,]+)";  // the harness's own
    for (const ConfigNode& child : step.children) {
      if (child.key == "function") continue;
      if (name != "regex") refuse(child, ": is not supported");
      if (child.key == "regex_pattern") expression = text_in(child);
      else if (child.key == "group_select") f.select = integer_in(child, std::numeric_limits<int32_t>::min());
      else if (child.key == "fallback") f.fallback = text_in(child);
      else refuse(child, ": is not supported");
    }
    if (name == "regex") try {
        f.pattern = std::make_shared<const Pattern>(expression, "regex_pattern", PatternUse::kWholeTexts);
      } catch (const Error& e) {
        throw Error(ExitCode::kConfig, str(step.where(), ": ", e.what()));
      }
    out.push_back(std::move(f));
  }
  return out;
}

// What the harness calls generation_kwargs.
void read_generation(const ConfigNode& node, ScoringTask& out) {
  for (const ConfigNode& child : node.children) {
    if (child.key == "until") {
      out.until = texts_in(child);
    } else if (child.key == "max_gen_toks") {
      out.new_tokens = integer_in(child, 1);
    } else if (child.key == "do_sample") {
      if (truth_in(child)) refuse(child, ": answers are the most likely ones here, without sampling");
    } else if (child.key == "temperature") {
      if (const std::string t = text_in(child); t != "0" && t != "0.0")
        refuse(child, ": answers are the most likely ones here, at temperature 0");
    } else {
      refuse(child, ": is not supported");
    }
  }
}

using Files = std::map<std::string, std::vector<std::string>>;  // of each split

Files files_in(const ConfigNode& arguments, const fs::path& folder) {
  const ConfigNode* files = arguments.find("data_files");
  if (!files) refuse(arguments, ": has no data_files, which name the documents");
  Files out;
  const auto add = [&](const ConfigNode& node, const std::string& split) {
    for (const std::string& file : texts_in(node)) {
      const std::string beside = folder / file;
      out[split].push_back(fs::exists(beside) ? beside : file);
    }
  };
  if (files->kind != ConfigNode::Kind::kMap) add(*files, "train");  // as datasets.load_dataset calls it
  else
    for (const ConfigNode& child : files->children) add(child, child.key);
  return out;
}

DocumentText document_text(const ConfigNode& node) { return {text_in(node), str(node.where(), ": ", node.key)}; }

}  // namespace

std::string_view to_text(ScoringKind kind) { return kKinds[static_cast<size_t>(kind)].first; }

DocumentText::DocumentText(const std::string& text, std::string where) : source_(text), where_(std::move(where)) {
  try {
    template_ = std::make_shared<const jinja::Template>(text, jinja::Reading{.trims = false, .strict = true});
  } catch (const Error& e) {
    throw Error(ExitCode::kConfig, str(where_, ", ", e.what()));
  }
}

jinja::Value DocumentText::of(const Document& document) const {
  if (source_.empty()) return jinja::Text();
  if (const JsonValue* field = find_member(document, source_)) return jinja::of_json(*field, 0);
  jinja::Values values;
  for (const auto& [name, value] : document) values.emplace_back(name, jinja::of_json(value, 0));
  try {
    return template_->render(values, 0).text;
  } catch (const Error& e) {
    throw e.with_message(str(where_, ", ", e.what()));
  }
}

ScoringTask read_scoring_task(const std::string& path) {
  const ConfigTree tree = ConfigTree::load(path);
  const ConfigNode& root = tree.root();
  const fs::path folder = fs::path(path).parent_path();
  ScoringTask out;
  out.path = path;
  out.name = fs::path(path).stem();
  std::string split, fewshot_split;
  std::vector<std::pair<std::string, std::vector<AnswerFilter>>> filters;  // by name
  Files files;
  const ConfigNode* kind = root.find("output_type");
  require(kind != nullptr, ExitCode::kConfig, path,
          ": has no key output_type; a task file is one of lm-evaluation-harness");
  const auto found =
      std::find_if(std::begin(kKinds), std::end(kKinds), [&](auto& k) { return k.first == text_in(*kind); });
  if (found == std::end(kKinds))
    refuse(*kind, str(": ", json_text_of(text_in(*kind)),
                      " is none of multiple_choice, loglikelihood, loglikelihood_rolling, generate_until"));
  out.kind = found->second;
  for (const ConfigNode& node : root.children) {
    const std::string& key = node.key;
    if (key == "task") out.name = text_in(node);
    else if (key == "output_type") continue;
    else if (key == "dataset_path") {
      if (text_in(node) != "json")
        refuse(node, ": must be json, for files of JSON lines; nothing is fetched from a hub");
    } else if (key == "dataset_kwargs") files = files_in(node, folder);
    else if (key == "test_split") split = text_in(node);
    else if (key == "validation_split") split = split.empty() ? text_in(node) : split;
    else if (key == "fewshot_split") fewshot_split = text_in(node);
    else if (key == "doc_to_text") out.text = document_text(node);
    else if (key == "doc_to_target") out.target = document_text(node);
    else if (key == "doc_to_choice") {
      if (node.kind == ConfigNode::Kind::kList) out.listed_choices = texts_in(node);
      else out.choices = document_text(node);
    } else if (key == "description") out.description = document_text(node);
    else if (key == "target_delimiter") out.target_delimiter = text_in(node);
    else if (key == "fewshot_delimiter") out.fewshot_delimiter = text_in(node);
    else if (key == "num_fewshot") out.shots = integer_in(node, 0);
    else if (key == "fewshot_config") {
      for (const ConfigNode& child : node.children) {
        if (child.key == "split") fewshot_split = text_in(child);
        else if (child.key != "sampler") refuse(child, ": is not supported");
        else if (text_in(child) != "first_n")
          refuse(child, ": must be first_n, so that all runs have the same examples");
      }
    } else if (key == "generation_kwargs") read_generation(node, out);
    else if (key == "filter_list") {
      for (const ConfigNode& child : node.children) {
        const ConfigNode *name = child.find("name"), *steps = child.find("filter");
        if (!name) refuse(node, ": an element of the list has no key name");
        if (!steps) refuse(node, ": an element of the list has no key filter");
        filters.emplace_back(text_in(*name), filters_in(*steps));
      }
      if (out.kind != ScoringKind::kGenerate) refuse(node, ": is for generate_until");
    } else if (key == "metric_list") {
      for (const ConfigNode& child : node.children) out.metrics.push_back(metric_in(child, out.kind));
    } else if (std::find(std::begin(kIgnoredKeys), std::end(kIgnoredKeys), key) == std::end(kIgnoredKeys))
      refuse(node, ": is not supported");
  }
  require(!files.empty(), ExitCode::kConfig, path, ": has no dataset_kwargs with data_files, which name the documents");
  const auto files_of = [&](const std::string& name, const char* what) {
    const auto those = files.find(name.empty() && files.size() == 1 ? files.begin()->first : name);
    require(those != files.end(), ExitCode::kConfig, path, ": data_files has no split ", json_text_of(name), " (", what,
            ")");
    return those->second;
  };
  out.data = files_of(split, "test_split");
  if (out.shots > 0) out.fewshot_data = files_of(fewshot_split.empty() ? split : fewshot_split, "fewshot_split");
  out.shots_of_data = !fewshot_split.empty() && fewshot_split == split;
  const bool chooses = !out.choices.empty() || !out.listed_choices.empty();
  require(chooses == (out.kind == ScoringKind::kMultipleChoice), ExitCode::kConfig, path,
          chooses ? ": doc_to_choice is for multiple_choice" : ": multiple_choice needs doc_to_choice");
  require(!out.target.empty(), ExitCode::kConfig, path, ": has no doc_to_target");
  if (out.metrics.empty())
    for (const KindOfMetric& m : kMetrics)
      if (m.kind == out.kind && m.usual) out.metrics.push_back({std::string(m.name)});
  if (!filters.empty()) {  // each metric of each
    std::vector<ScoringMetric> plain;
    std::swap(plain, out.metrics);
    for (const auto& [name, steps] : filters)
      for (ScoringMetric m : plain) {
        m.name += "," + name;
        m.filters = steps;
        out.metrics.push_back(std::move(m));
      }
  }
  if (out.until.empty()) out.until = {out.fewshot_delimiter};
  return out;
}

std::string identity_of(const ScoringTask& task) {
  std::string content = InputFile(task.path).text(kLargestFile);
  for (const auto* list : {&task.data, &task.fewshot_data})
    for (const std::string& file : *list) content += str("\n", hash128(InputFile(file).text(kLargestFile)));
  return to_hex(hash128(content));
}

std::vector<Document> read_documents(const std::vector<std::string>& files) {
  std::vector<Document> out;
  for (const std::string& file : files) {
    RecordReader reader(file, 0, 0);
    for (std::string_view line; reader.next(line);) {
      auto object = parse_json_object(line);
      require(object.has_value() && !reader.too_long(), ExitCode::kBadData, file, ":", reader.number(),
              ": is no JSON object");
      out.push_back(std::move(*object));
    }
  }
  require(!out.empty(), ExitCode::kBadData, files.empty() ? "" : files[0], ": holds no document");
  return out;
}

}  // namespace lockstep
