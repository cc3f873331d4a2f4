#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/io/json_record.h"
#include "data/import/import.h"
#include "data/import/import_threads.h"
#include "data/import/in_order.h"
#include "data/import/json_label.h"
#include "data/import/made_records.h"
#include "data/import/other_formats.h"
#include "data/import/record_reader.h"
#include "data/import/tables/table_cells.h"
#include "data/samples/text/pair_dataset.h"
#include "data/samples/text/token_writer.h"
#include "data/text/chat_template.h"
#include "data/text/record_encoder.h"

namespace lockstep {
namespace {

float weight_field(const JsonObject& object, const std::string& name) {
  const JsonValue* value = find_member(object, name);
  require(value != nullptr, ExitCode::kBadData, "has no field \"", name, "\"");
  const double weight = number_of(object, name, -1);
  require(is_weight(weight), ExitCode::kBadData, "its field \"", name, "\" holds ", json_text_of(*value).substr(0, 40),
          ", ", kNoWeight);
  return static_cast<float>(weight);
}

// Some lines of an input, and the records that were made of them.
struct JsonLines {
  struct Line {
    size_t begin, end;  // in `text`
    int64_t number;
    bool too_long;
  };
  std::string text;
  std::vector<Line> lines;
  size_t input = 0;
  int64_t byte = 0, number = 0;  // of that input: where the lines behind these begin, and how many come before
  int64_t done = 0;              // bytes of all inputs, as stored
  MadeRecords made;
};

constexpr size_t kLinesAtOnce = 256 << 10;  // bytes

// A conversation, or a text, which is one message of `role`.
Conversation conversation_or_text(const JsonObject& object, const std::string& name, const std::string& role) {
  const JsonValue* value = find_member(object, name);
  const auto* text = value ? std::get_if<std::string>(value) : nullptr;
  return text ? Conversation{{{role, *text}}} : conversation_of(object, name);
}

// Whether prompts and answers are lists of messages, by the first record. Standard input is read once, so that it is
// asked by --template alone.
bool holds_messages(const std::vector<std::string>& inputs, const JsonFields& fields) {
  if (inputs[0] == "-" || (fields.completion.empty() && fields.chosen.empty())) return false;
  RecordReader reader(inputs[0], 0, 0);
  for (std::string_view line; reader.next(line);) {
    const auto object = reader.too_long() ? std::nullopt : parse_json_record(line);
    if (!object) return false;  // refused later, by its line
    if (object->empty()) continue;
    for (const std::string& name : {fields.prompt, fields.completion, fields.chosen}) {
      const JsonValue* value = name.empty() ? nullptr : find_member(*object, name);
      const auto* list = value ? std::get_if<JsonText>(value) : nullptr;
      if (list && list->text.starts_with('[')) return true;
    }
    return false;
  }
  return false;
}

// The template of conversations; null where records are texts.
std::shared_ptr<const ChatTemplate> template_of(const std::vector<std::string>& inputs, const JsonFields& fields,
                                                const Vocabulary& vocabulary) {
  if (fields.messages.empty() && fields.chat_template.empty() && !holds_messages(inputs, fields)) return nullptr;
  auto out = chat_template(fields.chat_template, vocabulary, fields.template_values);
  if (out->end().empty())
    log_warning(str("the chat template ", out->name(),
                    " shows no token or text behind an answer, so that a model may not learn to end one"));
  return out;
}

// What the output says of its tokens: with the template that made its records.
std::unique_ptr<Vocabulary> with_template(const Vocabulary& vocabulary, const ChatTemplate* chat) {
  auto out = std::make_unique<Vocabulary>(vocabulary);
  if (chat) out->set_chat(std::make_shared<const ChatSource>(chat->source()));
  return out;
}

class JsonImport {
 public:
  JsonImport(const std::vector<std::string>& inputs, const JsonFields& fields, int64_t skip_bad,
             const ImportOptions& options, const std::string& output)
      : inputs_(inputs),
        fields_(fields),
        skip_bad_(skip_bad),
        options_(options),
        vocabulary_(options.vocabulary ? *options.vocabulary : Vocabulary::bytes()),
        threads_(import_threads(options)),
        template_(template_of(inputs, fields, vocabulary_)),
        encoders_(record_encoders(vocabulary_, threads_, reserved())),
        writer_(output, options.force, with_template(vocabulary_, template_.get()), 0, description()) {
    warn_of_no_end();
    if (paired()) writer_.set_paired();
    writer_.set_like(options.like);
    require(options.separator.empty() || vocabulary_.has_tokenizer(), ExitCode::kUsage,
            "a separator is an added token of a tokenizer; bytes and characters have none");
    if (!options.separator.empty()) encoders_[0]->need_token(options.separator, "the separator");
    if (writer_.found()) {
      input_ = static_cast<size_t>(writer_.found_integer("input", 0, std::ssize(inputs_)));
      skip_to_ = writer_.found_integer("byte", 0), skip_lines_ = writer_.found_integer("lines", 0, skip_to_);
      bad_ = writer_.found_integer("bad", 0), empty_ = writer_.found_integer("empty", 0);
    }
    for (size_t i = 0; i < input_; ++i) before_ += InputFile(inputs_[i]).size;
  }

  // `total`: bytes of the inputs; 0 where that is not known.
  void run(int64_t total) {
    SaveTimer saves(options_.save_every);
    in_order<JsonLines>(
        threads_, [&](JsonLines& lines) { return next(lines); },
        [&](JsonLines& lines, int thread) { make(lines, *encoders_[static_cast<size_t>(thread)]); },
        [&](JsonLines& lines) {
          write(lines);
          if (options_.progress) options_.progress(lines.done, total);
          if (saves.is_due()) save(lines.input, lines.byte, lines.number), saves.saved();
        });
    const std::string& first = inputs_[0] == "-" ? "standard input" : inputs_[0];
    require(writer_.records() > 0, ExitCode::kBadData, first, ": holds no record",
            bad_ + empty_ > 0 ? str("; ", bad_, " bad lines and ", empty_, " empty records were left out") : "");
    if (bad_ + empty_ > 0)
      log_warning(
          str("left out: ", bad_, " bad lines, ", empty_, " empty records; imported: ", writer_.records(), " records"));
    writer_.require_few_labels(str(first, ": field \"", fields_.label, "\""), fields_.many_labels);
    if (saves.any()) save(inputs_.size(), 0, 0);
    writer_.finish(options_.writing);
  }

 private:
  // What the output is a function of; --skip-bad is no part of it, so that an import that failed for a bad line can go
  // on with more of them.
  std::string description() const {
    std::string how = "JSON lines with weights and names of labels, fields";
    for (const std::string& name : {fields_.text, fields_.prompt, fields_.completion, fields_.messages, fields_.label,
                                    fields_.weight, fields_.chosen, fields_.rejected})
      how += " " + json_text_of(name);
    return made_of(how + ", template " + (template_ ? template_->identity() : ""), vocabulary_, options_.separator,
                   inputs_);
  }

  void save(size_t input, int64_t byte, int64_t lines) {
    writer_.save(
        {{"input", static_cast<int64_t>(input)}, {"byte", byte}, {"lines", lines}, {"bad", bad_}, {"empty", empty_}});
  }

  // Reads some lines of an input; 0 where there are none left.
  int64_t next(JsonLines& out) {
    while (input_ < inputs_.size()) {
      if (!reader_) {
        reader_.emplace(inputs_[input_], skip_to_, skip_lines_);
        skip_to_ = skip_lines_ = 0;
      }
      std::string_view line;
      while (out.text.size() < kLinesAtOnce && reader_->next(line)) {
        if (reader_->too_long()) line = {};
        out.lines.push_back({out.text.size(), out.text.size() + line.size(), reader_->number(), reader_->too_long()});
        out.text += line;
      }
      out.input = input_, out.byte = reader_->taken(), out.number = reader_->lines();
      out.done = before_ + reader_->input().taken();
      if (out.text.size() >= kLinesAtOnce) break;
      before_ = out.done;
      ++input_;
      reader_.reset();
      if (!out.lines.empty()) break;
    }
    return out.lines.empty() ? 0 : static_cast<int64_t>(std::max<size_t>(1, out.text.size()));
  }

  void make(JsonLines& lines, RecordEncoder& encoder) const {
    for (const JsonLines::Line& line : lines.lines) {
      try {
        require(!line.too_long, ExitCode::kBadData, "is longer than ", LineReader::kLongestLine >> 20, " MiB");
        add_line(std::string_view(lines.text).substr(line.begin, line.end - line.begin), line.number, encoder,
                 lines.made);
      } catch (const Error& e) {
        if (e.code() != ExitCode::kBadData) throw;
        lines.made.records.push_back({.bad = e.what(), .line = line.number});
      }
    }
    lines.text = {};
  }

  void write(const JsonLines& lines) {
    RecordsOut out(lines.made, writer_);
    for (const MadeRecord& record : lines.made.records) {
      if (!record.bad.empty()) refuse(lines.input, record);
      else if (record.tokens == 0) ++empty_;
      else out.write(record);
    }
  }

  void refuse(size_t input, const MadeRecord& record) {
    const std::string name = inputs_[input] == "-" ? "standard input" : inputs_[input];
    const std::string what = str(name, ":", record.line, ": ", record.bad);
    if (++bad_ > skip_bad_)
      throw Error(ExitCode::kBadData,
                  skip_bad_ == 0 ? what : str(what, "; ", skip_bad_, " bad lines before it were skipped"));
    log_warning(str(what, "; left out"));
  }

  // What messages never become: the template's tokens, and the separator behind a conversation.
  std::vector<std::string> reserved() const {
    if (!template_) return {};
    std::vector<std::string> out = template_->special();
    if (!options_.separator.empty()) out.push_back(options_.separator);
    return out;
  }

  bool paired() const { return !fields_.chosen.empty(); }

  // Answers that nothing follows teach a model no end.
  void warn_of_no_end() const {
    if (template_ || !options_.separator.empty() || !vocabulary_.has_tokenizer()) return;
    if (fields_.completion.empty() && !paired()) return;
    std::string end = vocabulary_.special("<|endoftext|>") >= 0 ? "<|endoftext|>" : "";
    if (const ChatSource* chat = vocabulary_.chat())
      for (const auto& [name, text] : chat->tokens)
        if (name == "eos_token") end = text;
    log_warning(str("nothing ends an answer, so that a model of these records may not learn to stop: --separator ",
                    end.empty() ? "TOKEN puts a token behind each"
                                : str("'", end, "' puts the tokenizer's end-of-text token behind each")));
  }

  // Of a record with a prompt, where there is one, and the field of its answer.
  std::vector<TextPart> parts_with(const JsonObject& object, const std::string& answer) const {
    std::vector<TextPart> out;
    if (!template_) {
      if (!fields_.prompt.empty()) out.push_back({text_field(object, fields_.prompt)});
      out.push_back({text_field(object, answer), true});
      return out;
    }
    Conversation whole = conversation_or_text(object, answer, "assistant");
    if (!fields_.prompt.empty()) {
      Conversation prompt = conversation_or_text(object, fields_.prompt, "user");
      if (!paired())
        for (ChatMessage& message : prompt.messages) message.learnt = false;
      auto& messages = whole.messages;
      messages.insert(messages.begin(), std::make_move_iterator(prompt.messages.begin()),
                      std::make_move_iterator(prompt.messages.end()));
    }
    return template_->parts(whole);
  }

  // Encodes the next record, and the separator behind it. Throws where there is no target in `what`.
  void add(std::vector<TextPart> parts, const std::string& what, MadeRecord about, RecordEncoder& encoder,
           MadeRecords& made) const {
    if (!options_.separator.empty()) parts.push_back({options_.separator, true, true});
    const auto before = static_cast<std::ptrdiff_t>(made.ids.size());
    made.add(encoder, parts, std::move(about));
    if (std::find(made.targets.begin() + before, made.targets.end(), 1) != made.targets.end()) return;
    made.drop_last();
    throw Error(ExitCode::kBadData,
                str(what, "holds no answer", template_ ? ", or none with a weight other than 0" : "",
                    ", so that no token would be learnt"));
  }

  void add_pair(const JsonObject& object, int64_t number, RecordEncoder& encoder, MadeRecords& made) const {
    const auto one = [&](const std::string& name) {
      add(parts_with(object, name), str("its field \"", name, "\" "), {.line = number}, encoder, made);
    };
    const size_t begin = made.ids.size();
    one(fields_.chosen);
    const size_t middle = made.ids.size();
    try {
      one(fields_.rejected);
    } catch (const Error&) {
      made.drop_last();
      throw;
    }
    const auto record = [&](size_t from, size_t to) {
      return PairedRecord{std::span(made.ids).subspan(from, to - from),
                          std::span(made.targets).subspan(from, to - from)};
    };
    try {
      starts_of_answers(record(begin, middle), record(middle, made.ids.size()));
    } catch (const Error&) {
      made.drop_last();
      made.drop_last();
      throw;
    }
  }

  std::vector<TextPart> parts_of(const JsonObject& object) const {
    if (!fields_.prompt.empty()) return parts_with(object, fields_.completion);
    if (template_) return template_->parts(conversation_of(object, fields_.messages));
    return {{text_field(object, fields_.text), true}};
  }

  void add_line(std::string_view line, int64_t number, RecordEncoder& encoder, MadeRecords& made) const {
    const auto object = parse_json_record(line);
    require(object.has_value(), ExitCode::kBadData,
            "is no JSON object (or has a key twice, or is nested deeper than 32 levels)", why_not_json(line));
    if (paired()) return add_pair(*object, number, encoder, made);
    std::vector<TextPart> parts = parts_of(*object);
    const std::string label = fields_.label.empty() ? "" : label_field(*object, fields_.label);
    const bool empty = std::all_of(parts.begin(), parts.end(), [](const TextPart& part) { return part.text.empty(); });
    if (empty) return made.records.push_back({.line = number});
    const float weight = fields_.weight.empty() ? 1 : weight_field(*object, fields_.weight);
    add(std::move(parts), "", {.label = label, .weight = weight, .line = number}, encoder, made);
  }

  const std::vector<std::string>& inputs_;
  const JsonFields& fields_;
  const int64_t skip_bad_;
  const ImportOptions& options_;
  const Vocabulary vocabulary_;
  const int threads_;
  const std::shared_ptr<const ChatTemplate> template_;    // null: records are texts
  std::vector<std::unique_ptr<RecordEncoder>> encoders_;  // one for each thread
  TokenWriter writer_;
  int64_t bad_ = 0, empty_ = 0;
  // Of next():
  std::optional<RecordReader> reader_;
  size_t input_ = 0;
  int64_t skip_to_ = 0, skip_lines_ = 0, before_ = 0;  // bytes of the inputs before, as stored
};

}  // namespace

void import_json(const std::vector<std::string>& inputs, const std::string& output, const JsonFields& fields,
                 int64_t skip_bad, const ImportOptions& options) {
  require(!inputs.empty(), ExitCode::kUsage, "no JSON lines to import: name at least one file");
  const bool pairs = !fields.chosen.empty() || !fields.rejected.empty();
  require(fields.chosen.empty() == fields.rejected.empty(), ExitCode::kUsage,
          "a pair has two answers: name the fields of both, chosen and rejected");
  require(!fields.text.empty() + !fields.messages.empty() + (!fields.prompt.empty() && !pairs) + pairs == 1 &&
              (pairs ? fields.completion.empty() : fields.prompt.empty() == fields.completion.empty()),
          ExitCode::kUsage,
          "name the field of the text, or those of prompt and completion, or that of the messages, or those of chosen "
          "and rejected answers");
  require(fields.label.empty() || !fields.text.empty(), ExitCode::kUsage,
          "a label goes with the field of a text, not with prompts or messages");
  require(fields.weight.empty() || !fields.label.empty(), ExitCode::kUsage,
          "a weight goes with the label of a record: name its field, too");
  int64_t total = 0;
  bool known = true;
  for (const std::string& path : inputs) {
    refuse_other_formats(path, true);
    const int64_t size = path == "-" ? 0 : InputFile(path).size;
    known = known && path != "-";
    total += size;
  }
  JsonImport(inputs, fields, skip_bad, options, output).run(known ? total : 0);
}

}  // namespace lockstep
