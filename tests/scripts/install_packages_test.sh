#!/usr/bin/env bash
# shellcheck disable=SC2016,SC2317  # stand-ins are written unexpanded; functions are called by name
# Where nothing can be installed, install_packages names what is missing and how to get it; where all is there it is silent.
# Usage: install_packages_test.sh REPOSITORY. Runs the real script in a PATH of our own; apt-get there is a stand-in.
set -euo pipefail
repository=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/repo/scripts" "$work/bin"
cp "$repository"/scripts/{install_packages,common.sh} "$work/repo/scripts/"
failed=0
expect() { # what condition-command...
  local what=$1
  shift
  if ! "$@"; then echo "FAILED: $what; it said:"; cat "$work/said"; failed=1; fi
}

# Quick tests need no clang, browser, scheduler or Python: only the longer tiers do.
quick=$(cd / && "$work/repo/scripts/install_packages" test --list)
echo "$quick" >"$work/said"
expect "quick tests install little" bash -c "! grep -vx clang-format-14 '$work/said' | grep -qiE 'clang|python|chrom|firefox|slurm'"
expect "the nightly tier installs clang and Slurm beside them" \
  test "$(cd / && "$work/repo/scripts/install_packages" nightly --list | grep -vxF "$quick" | tr -d '0-9' | xargs)" = "clang- libclang-rt--dev slurmctld slurmd slurm-client munge doxygen faketime"
built=$(cd / && "$work/repo/scripts/install_packages" build --list)
expect "packaging needs dpkg-dev and file beside what builds" \
  test "$(cd / && "$work/repo/scripts/install_packages" package --list | grep -vxF "$built" | xargs)" = "dpkg-dev file"

# Only what the script itself needs: no dpkg, apt-get, sudo, compiler or cmake.
for tool in bash sh awk grep sed cat sort head tail dirname mkdir nproc env sleep; do ln -s "$(command -v $tool)" "$work/bin/$tool"; done
# rm first: a link would be written through, into the machine's own program.
stand_in() { rm -f "$work/bin/$1" && printf '#!/bin/sh\n%s\n' "$2" >"$work/bin/$1" && chmod +x "$work/bin/$1"; }
run() { code=0; PATH=$work/bin "$work/repo/scripts/install_packages" "$@" >"$work/said" 2>&1 </dev/null || code=$?; }
says() { grep -qF -- "$1" "$work/said"; }

stand_in id 'echo 0'
run build
expect "no apt: exit 66" test "$code" -eq 66
expect "no apt: the reason" says "there is no apt-get here"
expect "no apt: each package" says "  libhdf5-dev"
expect "no apt: the command, without sudo for root" says "  apt-get install --no-install-recommends g++ cmake ninja-build"
expect "tests' packages are not asked for" bash -c "! grep -q libgtest-dev '$work/said'"

stand_in id 'echo 1000'
stand_in apt-get 'exit 0'
run test
expect "no sudo: exit 66" test "$code" -eq 66
expect "no sudo: the reason" says "you are not root and there is no sudo"
expect "no sudo: the command" says "  sudo apt-get install --no-install-recommends g++"
expect "no sudo: tests' packages" says "  clang-format-14"

stand_in sudo 'exit 1'
run build
expect "sudo with a password, nobody to type it: exit 66" test "$code" -eq 66
expect "sudo with a password: the reason" says "sudo wants a password"

# apt-get fails: tried twice, its own words shown.
stand_in id 'echo 0'
stand_in apt-get 'echo "E: no route to mirror"; exit 100'
stand_in sleep 'exit 0'
run build
expect "apt fails: exit 66" test "$code" -eq 66
expect "apt fails: its words" says "E: no route to mirror"
expect "apt fails: tried twice" test "$(grep -c 'E: no route' "$work/said")" -eq 2

# All there by dpkg: nothing is run and nothing said.
stand_in apt-get 'echo "apt-get was called"; exit 1'
stand_in dpkg-query 'shift 2; for p in "$@"; do echo "ii  $p"; done'
stand_in cmake 'echo "cmake version 3.25.1"'
run test
expect "all there: exit 0" test "$code" -eq 0
expect "all there: silent" test ! -s "$work/said"

stand_in cmake 'echo "cmake version 3.22.0"'
run build
expect "an old cmake: exit 66" test "$code" -eq 66
expect "an old cmake: says so" says "cmake 3.22.0"

# One package half removed: only that one is installed.
stand_in cmake 'echo "cmake version 3.28.3"'
stand_in dpkg-query 'shift 2; for p in "$@"; do if [ "$p" = ccache ]; then echo "rc  $p"; else echo "ii  $p"; fi; done'
stand_in apt-get "echo \"\$@\" >>'$work/apt'"
run build
expect "one missing: exit 0" test "$code" -eq 0
expect "one missing: installs it" grep -q 'install --no-install-recommends ccache$' "$work/apt"

# Only a useful package missing, nothing to install it with: goes on, and says what it does without.
rm "$work/bin/apt-get"
run build
expect "a useful one missing: exit 0" test "$code" -eq 0
expect "a useful one missing: says so" says "goes on without: ccache"

# cudnn-frontend's headers: by pip, checked, once; only where nvcc is, and clearly where they cannot be had.
for tool in find rm cp cut mktemp; do ln -s "$(command -v $tool)" "$work/bin/$tool"; done
stand_in nvcc 'exit 0'
stand_in pip3 'exit 0'
stand_in dpkg-query 'shift 2; for p in "$@"; do echo "ii  $p"; done'
stand_in python3 'echo "E: no route to index"; exit 1'
header=$work/repo/build/third_party/cudnn_frontend/include/cudnn_frontend.h
run build cuda --check
expect "headers, --check: exit 66" test "$code" -eq 66
expect "headers, --check: how to get them" says "scripts/install_packages cuda fetches them"
run build
expect "headers are not asked for: exit 0" test "$code" -eq 0
run build cuda
expect "headers, no network: exit 66" test "$code" -eq 66
expect "headers, no network: pip's words" says "E: no route to index"
expect "headers, no network: by hand" says "set CUDNN_FRONTEND_DIR to the folder that holds its include/"
# The first call downloads a wheel, the second unpacks it.
stand_in python3 'for last; do :; done
case $2 in
  pip) while [ "$1" != --dest ]; do shift; done; echo wheel >"$2/a.whl" ;;
  zipfile) mkdir -p "$last/include"; echo header >"$last/include/cudnn_frontend.h" ;;
esac'
# It reads what it is given, as the real one does: whoever writes to a reader that is gone fails.
stand_in sha256sum 'cat >/dev/null; if [ "$1" = --check ]; then exit 1; fi; echo "0123  $1"'
run build cuda
expect "headers, another wheel: exit 66" test "$code" -eq 66
expect "headers, another wheel: its checksum" says "(sha256 0123, expected "
expect "headers, another wheel: nothing is kept" test ! -e "$header"
stand_in sha256sum 'cat >/dev/null'
run build cuda
expect "headers: exit 0" test "$code" -eq 0
expect "headers: there" test -f "$header"
stand_in python3 'exit 1'
run build cuda
expect "headers are there: exit 0" test "$code" -eq 0
expect "headers are there: silent" test ! -s "$work/said"

run --sideways
expect "unknown argument: exit 64" test "$code" -eq 64
exit "$failed"
