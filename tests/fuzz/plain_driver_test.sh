#!/usr/bin/env bash
# The plain driver: every kind of crash is found, its input kept, and the inputs after it still run. Usage: plain_driver_test.sh PROGRAM
set -euo pipefail
program=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*" >&2 && cat "$work/out" >&2 && exit 1; }

mkdir "$work/good" "$work/bad" "$work/kept"
printf 'fine' >"$work/good/fine"
printf 'refused' >"$work/good/refused"
for kind in signal exception exit memory code; do printf '%s' "$kind" >"$work/bad/$kind"; done
cp "$work/good/fine" "$work/bad/zzz"  # the last in order

"$program" "$work/good" -runs=100 "-artifact_prefix=$work/kept/" >"$work/out" 2>&1 || fail "good inputs do not end with 0"
grep -q '^102 inputs, 2 of them seeds' "$work/out" || fail "seeds and mutations are not counted"
[ -z "$(ls "$work/kept")" ] || fail "something was kept of a good run"

code=0
"$program" "$work/bad" -ignore_crashes=1 "-artifact_prefix=$work/kept/" >"$work/out" 2>&1 || code=$?
[ "$code" -eq 1 ] || fail "exit code $code for crashes"
[ "$(find "$work/kept" -name 'crash-*' | wc -l)" -eq 5 ] || fail "not every crash was kept"
for kind in signal exception exit memory code; do
  grep -qx "$kind" "$work"/kept/crash-* || fail "the input '$kind' was not kept"
done
grep -q '1 times accepted' "$work/out" || fail "the input after the crashes did not run"

rm "$work"/kept/*
code=0
"$program" "$work/bad" "-artifact_prefix=$work/kept/" >"$work/out" 2>&1 || code=$?
[ "$code" -eq 1 ] && [ "$(find "$work/kept" -type f | wc -l)" -eq 1 ] || fail "without -ignore_crashes the first crash is not the end"
"$program" "$work/good/missing" >"$work/out" 2>&1 && fail "a missing file is no error"
echo "plain driver: all found"
