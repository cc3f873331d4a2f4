#!/usr/bin/env bash
# What shells and readers of manuals get from the tables of commands: completion in bash (zsh and fish where they are), manual pages.
# Usage: shell_test.sh LOCKSTEP
page_of_commands=$(cd "$(dirname "$0")/../../.." && pwd)/docs/command-line.md
# shellcheck source=tests/launch/run/common.sh
. "$(dirname "$0")/common.sh"

make_inputs
mkdir folder
touch folder/inner.yml notes.txt

# completes WHAT "WANTED..." WORD...: the replies of bash's completion at the last of these words, which follow `lockstep` and are split as
# readline splits them (at '=' and ':').
succeeds "completion bash" lockstep completion bash
cp out lockstep.bash
# shellcheck source=/dev/null
. ./lockstep.bash
completes() {
  COMP_WORDS=(lockstep "${@:3}")
  COMP_CWORD=$(($# - 2))
  COMPREPLY=()
  _lockstep || true # compopt fails where no shell completes
  same "$1" "$2" "$(printf '%s\n' "${COMPREPLY[@]}" | sort | paste -sd ' ')"
}
replies() { # how many begin with WORD in the last completion
  printf '%s\n' "${COMPREPLY[@]}" | grep -cE "^$1" || true
}
completes "a command" "train" tra
completes "commands" "cancel chat check checkpoint completion config" c
completes "a form" "keys names schema show" config ""
completes "a form's beginning" "inspect" data in
completes "a format" "csv idx images json llmc megatron npy parquet text webdataset" data import ""
completes "a shell" "bash fish zsh" completion ""
completes "a command of man" "plan predict profile prove" man p
completes "options" "--ranks --resume" train text.yaml --r
completes "options of a form" "--samples --separator --skip-bad --special-tokens --strip" data import --s
completes "YAML files and folders" "folder images.yaml text.yaml tmp" train ""
completes "a YAML file in a folder" "folder/inner.yml" plan folder/
completes "other files" "notes.txt" data inspect no
completes "a short option of launch" "-n" launch -n
completes "what follows launch" "--" launch -n 2 ""
completes "a command to launch" "train" launch -n 2 -- tr
completes "a key of a command to launch" "batch.global=" launch -n 2 -- train text.yaml batch.g
completes "a file of hosts" "notes.txt" launch --hostfile no
completes "a key" "batch.global=" train text.yaml batch.g
completes "a key after an override" "batch.micro=" train text.yaml batch.global = 8 batch.m
completes "a key of a run's configuration" "data.context=" eval run data.con
completes "a choice" "gradients" train text.yaml sharding.level = gr
completes "choices" "false true" train text.yaml graph =
completes "a file as a value" "text.h5" train text.yaml data.path = text.h
completes "a file in another folder as a value" "folder/inner.yml" train text.yaml data.path = folder/i
COMP_WORDS=(lockstep age) COMP_CWORD=1
_lockstep || true
same "no command that is not listed" 0 "${#COMPREPLY[@]}"
COMP_WORDS=(lockstep train text.yaml --ranks "") COMP_CWORD=4
_lockstep || true
same "no candidate for a number" 0 "${#COMPREPLY[@]}"
COMP_WORDS=(lockstep train text.yaml "") COMP_CWORD=3
_lockstep || true
wanted=$(lockstep config keys | sed '1d; s/ .*//' | grep -vF '[' | sort -u | wc -l)
same "every key" "$wanted" "${#COMPREPLY[@]}"

# All commands of --help complete.
while read -r command; do
  COMP_WORDS=(lockstep "$command") COMP_CWORD=1
  _lockstep || true
  if [ "$(replies "$command\$")" -ne 1 ]; then problem "$command does not complete"; fi
done < <(lockstep --help | sed -nE 's/^  lockstep ([a-z]+).*/\1/p' | sort -u)

for shell in zsh fish; do
  succeeds "completion $shell" lockstep completion "$shell"
  cp out "lockstep.$shell"
  if ! command -v "$shell" >/dev/null; then
    echo "skipped: the completion of $shell: there is no $shell here"
    continue
  fi
  succeeds "$shell reads its script" "$shell" -n "lockstep.$shell"
done
if command -v fish >/dev/null; then
  fish_completes() { # WHAT WANTED LINE
    same "fish: $1" "$2" "$(HOME=$work PATH=$(dirname "$binary"):$PATH fish -c "source lockstep.fish; complete -C '$3'" | cut -f 1 | sort | xargs)"
  }
  fish_completes "a command" "train" "lockstep tra"
  fish_completes "a key" "batch.global=" "lockstep train text.yaml batch.g"
  fish_completes "a choice" "sharding.level=gradients" "lockstep train text.yaml sharding.level=gr"
  fish_completes "a YAML file" "text.yaml" "lockstep train text.y"
fi
run lockstep completion zhs
expect "a shell that is not known" grep -qF "there is no 'zhs'; did you mean zsh?" err
same "a shell that is not known: exit code" 64 "$code"

# Manual pages.
check_roff() { # NAME: of the file ./page
  if ! command -v groff >/dev/null; then
    echo "skipped: whether groff warns of the page of $1: there is no groff here"
    return
  fi
  succeeds "groff reads the page of $1" groff -man -Tutf8 -wall -z page
  expect "groff does not warn of the page of $1" test ! -s err
}
succeeds "man" lockstep man
cp out all
cp out page
check_roff lockstep
for word in 'batch.global' 'EXIT STATUS' 'ENVIRONMENT' 'FILES'; do
  if ! grep -qF "$word" all; then problem "the manual page says nothing of $word"; fi
done
while read -r command; do
  if ! grep -qE "^\.SS $command" all; then problem "the manual page has no $command"; fi
  succeeds "man $command" lockstep man "$command"
  cp out page
  check_roff "$command"
  while read -r option; do
    if ! grep -qF -- "\\fB${option//-/\\-}\\fR" page; then problem "the manual page of $command has no $option"; fi
  done < <(lockstep "$command" --help | sed -nE 's/^  (--[a-z-]+).*/\1/p')
done < <(lockstep --help | sed -nE 's/^  lockstep ([a-z]+).*/\1/p' | sort -u)
run lockstep man trian
expect "man of no command" grep -qF "there is no 'trian'; did you mean train?" err
same "man of no command: exit code" 64 "$code"

# Its exit codes are those of docs/command-line.md.
same "exit codes" "$(sed -n '/^## Exit codes/,$p' "$page_of_commands" | sed -nE 's/^\| \[?([0-9]+)[] ].*/\1/p' | xargs)" \
  "$(sed -n '/^\.SH EXIT STATUS/,/^\.SH ENV/p' all | sed -nE 's/^\\fB([0-9]+)\\fR$/\1/p' | xargs)"
same "environment variables" "$(sed -nE 's/^\\fB([A-Z_]{6,})\\fR$/\1/p' all | sort | xargs)" \
  "$(sed -n '/^## Environment/,/^## Exit/p' "$page_of_commands" | grep '^|' | grep -oE '[A-Z]+(_[A-Z]+)+|TMPDIR' | grep -v LOCKSTEP_INSTALL | sort -u | xargs)"
finish
