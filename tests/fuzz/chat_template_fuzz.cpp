// A chat template and a conversation, a line of JSON in front of it: what is accepted writes the same text twice, and
// marks spans of it.
#include "data/text/chat_template.h"
#include "tests/fuzz/fuzz.h"

using namespace lockstep;

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t capacity, unsigned seed) {
  static const std::vector<std::string_view> words = fuzz::with_json_words({"{%",
                                                                            "%}",
                                                                            "{{",
                                                                            "}}",
                                                                            "{#",
                                                                            "#}",
                                                                            "{%-",
                                                                            "-%}",
                                                                            "{%+",
                                                                            "for m in messages",
                                                                            "endfor",
                                                                            "if",
                                                                            "elif",
                                                                            "else",
                                                                            "endif",
                                                                            "set",
                                                                            "endset",
                                                                            "macro f(a, b=1)",
                                                                            "endmacro",
                                                                            "generation",
                                                                            "endgeneration",
                                                                            "break",
                                                                            "continue",
                                                                            "raw",
                                                                            "endraw",
                                                                            "filter upper",
                                                                            "endfilter",
                                                                            "loop.index0",
                                                                            "loop.last",
                                                                            "namespace(a=1)",
                                                                            "ns.a",
                                                                            "range(",
                                                                            "raise_exception('x')",
                                                                            "strftime_now('%Y')",
                                                                            "m.content",
                                                                            "m['role']",
                                                                            "| trim",
                                                                            "| tojson(indent=2)",
                                                                            "| selectattr('a', 'equalto', 'b')",
                                                                            "| map(attribute='a')",
                                                                            "| join(', ')",
                                                                            "| length",
                                                                            "| default('')",
                                                                            "| list",
                                                                            "| sort",
                                                                            "| int",
                                                                            "| indent",
                                                                            "is defined",
                                                                            "is string",
                                                                            "is not none",
                                                                            "not in",
                                                                            "and",
                                                                            "or",
                                                                            "~",
                                                                            "+",
                                                                            "**",
                                                                            "//",
                                                                            "[::-1]",
                                                                            "[1:]",
                                                                            ".split('a')",
                                                                            ".strip()",
                                                                            ".items()",
                                                                            ".get('a')",
                                                                            ".format(1)",
                                                                            "'a'",
                                                                            "\\n",
                                                                            "none",
                                                                            "true",
                                                                            "[",
                                                                            "]",
                                                                            "(",
                                                                            ")",
                                                                            "(*a)",
                                                                            "9223372036854775807",
                                                                            "1e5",
                                                                            "|safe",
                                                                            "{'a': 1}",
                                                                            "bos_token",
                                                                            "add_generation_prompt",
                                                                            "\"tool_calls\":",
                                                                            "\"from\":\"human\",\"value\":"});
  return fuzz::mutate_with_words(data, size, capacity, seed, words);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(fuzz::text_of(data, size));
  const size_t line = std::min(text.find('\n'), text.size());
  Conversation conversation{{{"user", "Is it?"}, {"assistant", "Yes"}}};
  if (const auto record = parse_json_object(text.substr(0, line)))
    fuzz::is_accepted({ExitCode::kBadData}, [&] { conversation = conversation_of(*record, "messages"); });
  const std::string source = text.substr(std::min(line + 1, text.size()));
  const Vocabulary bytes = Vocabulary::bytes();
  std::optional<ChatTemplate> chat;
  if (!fuzz::is_accepted({ExitCode::kBadData}, [&] {
        chat.emplace(ChatSource{"own", source, "", {{"bos_token", "<s>"}}}, bytes);
      }))
    return 0;
  const auto written = [&](bool answer_follows) {
    std::string out;
    fuzz::is_accepted({ExitCode::kBadData}, [&] {
      for (const TextPart& part : chat->parts(conversation, answer_follows))
        out += part.text + (part.target ? "\1" : "\2");
    });
    return out;
  };
  fuzz::expect(written(false) == written(false), "another text was written");
  written(true);
  fuzz::is_accepted({}, [&] {
    fuzz::expect(ChatSource::parse(chat->source().text()) == chat->source(), "another source came back");
  });
  return 0;
}
