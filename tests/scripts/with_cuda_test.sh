#!/usr/bin/env bash
# with_cuda finds a library where only a Python package holds it, changes nothing where the loader finds all, names what is
# nowhere, and hands the program's exit code on. Usage: with_cuda_test.sh REPOSITORY COMPILER
set -euo pipefail
with_cuda=$1/scripts/with_cuda
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset LD_LIBRARY_PATH PYTHONPATH
packages=$work/venv/lib/python3.12/site-packages
mkdir -p "$work"/{bin,lib} "$packages"/nvidia/{pretended,other}/lib
echo 'int pretended() { return 0; }' >"$work/pretended.cpp"
"$2" -shared -fPIC -o "$packages/nvidia/pretended/lib/libpretended.so.13" -Wl,-soname,libpretended.so.13 "$work/pretended.cpp"
echo 'int pretended(); int ours() { return pretended(); }' >"$work/ours.cpp"
"$2" -shared -fPIC -o "$work/lib/liblockstep_ours.so" "$work/ours.cpp" "$packages/nvidia/pretended/lib/libpretended.so.13"
printf '#!/bin/sh\necho "path=$LD_LIBRARY_PATH arguments=$*"\nldd %s/lib/liblockstep_ours.so\nexit 7\n' "$work" >"$work/bin/program"
chmod +x "$work/bin/program"

failed=0
expect() { # what condition-command...
  local what=$1
  shift
  if ! "$@"; then echo "FAILED: $what; exit $code, it said:"; cat "$work/said"; failed=1; fi
}
run() { code=0; env "$@" "$with_cuda" "$work/bin/program" one two >"$work/said" 2>&1 || code=$?; }
says() { grep -qE -- "$1" "$work/said"; }

run VIRTUAL_ENV="$work/venv"
expect "in a package: exit code" test "$code" -eq 7
expect "in a package: found" says "libpretended.so.13 => $packages/nvidia/pretended/lib/"
expect "in a package: its neighbours too" says "path=.*$packages/nvidia/other/lib"
expect "in a package: arguments" says 'arguments=one two$'

run VIRTUAL_ENV=
expect "nowhere: named" says '^with_cuda: not found anywhere: libpretended.so.13$'
expect "nowhere: the program runs" test "$code" -eq 7

run VIRTUAL_ENV="$work/venv" LD_LIBRARY_PATH="$packages/nvidia/pretended/lib"
expect "found by the loader: nothing is said" test "$(grep -c with_cuda "$work/said")" -eq 0
expect "found by the loader: no folder of packages is added" test "$(grep -c "nvidia/other" "$work/said")" -eq 0

rm "$work/lib/liblockstep_ours.so"
run VIRTUAL_ENV="$work/venv"
expect "no CUDA part: runs as it is" says 'arguments=one two$'
code=0
"$with_cuda" >"$work/said" 2>&1 || code=$?
expect "no program: exit 64" test "$code" -eq 64
expect "no program: usage" says '^Usage: scripts/with_cuda PROGRAM'
exit "$failed"
