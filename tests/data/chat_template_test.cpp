// Chat templates: what they write and which of it is learnt, as transformers' apply_chat_template; what no template may
// do; conversations in the forms that data has.
#include "data/text/chat_template.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <map>

#include "core/base/error.h"
#include "data/import/line_reader.h"
#include "data/text/tokenizer/normalizer.h"
#include "data/text/tokenizer/tokenizer_file.h"
#include "tests/data/make_files.h"

namespace lockstep::chat_template_test {
namespace {

using jinja::Template;

// 12:34:56 on 27 November 2026, local time, which is "now" of the golden files.
int64_t golden_time() {
  std::tm t{};
  t.tm_year = 126, t.tm_mon = 10, t.tm_mday = 27, t.tm_hour = 12, t.tm_min = 34, t.tm_sec = 56, t.tm_isdst = -1;
  return static_cast<int64_t>(std::mktime(&t));
}

jinja::Values values_of(const std::string& json) {
  jinja::Values out;
  const auto object = parse_json_object(json);
  for (const auto& [name, value] : *object) out.emplace_back(name, jinja::of_json(value, 0));
  return out;
}

std::string text(const std::string& source, const std::string& context = "{}") {
  return Template(source).render(values_of(context), golden_time()).text.bytes;
}

std::string spans_text(const std::vector<jinja::Span>& spans) {
  std::string out;
  for (const jinja::Span& s : spans) out += str(out.empty() ? "" : ",", "[", s.begin, ",", s.end, "]");
  return str("[", out, "]");
}

std::string without_spaces(std::string text) {
  std::erase(text, ' ');
  return text;
}

// Whether a rendering is what the line of a golden file says: "text" and "generation", or "refused" or "error".
void expect_golden(const std::string& source, const jinja::Values& values, const JsonObject& line,
                   const std::string& where) {
  const bool refused = find_member(line, "refused") || find_member(line, "error");
  try {
    const jinja::Rendered got = Template(source).render(values, golden_time());
    EXPECT_FALSE(refused) << where << ": " << source << " gives " << got.text.bytes;
    EXPECT_EQ(got.text.bytes, text_of(line, "text")) << where << ": " << source;
    const JsonValue* spans = find_member(line, "generation");
    EXPECT_EQ(spans_text(got.generations), spans ? without_spaces(std::get<JsonText>(*spans).text) : "[]")
        << where << ": " << source;
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::kBadData);
    EXPECT_TRUE(std::string(e.what()).starts_with("line ")) << e.what();
    EXPECT_TRUE(refused) << where << ": " << source << ": " << e.what();
  }
}

// Of each construct, by Jinja 3.1.6 in transformers 5.24 (tests/parity/make_chat.py).
TEST(ChatTemplates, WriteWhatJinjaWrites) {
  LineReader lines(std::string(LOCKSTEP_CHAT_GOLDEN) + "/constructs.jsonl");
  std::string_view line;
  ASSERT_TRUE(lines.next(line));
  const jinja::Values values = values_of(std::get<JsonText>(*find_member(*parse_json_object(line), "context")).text);
  while (lines.next(line)) {
    const JsonObject object = *parse_json_object(line);
    expect_golden(text_of(object, "source"), values, object, str("line ", lines.number()));
  }
  EXPECT_GT(lines.number(), 1000);
}

// LOCKSTEP_CHAT_CASES: a file that tests/parity/make_chat.py wrote, of templates that packages carry.
TEST(ChatTemplates, OfPackagesWriteWhatTransformersWrites) {
  const char* path = std::getenv("LOCKSTEP_CHAT_CASES");
  if (!path) GTEST_SKIP() << "LOCKSTEP_CHAT_CASES names no file of cases";
  std::map<std::string, std::string> sources;
  LineReader lines(path);
  int64_t cases = 0;
  for (std::string_view line; lines.next(line);) {
    const JsonObject object = *parse_json_object(line);
    if (find_member(object, "define")) {
      sources[text_of(object, "define")] = text_of(object, "source");
    } else if (line.find("12345678901234567890") == line.npos) {  // integers of more than 64 bits become real numbers
      const std::string name = text_of(object, "use");
      expect_golden(sources.at(name), values_of(std::get<JsonText>(*find_member(object, "context")).text), object,
                    str(name, ", line ", lines.number()));
      ++cases;
    }
  }
  std::cout << cases << " cases of " << sources.size() << " templates\n";
}

void refuses(const std::string& source, const std::string& what) {
  try {
    ADD_FAILURE() << source << " gives " << text(source).substr(0, 100);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::kBadData);
    EXPECT_NE(std::string(e.what()).find(what), std::string::npos) << e.what();
  }
}

// By Jinja 3.1.6 with Python 3.11: numbers in all their spellings, and the case of letters beyond Latin.
TEST(ChatTemplates, ReadNumbersAndTurnCaseAsPythonDoes) {
  const std::pair<std::string, std::string> cases[] = {
      {"'7'|int", "7"},
      {"' 7 '|int", "7"},
      {"'\u00a07\u3000'|int", "7"},
      {"'\0347'|int", "0"},
      {"'1_000'|int", "1000"},
      {"'1__0'|int(5)", "5"},
      {"'_1'|int(5)", "5"},
      {"'1_'|int(5)", "5"},
      {"'0x1F'|int", "0"},
      {"'0x1F'|int(base=16)", "31"},
      {"'0x_1F'|int(5, 16)", "31"},
      {"'0x1F'|int(5, 0)", "31"},
      {"'0x'|int(5, 16)", "5"},
      {"'0b11'|int(5, 2)", "3"},
      {"'0o17'|int(5, 0)", "15"},
      {"'010'|int(5, 0)", "10"},
      {"'00'|int(5, 0)", "0"},
      {"'zz'|int(5, 36)", "1295"},
      {"'4'|int(5, 1)", "4"},
      {"'42.9'|int", "42"},
      {"'-42.9'|int", "-42"},
      {"'1e3'|int", "1000"},
      {"'1_0e1_0'|int", "100000000000"},
      {"'1e400'|int(5)", "5"},
      {"'nan'|int(5)", "5"},
      {"'\u0661\u0662\u0663'|int", "123"},
      {"'\uff11\uff12'|int", "12"},
      {"'1\u0662'|int", "12"},
      {"'\u00b2'|int(5)", "5"},
      {"'\u4e00'|int(5)", "5"},
      {"'\u22125'|int(5)", "5"},
      {"'9223372036854775807'|int", "9223372036854775807"},
      {"'-9223372036854775808'|int", "-9223372036854775808"},
      {"'9'|int + '0'|int(5, 37)", "9"},
      {"none|int(5)", "5"},
      {"[1]|int(5)", "5"},
      {"true|int", "1"},
      {"2.9|int", "2"},
      {"(1e400 - 1e400)|int(5)", "5"},
      {"'1.5'|float", "1.5"},
      {"'.5'|float", "0.5"},
      {"'5.'|float", "5.0"},
      {"'.'|float(2)", "2"},
      {"'1_0.5_0'|float", "10.5"},
      {"'1._5'|float(2)", "2"},
      {"'1e1_0'|float", "10000000000.0"},
      {"'1e_1'|float(2)", "2"},
      {"'0x1p3'|float(2)", "2"},
      {"'0x1A'|float(2)", "2"},
      {"'1e400'|float", "inf"},
      {"'-1e400'|float", "-inf"},
      {"'1e-400'|float", "0.0"},
      {"'4.9e-324'|float", "5e-324"},
      {"'Infinity'|float", "inf"},
      {"'-inf'|float", "-inf"},
      {"'NaN'|float", "nan"},
      {"'nan(1)'|float(2)", "2"},
      {"'\u0665.\u0665'|float", "5.5"},
      {"'1e20'|float", "1e+20"},
      {"'1e20'|float|string", "1e+20"},
      {"1e16|string", "1e+16"},
      {"1e15|string", "1000000000000000.0"},
      {"0.0001|string", "0.0001"},
      {"0.00001|string", "1e-05"},
      {"0x1F", "31"},
      {"0X_ff", "255"},
      {"0o17", "15"},
      {"0b1_01", "5"},
      {"1_000", "1000"},
      {"007.5", "7.5"},
      {"2.5|round", "2.0"},
      {"3.5|round", "4.0"},
      {"2.675|round(2)", "2.67"},
      {"1.005|round(2)", "1.0"},
      {"15|round(-1)", "20"},
      {"25|round(-1)", "20"},
      {"35.0|round(-1)", "40.0"},
      {"-0.4|round", "-0.0"},
      {"5|round(2)", "5"},
      {"123456789012345678|round(-3)", "123456789012346000"},
      {"2.5|round(none)", "2"},
      {"2.1|round(method='ceil')", "3.0"},
      {"-2.1|round(method='floor')", "-3.0"},
      {"2.123|round(2, 'ceil')", "2.13"},
      {"7|round(1, 'floor')", "7.0"},
      {"-7|abs", "7"},
      {"-0.0|abs", "0.0"},
      {"7 // 2", "3"},
      {"-7 // 2", "-4"},
      {"7 % -3", "-2"},
      {"-7.5 % 2", "0.5"},
      {"-4.0 % 2", "0.0"},
      {"1.0 // 0.1", "9.0"},
      {"0 / -1", "-0.0"},
      {"9007199254740993 / 3", "3002399751580331.0"},
      {"9007199254740993 == 9007199254740992.0", "False"},
      {"9223372036854775807 < 9223372036854775808.0", "True"},
      {"2 ** -1", "0.5"},
      {"-2 ** 2", "4"},
      {"'stra\u00dfe'|upper", "STRASSE"},
      {"'\ufb01ne'|title", "FIne"},
      {"'\ufb01ne'.title()", "Fine"},
      {"'\u0149a'|capitalize", "\u02bcNa"},
      {"'\u01c6a'.title()", "\u01c5a"},
      {"'\u01c6a'|title", "\u01c4a"},
      {"'\u01c6a'|capitalize", "\u01c5a"},
      {"'\u039f\u0394\u039f\u03a3'|lower", "\u03bf\u03b4\u03bf\u03c2"},
      {"'\u03a3\u0391\u03a3.'|lower", "\u03c3\u03b1\u03c2."},
      {"'\u0391\u03a3\u0391'|lower", "\u03b1\u03c3\u03b1"},
      {"'\u0391\u03a3-\u0392'|title", "\u0391\u03c3-\u0392"},
      {"'\u0391\u03a3\u0391 \u039f\u03a3'.title()", "\u0391\u03c3\u03b1 \u039f\u03c2"},
      {"'\u03a3'|lower", "\u03c3"},
      {"'\u0130'|lower", "i\u0307"},
      {"'\u10d0'|title", "\u1c90"},
      {"'\u10d0'|upper", "\u1c90"},
      {"'\u1fb3'|upper", "\u0391\u0399"},
      {"\"they're bill's\"|title", "They're Bill's"},
      {"\"they're bill's\".title()", "They'Re Bill'S"},
      {"'\u2173 \u24d0'|upper", "\u2163 \u24b6"},
      {"'\u0663'.isdigit()", "True"},
      {"'\u00b2'.isdigit()", "True"},
      {"'\u00b2'.isdecimal()", "False"},
      {"'\u2460'.isdigit()", "True"},
      {"'\u00bd'.isdigit()", "False"},
      {"'\u00bd'.isnumeric()", "True"},
      {"'\u4e00'.isnumeric()", "True"},
      {"'\u2167'.isnumeric()", "True"},
      {"'\u2167'.isalpha()", "False"},
      {"'\u24b6'.isalpha()", "False"},
      {"'\u00bd'.isalnum()", "True"},
      {"'\u4e2d'.isalpha()", "True"},
      {"'\u0301'.isalpha()", "False"},
      {"'\u2167'.isupper()", "True"},
      {"'\u24b6' is upper", "True"},
      {"'\u00aa'.islower()", "True"},
      {"'\u01c5'.isupper()", "False"},
      {"'a1'.islower()", "True"},
      {"'\u4e2d'.islower()", "False"},
      {"'\u00bd a_b \u0301'|wordcount", "2"},
  };
  const auto is_ascii = [](char c) { return static_cast<uint8_t>(c) < 0x80; };
  for (const auto& [expression, value] : cases) try {
      if (!can_normalise() && !std::all_of(expression.begin(), expression.end(), is_ascii)) continue;
      EXPECT_EQ(Template("{{ " + expression + " }}").render({}, 0).text.bytes, value) << expression;
    } catch (const Error& e) {
      ADD_FAILURE() << expression << ": " << e.what();
    }
  const std::string large = "more than 64 bits, which is not supported";  // Python has integers of any size
  for (const char* expression :
       {"'9223372036854775808'|int", "'-9223372036854775809'|int", "'1e20'|int", "1e20|int",
        "'ffffffffffffffff'|int(5, 16)", "9223372036854775808", "0x8000000000000000", "9223372036854775807 + 1",
        "2 ** 63", "-9223372036854775807 - 2", "[9223372036854775807, 1]|sum", "(-9223372036854775807 - 1)|abs",
        "-(-9223372036854775807 - 1)"})
    refuses(str("{{ ", expression, " }}"), large);
  refuses("{{ (-8) ** 0.5 }}", "a complex number, which is not supported");
  refuses("{{ missing|int }}", "'missing' is undefined");
  refuses("{{ missing|float }}", "'missing' is undefined");
  refuses("{{ ('1e400'|float)|int }}", "an infinity is no integer");
  refuses("{{ 0 ** -1 }}", "divides by 0");
  refuses("{{ 1.0 // 0 }}", "divides by 0");
  refuses("{{ 10.0 ** 400 }}", "too large");
  refuses("{{ 007 }}", "the integer 007 begins with a 0");
  refuses("{{ 0x }}", "0x has no digits behind it");
  refuses("{{ 0b2 }}", "0b has no digits behind it");
  refuses("{{ '2.5'|round }}", "rounds numbers, not a str");
  refuses("{{ 2.5|round(1, 'down') }}", "the method is common, ceil or floor");
}

TEST(ChatTemplates, ThatDoWhatNoneMayDoAreRefused) {
  refuses("{{ ''.__class__ }}", "line 1: the attribute '__class__' is not allowed");
  refuses("\n{{ ''['__class__'] }}", "line 2: the attribute '__class__' is not allowed");
  refuses("{% set l = [] %}\n\n{{ l.append(1) }}", "line 3: the method 'append' changes a list");
  refuses("{% set d = {} %}{{ d.update({'a': 1}) }}", "the method 'update' changes a dict");
  refuses("{% import 'x' as x %}", "the tag 'import' is not supported");
  refuses("{% for i in range(1000000) %}{% endfor %}", "range has more than 100000 numbers");
  refuses("{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}", "too many steps");
  refuses("{% set ns = namespace(t='x') %}{% for i in range(90) %}{% set ns.t = ns.t + ns.t %}{% endfor %}",
          "more than");
  refuses("{% set ns = namespace(l=[]) %}{% for i in range(900) %}{% set ns.l = [ns.l] %}{% endfor %}",
          "nested deeper");
  refuses("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "nested deeper than 800 levels");
  std::string deep = "{% macro m(n) %}{{ (m(n - 1) if n > 0 else 'x')";
  for (int i = 0; i < 500; ++i) deep += " + 'a'";
  refuses(deep + " }}{% endmacro %}{{ m(48) }}", "nested deeper than 800 levels");
  // What is large only in the end, or takes long only once.
  refuses("{{ ('a' * 1000000) | replace('a', 'b' * 1000000) | length }}", "a text has more than 16 MiB");
  refuses("{{ range(100000) | join('a' * 1000000) | length }}", "a text has more than 16 MiB");
  refuses("{{ ('a' * 10000000) | list | length }}", "too many steps");
  refuses("{% for c in 'a' * 10000000 %}{% endfor %}", "too many steps");
  refuses("{{ ('a,' * 5000000).split(',') | length }}", "too many steps");
  // Copies and comparisons cost by their bytes.
  const std::string large = "{% set t = ('a' * 4000) * 4000 %}";
  for (const char* use : {"{% for i in range(100000) %}{% set x = t.rsplit('b') %}{% endfor %}",
                          "{% for i in range(100000) %}{% set x = t.split('b') %}{% endfor %}",
                          "{% set x = ([t] * 20000) | sort(case_sensitive=true) %}",
                          "{% set x = (t[1:] ~ 'b') in [t[1:] ~ 'c'] * 20000 %}",
                          "{% for i in range(100000) %}{% set x = t.endswith(t) %}{% endfor %}"})
    refuses(large + use, "the template ");  // takes too many steps, or holds too much
  refuses("{{ ('a' * 100000) | indent('x' * 1000000, true) }}{{ ([1] * 1000) | tojson('', 'y' * 1000000) }}", "");
  EXPECT_EQ(text("{{ ('a' * 1000000).strip('b' * 1000000 + 'a') }}"), "");
  EXPECT_EQ(text("{{ ('a ' * 100000).split() | length }}"), "100000");
  // Searches, and scans of a whole text, many times.
  refuses("{% set a = 'a' * 300000 %}{% set b = 'a' * 150000 ~ 'b' %}{{ b in a }}", "searches too long a text");
  for (const char* scan : {"c.isdigit()", "c[i]", "c.count('zzz')", "c.strip(c[:100])", "c | lower | upper"})
    refuses(str("{% set c = 'a' * 300000 %}{% for i in range(100000) %}{% set x = ", scan, " %}{% endfor %}"),
            "too many steps");
  std::string twice = "{% set a = [1] %}";
  for (int i = 0; i < 60; ++i) twice += "{% set a = [a, a] %}";
  for (const char* use :
       {"{{ a | tojson }}", "{{ a }}", "{{ a == [a[0], a[0]] }}", "{{ a < a }}{{ [a] == [[a[1], a[0]]] }}"})
    refuses(twice + use, "too many steps");
  std::string names;
  for (int i = 0; i < 50000; ++i) names += str("{% set v", i, "=1 %}");
  refuses(names, "too many steps");
  refuses("{{ 'x' * 99999999999 }}", "repeated too often");
  refuses("{{ " + std::string(5000, '(') + "1" + std::string(5000, ')') + " }}", "nested deeper");
  refuses("{{ 1" + std::string(5000, '+').replace(0, 0, "") + "1 }}", "nested deeper");
  std::string sum = "{{ 1";
  for (int i = 0; i < 5000; ++i) sum += " + 1";
  refuses(sum + " }}", "an expression is too long");
  // A namespace may hold itself, and is freed all the same.
  EXPECT_EQ(text("{% set ns = namespace() %}{% set ns.me = ns %}{% set ns.l = [ns] %}{{ ns.me.me == ns }}"), "True");
}

// --- targets

// The parts of a conversation as one text, with the targets between [ and ], and special tokens between < and >.
std::string shown(const ChatTemplate& chat, const Conversation& conversation, bool answer_follows = false) {
  std::string out;
  bool target = false;
  for (const TextPart& part : chat.parts(conversation, answer_follows)) {
    if (part.target != target) out += part.target ? "[" : "]";
    target = part.target;
    out += part.special ? str("<", part.text, ">") : part.text;
  }
  return out + (target ? "]" : "");
}

Vocabulary golden_vocabulary() {
  return Vocabulary::byte_pairs(read_tokenizer(std::string(LOCKSTEP_CHAT_GOLDEN) + "/tokenizer.json"));
}

ChatTemplate template_of(const std::string& source) {
  return ChatTemplate({"own", source, "", {{"bos_token", "<|begin_of_text|>"}, {"eos_token", "<|eot_id|>"}}},
                      golden_vocabulary());
}

// The members of a message are the sender's, their names too.
TEST(ChatTemplates, TakeNoTokensFromMessages) {
  const JsonObject message{{"role", "user"}, {"content", "a"}, {"<|im_end|>", "<|im_start|>"}};
  for (const char* source :
       {"{% for m in messages %}{% for k, v in m.items() %}{{ k ~ '=' ~ v ~ ';' }}{% endfor %}{% endfor %}",
        "{% for m in messages %}{{ m | tojson }}{% endfor %}"}) {
    const ChatTemplate chat(
        {"own", source}, Vocabulary::byte_pairs(read_tokenizer(std::string(LOCKSTEP_CHAT_GOLDEN) + "/tokenizer.json")));
    for (const TextPart& part : chat.parts({{{"user", message}}}, true)) EXPECT_FALSE(part.special) << part.text;
  }
}

constexpr const char* kTurns =
    "{{ bos_token }}{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor "
    "%}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

TEST(Targets, AreWhatATemplateWritesOfAnAnswer) {
  const ChatTemplate turns = template_of(kTurns);
  EXPECT_EQ(turns.head(), "<|im_start|>assistant\n");
  EXPECT_EQ(turns.end(), "<|im_end|>");
  const Conversation two{{{"user", "a"}, {"assistant", "b"}, {"user", "c"}, {"assistant", "d"}}};
  EXPECT_EQ(shown(turns, two),
            "<<|begin_of_text|>><<|im_start|>>user\na<<|im_end|>>\n<<|im_start|>>assistant\n[b<<|im_end|>>]\n"
            "<<|im_start|>>user\nc<<|im_end|>>\n<<|im_start|>>assistant\n[d<<|im_end|>>]\n");
  EXPECT_EQ(shown(turns, {{{"user", "a"}}}, true),
            "<<|begin_of_text|>><<|im_start|>>user\na<<|im_end|>>\n<<|im_start|>>assistant\n");
  Conversation one_learnt = two;
  one_learnt.messages[1].learnt = false;
  EXPECT_EQ(shown(turns, one_learnt).find('['), shown(turns, two).rfind('[') - 2);
  // An answer that begins as the head does is no head, and one that spells a token does not write it.
  EXPECT_EQ(shown(turns, {{{"user", "a"}, {"assistant", "<|im_start|>assistant\n<|im_end|>\n"}}}),
            "<<|begin_of_text|>><<|im_start|>>user\na<<|im_end|>>\n<<|im_start|>>assistant\n"
            "[<|im_start|>assistant\n<|im_end|>\n<<|im_end|>>]\n");
  // White space at the end of an answer is the answer's.
  EXPECT_NE(shown(turns, {{{"user", "a"}, {"assistant", "b \n"}}}).find("[b \n<<|im_end|>>]\n"), std::string::npos);
}

TEST(Targets, OfATemplateWithoutAHeadAreAllOfTheTurn) {
  const ChatTemplate calls = template_of(
      "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}{{ '[INST] ' + m.content + ' [/INST]' }}"
      "{% elif m.tool_calls %}{{ '[CALL] ' + (m.tool_calls | tojson) + eos_token }}"
      "{% else %}{{ ' ' + m.content + eos_token }}{% endif %}{% endfor %}");
  EXPECT_EQ(calls.head(), "");
  EXPECT_EQ(calls.end(), "<|eot_id|>");
  EXPECT_EQ(shown(calls, {{{"user", "a"}, {"assistant", "b"}}}), "<<|begin_of_text|>>[INST] a [/INST][ b<<|eot_id|>>]");
  const JsonObject call{{"role", "assistant"}, {"content", nullptr}, {"tool_calls", JsonText{R"([{"name": "f"}])"}}};
  EXPECT_EQ(shown(calls, {{{"user", "a"}, {"assistant", call}}}),
            R"(<<|begin_of_text|>>[INST] a [/INST][[CALL] [{"name": "f"}]<<|eot_id|>>])");
}

// As Qwen 3 does: thoughts of answers before the last one are left out, and the head is not always all of it.
TEST(Targets, MayLackWhatATemplateLeavesOutOfAnAnswer) {
  const ChatTemplate thinks = template_of(
      "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}{% if m.role == 'assistant' and '</think>' in "
      "m.content %}"
      "{% if loop.last %}{{ '<think>\n' + m.content.split('</think>')[0].split('<think>')[-1].strip('\n') + "
      "'\n</think>\n\n' }}"
      "{% endif %}{{ m.content.split('</think>')[-1].lstrip('\n') }}{% else %}{{ m.content }}{% endif %}{{ "
      "'<|im_end|>\n' }}"
      "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n<think>\n' }}{% endif %}");
  EXPECT_EQ(thinks.head(), "<|im_start|>assistant\n<think>\n");
  const std::string answer = "<think>\nhm\n</think>\n\nyes";
  EXPECT_EQ(
      shown(thinks, {{{"user", "a"}, {"assistant", answer}, {"user", "b"}, {"assistant", answer}}}),
      "<<|im_start|>>user\na<<|im_end|>>\n<<|im_start|>>assistant\n[yes<<|im_end|>>]\n<<|im_start|>>user\nb<<|im_end|>>"
      "\n<<|im_start|>>assistant\n<think>\n[hm\n</think>\n\nyes<<|im_end|>>]\n");
}

void refuses_conversation(const std::string& source, const Conversation& conversation, const std::string& what) {
  test::expect_error(ExitCode::kBadData, {what}, [&] { template_of(source).parts(conversation); });
}

// Texts of a conversation, whose bytes have origins: what is held at once is bounded, what was given back counts no
// more.
TEST(Budgets, BoundWhatATemplateHolds) {
  const Conversation large{{{"user", std::string(1 << 20, 'x')}}};
  refuses_conversation(
      "{% set ns = namespace(l=[]) %}{% for i in range(6) %}{% set ns.l = ns.l + [messages[0].content * 14] %}{% "
      "endfor %}",
      large, "the template holds more than 128 MiB of texts");
  template_of("{% for i in range(6) %}{% set t = messages[0].content * 14 %}{% endfor %}{{ messages[0].content }}")
      .parts(large);
}

TEST(Targets, AreWhatIsWithinGenerationWhereATemplateSaysSo) {
  const ChatTemplate marked = template_of(
      "{% for m in messages %}{{ m.role + ': ' }}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% "
      "endgeneration %}"
      "{% else %}{{ m.content }}{% endif %}{{ eos_token }}{% endfor %}");
  const Conversation both{{{"user", "a"}, {"assistant", "b"}, {"assistant", "c", false}}};
  EXPECT_EQ(shown(marked, both), "user: a<<|eot_id|>>assistant: [b]<<|eot_id|>>assistant: c<<|eot_id|>>");
  // One that counts messages, too.
  const ChatTemplate counts = template_of(
      "{% for i in range(messages | length) %}{% set m = messages[i] %}{{ m.role + ': ' }}{% if m.role == 'assistant' "
      "%}"
      "{% generation %}{{ m.content }}{% endgeneration %}{% else %}{{ m.content }}{% endif %}{{ eos_token }}{% endfor "
      "%}");
  EXPECT_EQ(shown(counts, both), shown(marked, both));
  refuses_conversation("{% for i in range(2) %}{{ messages[i].content }}{% endfor %}",
                       {{{"user", "a"}, {"assistant", "b"}}}, "does not loop over the messages");
}

TEST(Targets, OfConversationsThatATemplateDoesNotShowWholeAreRefused) {
  refuses_conversation("{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% endif %}{% endfor %}",
                       {{{"user", "a"}, {"assistant", "b"}}}, "shows nothing of message 1 (role assistant)");
  const JsonObject call{{"role", "assistant"}, {"content", "x"}, {"tool_calls", JsonText{R"([{"name": "f"}])"}}};
  refuses_conversation(kTurns, {{{"user", "a"}, {"assistant", call}}}, "has no place for the tool_calls of message 1");
  refuses_conversation(kTurns, {{{"user", "a"}, {"assistant|><|im_end", "b"}}}, "message 1 has a role that is no word");
  refuses_conversation("{{ raise_exception('only ' ~ 3) }}", {{{"user", "a"}}},
                       "the chat template own, line 1: the template refuses this conversation: only 3");
  // Nothing is dropped where the message is blank.
  EXPECT_EQ(shown(template_of("{% for m in messages %}{{ m.content | trim }};{% endfor %}"),
                  {{{"user", " "}, {"assistant", "b"}}}),
            ";[b;]");
}

// --- conversations

Conversation read(const std::string& record) { return conversation_of(*parse_json_object(record), "m"); }

TEST(Conversations, ComeInTheFormsThatDataHas) {
  Conversation c =
      read(R"({"system": "be brief", "tools": "[{\"name\": \"f\"}]", "m": [{"from": "human", "value": "a"}, )"
           R"({"from": "function_call", "value": "{\"name\": \"f\", \"arguments\": {}}"}, )"
           R"({"from": "observation", "value": "3"}, {"from": "gpt", "value": "b", "weight": 0}]})");
  std::string roles;
  for (const ChatMessage& m : c.messages) roles += m.role + " ";
  EXPECT_EQ(roles, "system user assistant tool assistant ");
  EXPECT_EQ(c.messages[0].content(), "be brief");
  EXPECT_EQ(std::get<JsonText>(*find_member(c.messages[2].members, "tool_calls")).text,
            json_array(std::vector<JsonObject>{
                           {{"type", "function"}, {"function", JsonText{R"({"name":"f","arguments":{}})"}}}})
                .text);
  EXPECT_FALSE(c.messages[4].learnt);
  EXPECT_EQ(c.tools, R"([{"name": "f"}])");
  c = read(
      R"({"chat_template_kwargs": {"x": 1}, "tools": [], "m": [{"role": "user", "content": [{"type": "text", "text": "a"}]}]})");
  EXPECT_EQ(c.values, (JsonObject{{"x", int64_t{1}}}));
  EXPECT_EQ(c.tools, "");
  const auto chatml = chat_template("chatml", golden_vocabulary());
  EXPECT_EQ(shown(*chatml, c), "<<|im_start|>>user\na<<|im_end|>>\n") << "parts of a content are joined";
}

TEST(Conversations, ThatAreNoneAreRefused) {
  const auto refused = [](const std::string& message, const std::string& what) {
    test::expect_error(ExitCode::kBadData, {what}, [&] { read(str(R"({"m": [)", message, "]}")); });
  };
  refused(R"({"from": "nobody", "value": "x"})", "message 0 of \"m\" is from \"nobody\"; known are human, gpt");
  refused(R"({"from": "function_call", "value": "x"})", "is a function_call whose value is no JSON object");
  refused(R"({"role": "assistant", "content": null})", "its field \"content\" is no text, and no list of parts");
  refused(R"({"role": "user", "content": [{"type": "image_url"}]})", "models here read text alone");
  refused(R"({"role": "user", "content": 3})", "is no text");
  test::expect_error(ExitCode::kBadData, {"its field \"tools\" is no list"}, [] { read(R"({"m": [], "tools": {}})"); });
}

// --- where templates come from

TEST(ChatSources, AreReadFromATokenizersFolder) {
  const test::TemporaryFolder folder;
  const auto put = [&](const std::string& name, const std::string& bytes) { test::write_file(folder / name, bytes); };
  const std::string path = folder / ".";
  EXPECT_EQ(chat_source_of_folder(path), nullptr);
  put("tokenizer_config.json",
      R"({"chat_template": [{"name": "default", "template": "d"}, {"name": "tool_use", "template": "t"}], )"
      R"("bos_token": {"content": "<s>"}, "eos_token": "</s>"})");
  put("special_tokens_map.json", R"({"pad_token": "<pad>", "eos_token": "x"})");
  const ChatSource expected{"own", "d", "t", {{"bos_token", "<s>"}, {"eos_token", "</s>"}, {"pad_token", "<pad>"}}};
  EXPECT_EQ(*chat_source_of_folder(path), expected);
  put("chat_template.jinja", "j");
  EXPECT_EQ(chat_source_of_folder(path)->source, "j") << "the file comes before the configuration";
  EXPECT_EQ(ChatSource::parse(expected.text()), expected);
  Vocabulary vocabulary = Vocabulary::bytes();
  vocabulary.set_chat(std::make_shared<const ChatSource>(expected));
  const auto again = parse_vocabulary(vocabulary_text(&vocabulary));
  EXPECT_EQ(*again->chat(), expected);
  EXPECT_EQ(again->level(), TextLevel::kByte);
  for (const char* broken :
       {"chat{", "chat{}\n", "chat{}\nbyte", "chat{\"name\":\"x\",\"source\":3,\"tokens\":{}}\nbyte"})
    test::expect_error(ExitCode::kBadData, {}, [&] { parse_vocabulary(broken); });
  std::string many;
  for (int i = 0; i < 100000; ++i) many += "chat{}\n";
  test::expect_error(ExitCode::kBadData, {"goes with no vocabulary"}, [&] { parse_vocabulary(many); });
}

}  // namespace
}  // namespace lockstep::chat_template_test
