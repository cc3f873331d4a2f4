# What the scripts share: the repository's root, plain progress lines, the number of jobs, and MPI's environment.
# Sourced by each of them after `set -euo pipefail`.
# shellcheck shell=bash

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root" || exit 1

# Exit codes of the scripts are those of the binary (docs/command-line.md).
# shellcheck disable=SC2034  # used by those who source this
readonly exit_usage=64 exit_missing=66

say() { printf '==> %s\n' "$*"; }
warn() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }
fail() { # code message...
  local code=$1
  shift
  warn "$@"
  exit "$code"
}

# One job a core, but no more than memory allows: the largest compilations take about 1 GiB.
jobs() {
  local cores memory
  cores=$(nproc 2>/dev/null || echo 2)
  memory=$(awk '/^MemAvailable:/ {print int($2 / 1048576)}' /proc/meminfo 2>/dev/null || echo "$cores")
  if [ "${memory:-0}" -lt 1 ]; then memory=1; fi
  if [ "$cores" -gt "$memory" ]; then cores=$memory; fi
  echo "$cores"
}

# quietly NAME command...: output goes to a log; when the command fails, the log's end is shown and its path named.
quietly() {
  local log=$root/build/log/$1.log code=0
  shift
  mkdir -p "$root/build/log"
  "$@" >"$log" 2>&1 || code=$?
  if [ "$code" -ne 0 ]; then
    tail -n 40 "$log" >&2
    warn "this failed (exit $code): $*"
    warn "its whole output is in ${log#"$root"/}"
  fi
  return "$code"
}

# CPU seconds of all commands that this script has run and waited for; the kernel counts in hundredths.
cpu_seconds() { awk '{print int(($16 + $17) / 100)}' "/proc/$$/stat"; }

# Builds show Ninja's one live line on a terminal, and go to a log elsewhere.
build() { # log's name, command...
  if [ -t 1 ]; then "${@:2}"; else quietly "$@"; fi
}

# program NAME: the path of one of ours that has the CUDA library beside it: in the folder that scripts/portable made, where this is one; in
# the build tree that LOCKSTEP_BUILD names; or in build/cuda-release.
program() {
  local tree
  for tree in ${LOCKSTEP_BUILD:+"$LOCKSTEP_BUILD"} "$root" "$root/build/cuda-release"; do
    if [ -x "$tree/bin/$1" ]; then echo "$tree/bin/$1" && return; fi
  done
  fail "$exit_missing" "there is no program $1: build it with the preset cuda-release, or use a folder that scripts/portable made"
}

# More ranks than cores must neither be refused nor busy-wait, and ranks must not share one core by binding.
mpi_environment() {
  export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_hwloc_base_binding_policy=none
  if [ "$(id -u)" -eq 0 ]; then  # Open MPI refuses root without being told twice
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  fi
}
