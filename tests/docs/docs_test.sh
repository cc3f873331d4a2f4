#!/usr/bin/env bash
# shellcheck disable=SC2016  # backticks are Markdown's
# Checks that what the pages (README.md, CONTRIBUTING.md, docs/*.md, the tutorials and two beside what they describe) name exists: links and their
# headings, files, `file:function`, commands of lockstep with their options, configuration keys. Usage: docs_test.sh LOCKSTEP REPOSITORY
set -uo pipefail
lockstep=$(realpath "$1")
cd "$2" || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
pages=(README.md CONTRIBUTING.md docs/*.md docs/tutorials/*.md data/FORMAT.md tests/bench/RESULTS.md)
rooms='core|comm|sharding|optim|data|launch|configs|tests|scripts|docs'
failed=0 checked=0
problem() { # PAGE message
  echo "$1: $2"
  failed=1
}

# Code blocks, without the ones that hold C++; and every `inline code`, one a line, with its backticks taken off.
blocks() { sed -n '/^```cpp$/,/^```$/d; /^```$/,/^```$/p' "$1" | grep -v '^```$'; }
inline_code() { sed '/^```/,/^```$/d' "$1" | grep -oE '`[^`]+`' | sed 's/^`//; s/`$//' | sort -u; }
all_code() { blocks "$1"; inline_code "$1"; }

# A heading's anchor, as GitHub makes it.
anchors() { sed '/^```/,/^```$/d' "$1" | sed -nE 's/^#+ +//p' | tr '[:upper:]' '[:lower:]' | sed -E 's/[^a-z0-9 _-]//g; s/ /-/g'; }

check_link() { # PAGE TARGET
  local path=${2%%#*} file
  case $2 in http://* | https://* | mailto:*) return ;; esac
  file=$1
  if [ -n "$path" ]; then file=$(dirname "$1")/$path; fi
  if [ ! -e "$file" ]; then
    problem "$1" "the link $2 leads nowhere"
  elif [[ $2 == *#* ]] && ! anchors "$file" | grep -xF -- "${2#*#}" >/dev/null; then  # -q would break the pipe
    problem "$1" "the link $2: $file has no heading '${2#*#}'"
  fi
}

# FILE, FOLDER or FILE:FUNCTION. A qualified function stands in the file with its class's name, or within that class.
check_path() { # PAGE NAME
  local path=${2%%:*} function=${2#*:} name class=""
  path=${path%/}
  if [ "$function" = "$2" ]; then
    if ! compgen -G "$path" >/dev/null; then problem "$1" "$path does not exist"; fi
    return
  fi
  if [ ! -f "$path" ]; then problem "$1" "$2: there is no file $path" && return; fi
  name=${function##*::}
  if [[ $function == *::* ]]; then class=${function%::*}; fi
  if [ -n "$class" ] && grep -qF -- "$class::$name(" "$path"; then return; fi
  if [ -n "$class" ] && ! grep -qE -- "(class|struct) ([A-Za-z]+::)*$class\b" "$path"; then
    problem "$1" "$2: $path has no $class::$name"
  elif ! grep -qE -- "(^|[^A-Za-z0-9_])$name\(" "$path"; then
    problem "$1" "$2: $path has no function $name"
  fi
}

"$lockstep" config keys >"$work/table" || { echo "lockstep config keys failed" && exit 1; }
sed '1d; s/ .*//' "$work/table" | sort -u >"$work/keys"
"$lockstep" --help | sed -nE 's/^  lockstep ([a-z]+).*/\1/p' | sort -u >"$work/commands"
if [ ! -s "$work/keys" ] || [ ! -s "$work/commands" ]; then echo "no keys or no commands were found to compare with" && exit 1; fi
while read -r command; do
  { "$lockstep" "$command" --help && case $command in data) "$lockstep" data import --help && "$lockstep" data show --help &&
    "$lockstep" data verify --help && "$lockstep" data split --help && "$lockstep" data merge --help ;;
    tokenizer) "$lockstep" tokenizer train --help && "$lockstep" tokenizer inspect --help ;; esac; } >"$work/help.$command" 2>&1 ||
    { echo "lockstep $command --help failed" && failed=1; }
done <"$work/commands"

check_key() { # PAGE KEY
  if ! grep -qxF -- "$2" "$work/keys"; then problem "$1" "there is no configuration key $2"; fi
}

check_command() { # PAGE "COMMAND rest of the line"
  local command=${2%% *} option
  if ! grep -qxF -- "$command" "$work/commands"; then problem "$1" "there is no command lockstep $command" && return; fi
  while read -r option; do
    if ! grep -qE -- "(^|[ [])$option( |\]|=|$)" "$work/help.$command"; then problem "$1" "lockstep $command has no option $option"; fi
  done < <(grep -oE -- ' --[a-z-]+' <<<"$2")
}

# The diagrams of who may include whom are those of the table that is checked.
if ! diff <(scripts/check_includes --diagrams) <(sed -n '/^<!-- diagrams: begin -->$/,/^<!-- diagrams: end -->$/p' docs/architecture.md | sed '1d;$d'); then
  problem docs/architecture.md "its diagrams are not those of scripts/check_includes --diagrams"
fi

for page in "${pages[@]}"; do
  while read -r target; do
    checked=$((checked + 1))
    check_link "$page" "$target"
  done < <(sed '/^```/,/^```$/d' "$page" | grep -oE '\]\([^) ]+\)' | sed 's/^](//; s/)$//')

  # The first word of a piece of code that begins with one of our folders; of a wildcard, one match is enough.
  while read -r name; do
    checked=$((checked + 1))
    check_path "$page" "$name"
  done < <(all_code "$page" | grep -oE "(^|[ (,])($rooms)/[A-Za-z0-9_./*-]*(:[A-Za-z0-9_:~]+(\(\))?)?" | sed -E 's/^[ (,]+//; s/[.]$//' |
    grep -vE '/(TARGET|NAME)$' | sort -u)

  while read -r line; do
    checked=$((checked + 1))
    check_command "$page" "$line"
  done < <(all_code "$page" | sed 's/ #.*//' | grep -oE '(^|[ /])lockstep [a-z].*' | sed -E 's/.*lockstep ([a-z])/\1/')

  # section.key, section.key=value, section.key: value, also for lists; and in inline code also top-level keys with a value.
  while read -r key; do
    checked=$((checked + 1))
    check_key "$page" "$key"
  done < <({
    inline_code "$page" | grep -oE '^[a-z_]+(\.[a-z_]+|\[\])+([=:].*)?$' | sed -E 's/[=:].*//'
    inline_code "$page" | sed -nE 's/^([a-z_]+): [a-z0-9]+$/\1/p'
    all_code "$page" | grep -E '(^|[ /])(lockstep|own_model|scripts\/quickstart) ' | grep -oE ' [a-z_]+(\.[a-z_]+)+=' | tr -d ' ='
    all_code "$page" | grep -E '(^|[ /])(lockstep|own_model) ' | grep -oE ' [a-z_]+=' | tr -d ' ='
  } | grep -vE '\.(cpp|cu|h|sh|md|yaml|json|jsonl|txt|h5|py|so|cmake|bpe|model|jinja)$' | grep -vE '^(torch\.|key\.path$)' | sort -u)
done

echo "$checked names in ${#pages[@]} pages"
if [ "$checked" -lt 200 ]; then echo "fewer names than the pages have: the patterns of this test find nothing" && failed=1; fi
exit "$failed"
