#include "data/text/tokenizer/pattern.h"

#include <algorithm>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "core/base/error.h"

namespace lockstep {
namespace {

constexpr size_t kLongestPattern = 4096;
constexpr std::string_view kNameCharacters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_";
// Steps are PCRE2's, each some 10 to 40 ns. A match in kFewSteps from its beginning on costs nothing: words of all
// kinds are such. Others use up a budget, so that a pattern takes no more than a second or so longer than that for a
// text.
constexpr uint32_t kFewSteps = 1000;
constexpr int64_t kBudget = 20'000'000, kBudgetOfByte = 100;

// White space by Unicode, written out: PCRE2's own \s has U+180E besides, and depends on its release.
constexpr std::string_view kSpaces =
    "\\t-\\r\\x{20}\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}\\x{3000}";

// Letters and numbers that Unicode has had since its versions 15 and 16: releases of PCRE2 differ in whether they know
// them, and token ids must not depend on that.
constexpr std::string_view kLaterLetters =
    "\\x{1C89}-\\x{1C8A}\\x{A7CB}-\\x{A7CD}\\x{A7DA}-\\x{A7DC}\\x{105C0}-\\x{105F3}\\x{10D4A}-\\x{10D65}"
    "\\x{10D6F}-\\x{10D85}\\x{10EC2}-\\x{10EC4}\\x{1123F}-\\x{11240}\\x{11380}-\\x{11389}\\x{1138B}\\x{1138E}"
    "\\x{11390}-\\x{113B5}\\x{113B7}\\x{113D1}\\x{113D3}\\x{11BC0}-\\x{11BE0}\\x{11F02}\\x{11F04}-\\x{11F10}"
    "\\x{11F12}-\\x{11F33}\\x{1342F}\\x{13441}-\\x{13446}\\x{13460}-\\x{143FA}\\x{16100}-\\x{1611D}"
    "\\x{16D40}-\\x{16D6C}\\x{18CFF}\\x{1B132}\\x{1B155}\\x{1DF25}-\\x{1DF2A}\\x{1E030}-\\x{1E06D}"
    "\\x{1E4D0}-\\x{1E4EB}\\x{1E5D0}-\\x{1E5ED}\\x{1E5F0}\\x{2B739}\\x{2EBF0}-\\x{2EE5D}\\x{31350}-\\x{323AF}";
constexpr std::string_view kLaterNumbers =
    "\\x{10D40}-\\x{10D49}\\x{116D0}-\\x{116E3}\\x{11BF0}-\\x{11BF9}\\x{11F50}-\\x{11F59}\\x{16130}-\\x{16139}"
    "\\x{16D70}-\\x{16D79}\\x{1CCF0}-\\x{1CCF9}\\x{1D2C0}-\\x{1D2D3}\\x{1E4F0}-\\x{1E4F9}\\x{1E5F1}-\\x{1E5FA}";

// The pattern in PCRE2's terms. What the two languages write alike but read differently is refused.
std::string translated(std::string_view text, std::string_view where, bool whole) {
  const auto refuse = [&](bool is, std::string_view what) {
    require(!is, ExitCode::kBadData, where, ": the pattern '", text, "' has ", what, ", which is not supported");
  };
  refuse(text.size() > kLongestPattern, "too many characters");
  std::string out;
  bool in_class = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const std::string_view rest = text.substr(i);
    if (c == '\\') {
      refuse(i + 1 == text.size(), "a backslash at its end");
      const char escaped = text[++i];
      const bool is_letter = (escaped >= 'a' && escaped <= 'z') || (escaped >= 'A' && escaped <= 'Z');
      const bool is_digit = escaped >= '0' && escaped <= '9';
      if (whole && (escaped == 'b' || escaped == 'B') && !in_class) {
        out += rest.substr(0, 2);
        continue;
      }
      refuse(is_digit || static_cast<unsigned char>(escaped) >= 0x80 ||
                 (is_letter && std::string_view("pPsSdDrnt").find(escaped) == std::string_view::npos),
             rest.substr(0, 2));
      std::string negated = escaped == 'S' || escaped == 'P' ? "^" : "", set;
      if (escaped == 's' || escaped == 'S') {
        set = kSpaces;
      } else if (escaped == 'p' || escaped == 'P') {
        const size_t end = std::min(rest.find('}'), rest.size());
        const std::string_view name = rest.substr(0, end).substr(std::min<size_t>(3, end));
        refuse(end == rest.size() || rest[2] != '{' || name.find_first_not_of(kNameCharacters) != name.npos,
               rest.substr(0, 3));
        set = str("\\p{", name, "}", name == "L" ? kLaterLetters : name == "N" ? kLaterNumbers : "");
        i += end - 1;
      } else {
        out += rest.substr(0, 2);
        continue;
      }
      refuse(in_class && !negated.empty(), str(rest.substr(0, 2), " within a class"));
      out += in_class ? set : str("[", negated, set, "]");
      continue;
    }
    if (in_class) {
      refuse(c == '[', "a class within a class");
      refuse(rest.starts_with("&&"), "an intersection of classes");
      in_class = c != ']';
    } else if (c == '[') {
      in_class = true;
      if (rest.starts_with("[^")) out += c, ++i;
      refuse(i + 1 < text.size() && text[i + 1] == ']', "a class that begins with ]");
    } else {
      refuse(!whole && (c == '^' || c == '$'), "an anchor");
      refuse(rest.starts_with("}+"), "a possessive interval");
      refuse(rest.starts_with("(*") || rest.starts_with("(?#") || rest.starts_with("(?P") || rest.starts_with("(?R") ||
                 rest.starts_with("(?C") || rest.starts_with("(?&") || rest.starts_with("(?<") ||
                 rest.starts_with("(?|") || rest.starts_with("(?("),
             rest.substr(0, 3));
    }
    out += text[i];
  }
  return out;
}

}  // namespace

struct Pattern::Code {
  pcre2_code* code = nullptr;
  pcre2_code* there = nullptr;  // the same, but for matches that begin where the search does
  Code() = default;
  Code(const Code&) = delete;
  ~Code() {
    pcre2_code_free(code);
    pcre2_code_free(there);
  }
};

Pattern::Pattern(std::string text, std::string_view where, PatternUse use) : text_(std::move(text)) {
  const bool whole = use == PatternUse::kWholeTexts;
  auto made = std::make_shared<Code>();
  const std::string pcre = translated(text_, where, whole);
  int error = 0;
  const auto compile = [&](uint32_t flags) {
    size_t at = 0;
    return pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pcre.data()), pcre.size(),
                         PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C | flags, &error, &at, nullptr);
  };
  made->code = compile(0);
  made->there = compile(PCRE2_ANCHORED);
  if (!made->code || !made->there) {
    PCRE2_UCHAR message[128] = {};
    pcre2_get_error_message(error, message, sizeof message);
    throw Error(ExitCode::kBadData,
                str(where, ": the pattern '", text_, "' is refused: ", reinterpret_cast<const char*>(message)));
  }
  uint32_t behind = 0, empty = 0, groups = 0;
  pcre2_pattern_info(made->code, PCRE2_INFO_MAXLOOKBEHIND, &behind);
  pcre2_pattern_info(made->code, PCRE2_INFO_MATCHEMPTY, &empty);
  pcre2_pattern_info(made->code, PCRE2_INFO_BACKREFMAX, &groups);
  require((behind == 0 || whole) && groups == 0, ExitCode::kBadData, where, ": the pattern '", text_,
          "' refers to what lies before it, which is not supported");
  require(empty == 0, ExitCode::kBadData, where, ": the pattern '", text_, "' matches an empty text");
  // Where there is no just-in-time compiler, PCRE2 interprets.
  for (pcre2_code* code : {made->code, made->there})
    pcre2_jit_compile(code, PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD);
  code_ = std::move(made);
}

std::string_view named_pattern(std::string_view name) {
  if (name == "gpt2") return R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
  if (name == "llama3")
    return R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
           R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
  if (name == "qwen2")
    return R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
           R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
  return "";
}

int Pattern::groups() const {
  uint32_t count = 0;
  pcre2_pattern_info(code_->code, PCRE2_INFO_CAPTURECOUNT, &count);
  return static_cast<int>(count);
}

struct Matcher::Scratch {
  pcre2_match_data* data;
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(32 << 10, 4 << 20, nullptr);
  explicit Scratch(int groups) : data(pcre2_match_data_create(static_cast<uint32_t>(1 + groups), nullptr)) {
    check(data && context, "no memory for PCRE2");
    pcre2_jit_stack_assign(context, nullptr, stack);
  }
  ~Scratch() {
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
    pcre2_jit_stack_free(stack);
  }
};

Matcher::Matcher(int groups) : scratch_(std::make_unique<Scratch>(groups)) {}
Matcher::Matcher(Matcher&&) noexcept = default;
Matcher::~Matcher() = default;

void Matcher::begin_text(size_t bytes) { budget_ = kBudget + kBudgetOfByte * static_cast<int64_t>(bytes); }

int Matcher::run(const Pattern& pattern, std::string_view text, size_t from, bool more, bool only_there,
                 uint32_t steps) {
  pcre2_set_match_limit(scratch_->context, steps);
  return pcre2_match(only_there ? pattern.code_->there : pattern.code_->code, reinterpret_cast<PCRE2_SPTR>(text.data()),
                     text.size(), from, PCRE2_NO_UTF_CHECK | (more ? PCRE2_PARTIAL_HARD : 0u), scratch_->data,
                     scratch_->context);
}

// The limit of PCRE2 counts from each beginning of a match anew, so every beginning is tried by itself here, each with
// more and more steps. PCRE2 does not say how many it took: all that it was given count.
int Matcher::run_by_budget(const Pattern& pattern, std::string_view text, size_t from, bool more) {
  int code = PCRE2_ERROR_NOMATCH;
  for (size_t at = from; at <= text.size() && code == PCRE2_ERROR_NOMATCH;) {
    code = run(pattern, text, at, more, true, kFewSteps);
    for (int64_t steps = 4 * kFewSteps; code == PCRE2_ERROR_MATCHLIMIT; steps *= 4) {
      budget_ -= steps;
      require(budget_ >= 0, ExitCode::kBadData, "the pattern '", pattern.text_, "' takes too many steps on a text of ",
              text.size(), " bytes, at byte ", at, ": it looks for its end in too many ways");
      code = run(pattern, text, at, more, true, static_cast<uint32_t>(std::min<int64_t>(steps, UINT32_MAX)));
    }
    for (++at; at < text.size() && (static_cast<uint8_t>(text[at]) & 0xC0) == 0x80;) ++at;
  }
  return code;
}

Matcher::Result Matcher::find(const Pattern& pattern, std::string_view text, size_t from, bool more, Match& match) {
  int code = run(pattern, text, from, more, false, kFewSteps);
  if (code == PCRE2_ERROR_MATCHLIMIT) code = run_by_budget(pattern, text, from, more);
  if (code == PCRE2_ERROR_NOMATCH) return Result::kNone;
  if (code == PCRE2_ERROR_PARTIAL) return Result::kNeedsMore;
  require(code >= 0, ExitCode::kBadData, "the pattern '", pattern.text_, "' cannot be matched with a piece of ",
          text.size() - from, " bytes (PCRE2 error ", code, ")");
  const size_t* ends = pcre2_get_ovector_pointer(scratch_->data);
  match = {ends[0], ends[1]};
  found_ = code;
  return Result::kMatch;
}

std::vector<std::string_view> Matcher::groups(std::string_view text) const {
  const size_t* ends = pcre2_get_ovector_pointer(scratch_->data);
  std::vector<std::string_view> out;
  for (size_t i = 1; i < pcre2_get_ovector_count(scratch_->data); ++i) {
    const bool took_part = static_cast<int>(i) < found_ && ends[2 * i] != PCRE2_UNSET;
    out.push_back(took_part ? text.substr(ends[2 * i], ends[2 * i + 1] - ends[2 * i]) : std::string_view());
  }
  return out;
}

}  // namespace lockstep
