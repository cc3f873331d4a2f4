// `lockstep completion`: the shells' scripts, and what those ask for at each word. The scripts hold no commands,
// options or keys: they call `completion candidates`, so a program with models of its own completes its own keys.
#include <algorithm>
#include <set>

#include "launch/arguments/command_line.h"
#include "launch/commands/commands.h"
#include "launch/config/settings.h"
#include "launch/terminal/output.h"

namespace lockstep {
namespace {

// Bash splits words also at '=' and ':', and replaces only what follows its last split.
constexpr const char* kBash = R"script(# Completion of lockstep for bash, printed by `lockstep completion bash`.
_lockstep() {
  local given=() joins="" part line name files=none
  for part in "${COMP_WORDS[@]:1:COMP_CWORD}"; do
    if [[ ${#given[@]} -gt 0 && ( -n $joins || $part == [=:]* ) ]]; then given[-1]+=$part; else given+=("$part"); fi
    if [[ $part == [=:]* ]]; then joins=yes; else joins=""; fi
  done
  local current=${given[-1]}
  local value=${current#*=}
  COMPREPLY=()
  while IFS= read -r line; do
    case $line in
      :*) files=${line#:} ;;
      *) COMPREPLY+=("${line%%$'\t'*}") ;;
    esac
  done < <("${COMP_WORDS[0]}" completion candidates "${given[@]}" 2>/dev/null)
  if [[ $files != none ]]; then
    compopt -o filenames 2>/dev/null
    while IFS= read -r name; do
      if [[ $files == files || -d $name || $name == *.yaml || $name == *.yml ]]; then
        COMPREPLY+=("${current%"$value"}$name")
      fi
    done < <(compgen -f -- "$value")
  elif [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *= ]]; then
    compopt -o nospace 2>/dev/null
  fi
  if [[ $current == *[=:]* && $COMP_WORDBREAKS == *=* ]]; then
    local before=${current%"${current##*[=:]}"}
    COMPREPLY=("${COMPREPLY[@]#"$before"}")
  fi
}
complete -F _lockstep lockstep
)script";

constexpr const char* kZsh = R"script(#compdef lockstep
# Completion of lockstep for zsh, printed by `lockstep completion zsh`.
_lockstep() {
  local -a found keys
  local line word files=none
  for line in "${(@f)$("${(Q)words[1]}" completion candidates "${(@Q)words[2,CURRENT]}" 2>/dev/null)}"; do
    word="${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}"
    case $line in
      :*) files=${line#:} ;;
      *=$'\t'*) keys+=("$word") ;;
      ?*) found+=("$word") ;;
    esac
  done
  if (( $#found )); then _describe lockstep found; fi
  if (( $#keys )); then _describe key keys -S ''; fi
  if [[ $files != none ]]; then compset -P '*='; fi
  case $files in
    files) _files ;;
    yaml) _files -g '*.(yaml|yml)' ;;
  esac
}
if [[ $funcstack[1] == _lockstep ]]; then _lockstep "$@"; else compdef _lockstep lockstep; fi
)script";

constexpr const char* kFish = R"script(# Completion of lockstep for fish, printed by `lockstep completion fish`.
function __lockstep_candidates
    set -l given (commandline -opc)
    set -l current (commandline -ct)
    set -l files none
    for line in ($given[1] completion candidates $given[2..-1] "$current" 2>/dev/null)
        switch $line
            case ':*'
                set files (string sub -s 2 -- $line)
            case '*'
                echo $line
        end
    end
    switch $files
        case files
            __fish_complete_path "$current"
        case yaml
            __fish_complete_suffix "$current" .yaml
    end
end
complete -c lockstep -f -a '(__lockstep_candidates)'
)script";

struct Candidates {
  std::vector<std::pair<std::string, std::string>> words;  // each with its meaning
  std::string files = "none";                              // also files: "files", "yaml"
};

bool has(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

void add(Candidates& to, const std::string& current, const std::string& word, const std::string& meaning) {
  if (word.starts_with(current)) to.words.emplace_back(word, meaning.substr(0, meaning.find('\n')));
}

// key=value, where the value is typed.
void add_values(Candidates& to, const App& app, const std::string& current) {
  const std::string name = current.substr(0, current.find('='));
  std::set<std::string> seen;  // a key may belong to several models
  for (const ConfigKey& k : all_keys(app)) {
    if (k.key != name) continue;
    for (const std::string& choice : k.choices)
      if (seen.insert(choice).second) add(to, current, str(name, "=", choice), "");
    if (k.type == "true or false")
      for (const char* value : {"false", "true"})
        if (seen.insert(value).second) add(to, current, str(name, "=", value), "");
    if (k.type == "text") to.files = "files";
  }
}

void add_keys(Candidates& to, const App& app, const std::string& current) {
  std::set<std::string> seen;  // a key may belong to several models
  for (const ConfigKey& k : all_keys(app))
    if (!has(k.key, "[") && seen.insert(k.key).second) add(to, current, k.key + "=", k.doc);
}

void add_commands(Candidates& to, const std::string& current) {
  for (const CommandEntry& e : commands())
    if (e.is_listed()) add(to, current, e.name, e.help[0].second);
  if (current.starts_with("-")) {
    add(to, current, "--help", "list the commands");
    add(to, current, "--version", "print the version");
  }
}

void add_forms(Candidates& to, const std::string& current, const std::vector<Command>& forms) {
  for (const Command& c : forms) add(to, current, c.form(), c.help);
  if (current.starts_with("-")) add(to, current, "--help", "say more");
}

// What the words of a command line have given of a form.
struct Given {
  const Option* open = nullptr;  // an option whose value comes next
  int positional = 0;
  size_t end;  // where another command begins; else the number of words

  Given(const Command& form, const std::vector<std::string>& words, size_t at) {
    for (; at < words.size() && (open || words[at] != "--"); ++at) {
      const std::string& word = words[at];
      if (open) open = nullptr;
      else if (!word.starts_with("-")) ++positional;
      else
        for (const Option& o : form.options)
          for (const std::string& name : o.words())
            if (word == name && !o.value.empty()) open = &o;
    }
    end = at;
  }
};

// What may follow in one form of a command.
void add_arguments(Candidates& to, const App& app, const std::string& current, const Command& form,
                   const Given& given) {
  if (given.open) {
    if (given.open->value == "FILE" || given.open->value == "FROM") to.files = "files";
  } else if (current.starts_with("-")) {
    for (const Option& o : form.options)
      for (const std::string& name : o.words()) add(to, current, name, o.help);
    add(to, current, "--help", "say more");
  } else if (given.positional == 0 && !form.words.empty()) {
    for (const std::string& word : form.words) add(to, current, word, "");
  } else if (has(form.usage, " -- ")) {
    add(to, current, "--", "the command that ranks run");
  } else if (given.positional > 0 && has(form.usage, "key.path=value")) {
    if (has(current, "=")) add_values(to, app, current);
    else add_keys(to, app, current);
  } else if (given.positional < form.at_most) {
    to.files = has(form.usage, "FILE.yaml") ? "yaml" : "files";
  }
}

// What may stand at the place of the last word, after the others.
Candidates candidates(const App& app, std::vector<std::string> given) {
  Candidates out;
  const std::string current = given.empty() ? "" : given.back();
  if (!given.empty()) given.pop_back();
  if (given.empty()) {
    add_commands(out, current);
    return out;
  }
  const auto entry = std::find_if(commands().begin(), commands().end(),
                                  [&](const CommandEntry& e) { return e.is_listed() && e.name == given[0]; });
  if (entry == commands().end()) return out;
  const std::vector<Command> forms = entry->forms();
  const bool several = forms.size() > 1;
  if (several && given.size() == 1) {
    add_forms(out, current, forms);
    return out;
  }
  const auto form =
      several ? std::find_if(forms.begin(), forms.end(), [&](auto& c) { return c.form() == given[1]; }) : forms.begin();
  if (form == forms.end()) return out;
  const Given before(*form, given, several ? 2 : 1);
  if (before.end < given.size()) {
    std::vector<std::string> rest(given.begin() + static_cast<std::ptrdiff_t>(before.end) + 1, given.end());
    rest.push_back(current);
    return candidates(app, std::move(rest));
  }
  add_arguments(out, app, current, *form, before);
  return out;
}

}  // namespace

std::vector<Command> completion_forms() {
  return {
      {"completion",
       "completion bash|zsh|fish",
       "Prints a script that makes the shell complete commands, options, YAML files, and keys of the configuration\n"
       "with their choices. For this shell: source <(lockstep completion bash). The script runs\n"
       "`lockstep completion candidates WORD...` for what may stand at the place of the last WORD.",
       {},
       1,
       1,
       {"bash", "zsh", "fish"}}};
}

int completion_command(const App& app, const std::vector<std::string>& given) {
  if (!given.empty() && given[0] == "candidates") {  // words that follow are data, even such as --help
    const Candidates found = candidates(app, {given.begin() + 1, given.end()});
    std::string text;
    for (const auto& [word, meaning] : found.words) text += str(word, "\t", meaning, "\n");
    print_out(str(text, ":", found.files, "\n"));
    return 0;
  }
  const Arguments a = parse_arguments(completion_forms(), given);
  if (a.help) return 0;
  const std::string& shell = a.positional[0];
  print_out(shell == "bash" ? kBash : shell == "zsh" ? kZsh : kFish);
  return 0;
}

}  // namespace lockstep
