#include <algorithm>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/io/json.h"
#include "data/import.h"
#include "data/line_reader.h"
#include "data/record_encoder.h"
#include "data/token_writer.h"

namespace lockstep {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

const std::string& text_field(const JsonObject& object, const std::string& name) {
  const JsonValue* value = find_member(object, name);
  require(value != nullptr, ExitCode::kBadData, "has no field \"", name, "\"");
  const auto* text = std::get_if<std::string>(value);
  require(text != nullptr, ExitCode::kBadData, "its field \"", name, "\" is no text");
  return *text;
}

// A label: a text, an integer or a truth value.
std::string label_field(const JsonObject& object, const std::string& name) {
  const JsonValue* value = find_member(object, name);
  require(value != nullptr, ExitCode::kBadData, "has no field \"", name, "\"");
  if (const auto* number = std::get_if<int64_t>(value)) return cat(*number);
  if (const auto* truth = std::get_if<bool>(value)) return *truth ? "true" : "false";
  const auto* text = std::get_if<std::string>(value);
  require(text != nullptr && !text->empty() && text->find('\n') == text->npos, ExitCode::kBadData, "its field \"", name,
          "\" is no label: a text of one line, an integer, true or false");
  return *text;
}

// The messages of a conversation.
std::vector<ChatMessage> messages_of(const JsonObject& object, const std::string& name) {
  const JsonValue* value = find_member(object, name);
  require(value != nullptr, ExitCode::kBadData, "has no field \"", name, "\"");
  const auto* list = std::get_if<JsonText>(value);
  const auto items = list ? parse_json_array(list->text) : std::nullopt;
  require(items.has_value(), ExitCode::kBadData, "its field \"", name, "\" is no list of messages");
  std::vector<ChatMessage> out;
  for (const JsonValue& item : *items) {
    const auto* text = std::get_if<JsonText>(&item);
    const auto message = text ? parse_json_object(text->text) : std::nullopt;
    require(message.has_value(), ExitCode::kBadData, "message ", out.size(), " of \"", name, "\" is no object");
    try {
      out.push_back({text_field(*message, "role"), text_field(*message, "content")});
    } catch (const Error& e) {
      throw e.with_message(cat("message ", out.size(), " of \"", name, "\" ", e.what()));
    }
  }
  return out;
}

// A conversation, or a text, which is one message of `role`.
std::vector<ChatMessage> messages_or_text(const JsonObject& object, const std::string& name, const std::string& role) {
  const JsonValue* value = find_member(object, name);
  const auto* text = value ? std::get_if<std::string>(value) : nullptr;
  return text ? std::vector<ChatMessage>{{role, *text}} : messages_of(object, name);
}

class JsonImport {
 public:
  JsonImport(const JsonFields& fields, int64_t skip_bad, const ImportOptions& options, const std::string& output)
      : fields_(fields),
        skip_bad_(skip_bad),
        options_(options),
        vocabulary_(options.vocabulary ? *options.vocabulary : Vocabulary::bytes()),
        encoder_(vocabulary_),
        writer_(output, options.force, std::make_unique<Vocabulary>(vocabulary_)) {
    if (paired()) writer_.set_paired();
    if (!fields.messages.empty() || (paired() && !fields.chat_template.empty())) {
      const std::string wanted = fields.chat_template.empty() ? "chatml" : fields.chat_template;
      std::string names;
      for (const ChatTemplate& t : chat_templates()) {
        if (t.name == wanted) template_ = &t;
        names += cat(names.empty() ? "" : ", ", t.name);
      }
      require(template_ != nullptr, ExitCode::kUsage, "there is no template ", wanted, "; there are ", names);
      for (const std::string& token : template_->special)
        encoder_.need_token(token, cat("the template ", template_->name));
    }
    require(options.separator.empty() || vocabulary_.pairs(), ExitCode::kUsage,
            "a separator is an added token of a tokenizer; bytes and characters have none");
    if (!options.separator.empty()) encoder_.need_token(options.separator, "the separator");
  }

  void read(const std::string& path, int64_t done, int64_t total) {
    LineReader lines(path);
    std::string_view line;
    while (lines.next(line)) {
      if (lines.number() == 1 && line.starts_with(kByteOrderMark)) line.remove_prefix(kByteOrderMark.size());
      if (lines.number() % 256 == 0 && options_.progress) options_.progress(done + lines.input().taken(), total);
      if (!lines.too_long() && line.find_first_not_of(" \t\r") == line.npos) continue;
      try {
        require(!lines.too_long(), ExitCode::kBadData, "is longer than ", LineReader::kLongestLine >> 20, " MiB");
        add(line);
      } catch (const Error& e) {
        if (e.code() != ExitCode::kBadData) throw;
        const std::string what = cat(lines.place(), ": ", e.what());
        if (++bad_ > skip_bad_)
          throw e.with_message(skip_bad_ == 0 ? what : cat(what, "; ", skip_bad_, " bad lines before it were skipped"));
        log_warning(cat(what, "; left out"));
      }
    }
    if (options_.progress) options_.progress(done + lines.input().taken(), total);
  }

  void finish(const std::string& first) {
    require(writer_.records() > 0, ExitCode::kBadData, first, ": holds no record",
            bad_ + empty_ > 0 ? cat("; ", bad_, " bad lines and ", empty_, " empty records were left out") : "");
    if (bad_ + empty_ > 0)
      log_warning(
          cat("left out: ", bad_, " bad lines, ", empty_, " empty records; imported: ", writer_.records(), " records"));
    writer_.finish();
  }

 private:
  struct Encoded {
    std::vector<int32_t> ids;
    std::vector<uint8_t> targets;
  };

  bool paired() const { return !fields_.chosen.empty(); }

  // Of a record of a pair: the prompt, where there is one, and the field of its answer.
  std::vector<TextPiece> pieces_with(const JsonObject& object, const std::string& answer) const {
    std::vector<TextPiece> out;
    if (!template_) {
      if (!fields_.prompt.empty()) out.push_back({text_field(object, fields_.prompt)});
      out.push_back({text_field(object, answer), true});
      return out;
    }
    std::vector<ChatMessage> messages;
    if (!fields_.prompt.empty()) messages = messages_or_text(object, fields_.prompt, "user");
    for (ChatMessage& m : messages_or_text(object, answer, "assistant")) messages.push_back(std::move(m));
    return chat_text(*template_, messages);
  }

  // The separator behind it. Throws where there is no target in `what`.
  Encoded encoded(std::vector<TextPiece> pieces, const std::string& what) {
    if (!options_.separator.empty()) pieces.push_back({options_.separator, true, true});
    Encoded out;
    encoder_.encode(pieces, out.ids, out.targets);
    require(std::find(out.targets.begin(), out.targets.end(), 1) != out.targets.end(), ExitCode::kBadData, what,
            "holds no answer, so that no token would be learnt");
    return out;
  }

  void add_pair(const JsonObject& object) {
    const auto one = [&](const std::string& name) {
      return encoded(pieces_with(object, name), cat("its field \"", name, "\" "));
    };
    const Encoded chosen = one(fields_.chosen), rejected = one(fields_.rejected);
    for (const Encoded& record : {chosen, rejected}) {
      writer_.add(record.ids, record.targets);
      writer_.end_record();
    }
  }

  std::vector<TextPiece> pieces_of(const JsonObject& object) const {
    if (template_) return chat_text(*template_, messages_of(object, fields_.messages));
    if (!fields_.prompt.empty())
      return {{text_field(object, fields_.prompt)}, {text_field(object, fields_.completion), true}};
    return {{text_field(object, fields_.text), true}};
  }

  void add(std::string_view line) {
    const auto object = parse_json_object(line);
    require(object.has_value(), ExitCode::kBadData,
            "is no JSON object (or has a key twice, or is nested deeper than 32 levels)");
    if (paired()) return add_pair(*object);
    std::vector<TextPiece> pieces = pieces_of(*object);
    const std::string label = fields_.label.empty() ? "" : label_field(*object, fields_.label);
    const bool empty =
        std::all_of(pieces.begin(), pieces.end(), [](const TextPiece& piece) { return piece.text.empty(); });
    if (empty) {
      ++empty_;
      return;
    }
    const Encoded record = encoded(std::move(pieces), "");
    writer_.add(record.ids, record.targets);
    if (label.empty()) writer_.end_record();
    else writer_.end_record(label);
  }

  const JsonFields& fields_;
  const int64_t skip_bad_;
  const ImportOptions& options_;
  const Vocabulary vocabulary_;
  RecordEncoder encoder_;
  TokenWriter writer_;
  const ChatTemplate* template_ = nullptr;
  int64_t bad_ = 0, empty_ = 0;
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
  int64_t total = 0;
  bool known = true;
  for (const std::string& path : inputs) {
    const int64_t size = path == "-" ? 0 : InputFile(path).size;
    known = known && path != "-";
    total += size;
  }
  JsonImport import(fields, skip_bad, options, output);
  int64_t done = 0;
  for (const std::string& path : inputs) {
    import.read(path, done, known ? total : 0);
    if (path != "-") done += InputFile(path).size;
  }
  import.finish(inputs[0] == "-" ? "standard input" : inputs[0]);
}

}  // namespace lockstep
