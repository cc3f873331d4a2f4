#!/usr/bin/env bash
# A file that is too long and a folder with too many sources are found, and those below the limit are not. Usage: check_lengths_test.sh REPOSITORY
set -euo pipefail
check=$1/scripts/check_lengths
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
mkdir -p "$tree"/{core/base,tests/core}
failed=0
says() { # CODE TEXT
  local said code=0
  said=$("$check" "$tree" 2>&1) || code=$?
  if [ "$code" -eq "$1" ] && grep -qxF -- "$2" <<<"$said"; then return; fi
  printf 'FAILED: exit %s, said:\n%s\n  expected: exit %s, %s\n' "$code" "$said" "$1" "$2"
  failed=1
}
seq 499 >"$tree/core/base/a.cpp"
seq 799 >"$tree/tests/core/a_test.cpp"
says 0 'lengths: kept by 2 files'
seq 500 >"$tree/core/base/b.cu"
says 1 'core/base/b.cu: 500 lines, of which it may have 499'
rm "$tree/core/base/b.cu"
seq 800 >"$tree/tests/core/b_test.h"
says 1 'tests/core/b_test.h: 800 lines, of which it may have 799'
rm "$tree/tests/core/b_test.h"
for i in {1..39}; do echo >"$tree/core/base/source_$i.h"; done
says 0 'lengths: kept by 41 files'
echo >"$tree/core/base/source_40.cu"
says 1 'core/base: 41 sources flat, of which it may have 40'
exit $failed
