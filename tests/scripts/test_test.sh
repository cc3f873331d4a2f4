#!/usr/bin/env bash
# shellcheck disable=SC2016,SC2317  # stand-ins are written unexpanded; functions are called by name
# scripts/test: ctest's summary is the last thing that it prints, after what was skipped and why; a failure of any stage is its exit code and
# stops no other stage. cmake, ctest and the other scripts are stand-ins. Usage: test_test.sh REPOSITORY
set -euo pipefail
repository=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/repo/scripts" "$work/bin"
cp "$repository"/scripts/{test,common.sh} "$work/repo/scripts/"
# rm first: a link would be written through, into the machine's own program.
stand_in() { rm -f "$1" && printf '#!/bin/bash\n%s\n' "$2" >"$1" && chmod +x "$1"; }
for tool in bash awk grep sed cat sort head tail dirname mkdir nproc env id cut rm mktemp find ln tac paste; do ln -s "$(command -v $tool)" "$work/bin/$tool"; done
for script in install_packages sanitize build_cost fuzz; do
  stand_in "$work/repo/scripts/$script" "if [ \"\$1\" = --list ]; then echo idx; exit; fi; echo $script \"\$@\" >>calls; [[ \" \$BROKEN \" != *\" $script \"* ]]"
done
stand_in "$work/bin/git" 'echo 000000a0000000000000000000000000000000000'
stand_in "$work/bin/cmake" 'echo cmake "$@" >>calls
for word in "$@"; do case $word in -DLOCKSTEP_BUILD_COST=?*) mkdir -p "$(dirname "${word#*=}")"; echo line >"${word#*=}" ;; esac; done'
stand_in "$work/bin/zsh" true
# Tests, of which one calls zsh, one makes machines, and one names a folder of zsh.
mkdir "$work/tests"
echo 'zsh -c true' >"$work/tests/shell_test.sh"
echo 'nodes_up' >"$work/tests/net_test.sh"
echo 'ls share/zsh/completions && echo zipped' >"$work/tests/other_test.sh"
stand_in "$work/bin/ctest" 'if [[ " $* " == *" -N "* ]]; then
  for name in shell net other; do printf "\n7: Test command: %s \"x y\"\n7: Working Directory: /\nLabels: run\n  Test #7: %s\n" "'"$work"'/tests/${name}_test.sh" "a_$name"; done
  exit
fi
echo "ctest $* ${LOCKSTEP_SEED:-}" >>calls
if ! command -v zsh >/dev/null; then echo "ctest without zsh" >>calls; fi
mkdir -p build/$2/Testing/Temporary
printf "%s\n" "1/2 Testing: a_test" "a_test.cpp:7: Skipped" "no terminal here" "[  SKIPPED ] A.B (0 ms)" "2/2 Testing: disk" "skipped: no disk" >build/$2/Testing/Temporary/LastTest.log
echo "1/2 Test #1: a_test ... Passed"; echo; echo "100% tests passed, 0 tests failed out of 2"; echo; echo "Total Test time (real) = 1 sec"
[[ " $BROKEN " != *" ctest "* ]]'
failed=0
run() { # VARIABLE=VALUE... -- arguments
  local variables=()
  while [ "$1" != -- ]; do variables+=("$1") && shift; done
  shift
  rm -f "$work/repo/calls"
  code=0
  (cd / && env -u CI PATH="$work/bin" BROKEN= "${variables[@]}" "$work/repo/scripts/test" "$@") >"$work/said" 2>&1 || code=$?
}
says() { grep -qE -- "$1" "$work/said"; }
called() { grep -qE -- "$1" "$work/repo/calls"; }
not() { ! "$@"; }
expect() { # what condition-command...
  local what=$1
  shift
  if ! "$@"; then echo "FAILED: $what; exit $code, it said:"; cat "$work/said" "$work/repo/calls"; failed=1; fi
}

run -- -R docs
expect "plain: exit 0" test "$code" -eq 0
expect "plain: the tests' packages alone" called '^install_packages test$'
expect "plain: ctest gets the arguments" called '^ctest --preset cpu-release --parallel [0-9]+ --no-tests=error -R docs $'
expect "plain: the summary is last" test "$(tail -n 1 "$work/said")" = "Total Test time (real) = 1 sec"
expect "plain: a skipped GoogleTest case and its reason" says '^  a_test: no terminal here$'
expect "plain: a skipped script and its reason" says '^  disk: no disk$'
expect "plain: no cost, no slice, one run of ctest" not called 'build_cost|slice|sanitize|fuzz|without zsh'

run BROKEN=ctest --
expect "a failed test: exit 1" test "$code" -eq 1

run CI=true --
expect "CI: exit 0" test "$code" -eq 0
expect "CI: the cost" called '^build_cost report .*/cost\.log$'
expect "CI: a slice, by the commit's hash" called '^ctest --preset [a-z]+-release -C slice -R \^slice_[a-z_]+\$ --no-tests=error 10$'
expect "CI: how to repeat it" says 'LOCKSTEP_SEED=10 ctest --test-dir build/[a-z]+-release -C slice -R slice_[a-z_]+'
expect "CI: tests that know of optional programs once more without these" called '^ctest without zsh$'
expect "CI: these tests alone" called '^ctest --preset [a-z]+-release --parallel [0-9]+ --no-tests=error -R \^\(a_net\|a_shell\)\$ $'
expect "CI: what they skipped" says '^  skipped: disk: no disk$'
run CI=true BROKEN=build_cost --
expect "CI, too costly: exit 1" test "$code" -eq 1
expect "CI, too costly: says so at the end" says '^  FAILED: The build.s cost, in '
expect "CI, too costly: tests run all the same" says '^100% tests passed'

run BROKEN=sanitize -- --nightly
expect "nightly: exit 1 where a sanitizer finds something" test "$code" -eq 1
expect "nightly: clang is installed" called '^install_packages nightly$'
expect "nightly: each fuzz target" called '^fuzz idx 5$'
expect "nightly: both sanitizers" called '^sanitize thread$'
expect "nightly: ctest's longer tests" called '^ctest .* -C nightly $'
expect "nightly: what passed" says '^  passed: Fuzzing idx, in [0-9]+ s$'
expect "nightly: what failed" says '^  FAILED: Tests with the address sanitizer, in [0-9]+ s$'
exit "$failed"
