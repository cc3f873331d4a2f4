#!/usr/bin/env bash
# scripts/fuzz: its list is that of the kept seeds, wrong arguments are refused, and the seeds stay small; so do all golden files together.
# Usage: fuzz_test.sh SOURCE_DIR
set -euo pipefail
cd "$1"
fail() { echo "FAILED: $*" >&2 && exit 1; }
refused() { # arguments that must end with exit code 64 and this text
  local text=$1 code=0 said
  shift
  said=$(scripts/fuzz "$@" 2>&1) || code=$?
  [ "$code" -eq 64 ] && [[ $said == *"$text"* ]] || fail "scripts/fuzz $*: exit code $code, $said"
}

[ "$(scripts/fuzz --list | sort)" = "$(ls tests/fuzz/seeds)" ] || fail "targets and folders of seeds differ"
refused "usage:"
refused "usage:" config
refused "there is no target 'nothing'" nothing 1
refused "no number of minutes" config 0
bytes=$(find tests/fuzz/seeds -type f -printf '%s\n' | awk '{sum += $1} END {print sum}')
[ "$bytes" -le 200000 ] || fail "the seeds have $bytes bytes, more than 200,000"
golden=$(find tests -type f ! -path 'tests/fuzz/seeds/*' ! -name '*.h' ! -name '*.cpp' ! -name '*.sh' ! -name '*.py' ! -name '*.txt' \
  ! -name '*.cmake' ! -name '*.md' ! -name '*.yaml' ! -name '*.supp' -printf '%s\n' | awk '{sum += $1} END {print sum}')
[ "$golden" -ge 1000 ] && [ "$golden" -le 3200000 ] || fail "the golden files under tests have $golden bytes, more than 3,200,000 or none"
echo "scripts/fuzz: list, arguments and seeds are right"
