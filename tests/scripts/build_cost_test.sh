#!/usr/bin/env bash
# scripts/build_cost: its launcher passes output and exit code on and adds one line to the log; its report names the files of a build that
# is too costly and passes one that is not. Usage: build_cost_test.sh REPOSITORY
set -euo pipefail
cost=$1/scripts/build_cost
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
expect() { # what condition-command...
  local what=$1
  shift
  if ! "$@"; then echo "FAILED: $what; it said:"; cat "$work/said"; failed=1; fi
}
says() { grep -qE -- "$1" "$work/said"; }

# A compiler that prints, complains and fails as told, after some work.
cat >"$work/compiler" <<'SCRIPT'
#!/bin/bash
for ((i = 0; i < 30000; ++i)); do :; done
echo "to standard output" && echo "a warning" >&2
exit "${FAKE_EXIT:-0}"
SCRIPT
chmod +x "$work/compiler"
code=0
FAKE_EXIT=3 "$cost" run "$work/log" "$work/compiler" -O2 -o core/a.o -c core/a.cpp >"$work/out" 2>"$work/said" || code=$?
expect "the compiler's exit code" test "$code" -eq 3
expect "its standard output" test "$(cat "$work/out")" = "to standard output"
expect "its standard error" test "$(cat "$work/said")" = "a warning"
expect "its line of the log" grep -qE '^[0-9]+\.[0-9]+ [0-9]+\.[0-9]+ core/a.o core/a.cpp$' "$work/log"
for i in {1..40}; do "$cost" run "$work/many" "$work/compiler" -o "core/$i.o" -c "core/$i.cpp" >/dev/null 2>&1 & done
wait
expect "40 at once: 40 whole lines" test "$(grep -cE '^[0-9.]+ [0-9.]+ core/[0-9]+\.o core/[0-9]+\.cpp$' "$work/many")" -eq 40

report() { code=0 && CXX=$work/compiler "$cost" report "$work/log" >"$work/said" 2>&1 || code=$?; }
log() { # the launcher's lines: seconds, output and source of some files
  mkdir -p "$work/Unity"
  printf '#include "%s"\n' "$1/core/of.cpp" "$1/core/unity.cpp" >"$work/Unity/unity_0_cxx.cxx"
  for i in {1..12}; do echo "$2 0.100 core/CMakeFiles/lockstep_core.dir/$i.cpp.o $1/core/$i.cpp"; done
  echo "$2 0.200 core/CMakeFiles/lockstep_core.dir/Unity/unity_0_cxx.cxx.o $work/Unity/unity_0_cxx.cxx"
  echo "0.5 0.1 tests/CMakeFiles/a_test.dir/a_test.cpp.o $1/tests/a_test.cpp"
  echo "0.1 0.1 tests/a_test linked"
}
log "$1" 0.001 >"$work/log"
report
expect "below its bounds: exit 0" test "$code" -eq 0
expect "the sums, apart" says 'the program 1\.4, .* 0\.0, .* 0\.8$'
expect "how many were compiled" says '14 of 14 files were compiled'
printf '%s\n' direct_cache_hit preprocessed_cache_hit local_storage_hit >"$work/log.ccache"
report
expect "what came from ccache does not count as compiled" says '12 of 14 files were compiled'
log "$1" 100000 >"$work/log"
report
expect "above its bounds: exit 1" test "$code" -eq 1
expect "which bound, and where it is" says 'program_bound=[0-9]+ in scripts/build_cost'
expect "the costliest, by its sources" says '^100000\.2 core/of\.cpp core/unity\.cpp \(lockstep_core\)$'
expect "others below it" says '^100000\.1 core/[0-9]+\.cpp \(lockstep_core\)$'
expect "ten of them for each sum" test "$(grep -cE '^ *[0-9]+\.[0-9] ' "$work/said")" -eq 20
echo 'exit 1' >"$work/compiler"
report
expect "a compiler that fails: exit 1" test "$code" -eq 1
expect "a compiler that fails: says so" says 'does not compile scripts/build_cost.cpp'
rm "$work/log"
report
expect "no log: exit 66" test "$code" -eq 66
exit "$failed"
