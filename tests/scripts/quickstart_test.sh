#!/usr/bin/env bash
# shellcheck disable=SC2016,SC2317  # stand-ins are written unexpanded; functions are called by name
# The law of quickstart: it imports once per text, never touches an earlier run, passes a failure's exit code on, and its
# results come from the run's own files. cmake, mpirun and lockstep are stand-ins. Usage: quickstart_test.sh REPOSITORY
set -euo pipefail
repository=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/repo/scripts" "$work/repo/core" "$work/repo/configs" "$work/bin"
cp "$repository"/scripts/{quickstart,common.sh} "$work/repo/scripts/"
echo 'int main() {}' >"$work/repo/core/a.cpp"
# rm first: a link would be written through, into the machine's own program.
stand_in() { rm -f "$1" && printf '#!/bin/bash\n%s\n' "$2" >"$1" && chmod +x "$1"; }
stand_in "$work/repo/scripts/install_packages" 'exit 0'
for tool in bash awk grep sed cat sort head tail dirname mkdir nproc env id find cut cksum ln ls touch chmod; do
  ln -s "$(command -v $tool)" "$work/bin/$tool"
done
stand_in "$work/bin/git" 'exit 128'
stand_in "$work/bin/cmake" 'mkdir -p build/quickstart/bin; touch build/quickstart/build.ninja
echo "LOCKSTEP_CUDA:STRING=OFF" >build/quickstart/CMakeCache.txt
cat "$STAND_IN_LOCKSTEP" >build/quickstart/bin/lockstep; chmod +x build/quickstart/bin/lockstep'
stand_in "$work/bin/mpirun" 'echo "mpirun $1 $2" >>calls; shift 2; exec "$@"'
stand_in "$work/lockstep" 'echo "$@" >>calls
case $1 in
  data) touch "${@: -1}" ;;
  train) run=$(printf "%s\n" "$@" | sed -n "s/^run.dir=//p"); mkdir -p $run/checkpoints/step-9 $run/checkpoints/step-10 $run/tensorboard
    touch $run/tensorboard/events.out.tfevents.1.host.2.0
    for rate in 1 2 500 400 600; do echo "{\"step\":1,\"loss\":2.5,\"tokens_per_s\":$rate.25}"; done >$run/metrics.jsonl
    if [[ "$*" = *fail=1* ]]; then exit 70; fi ;;
  eval) echo noise; echo "{\"split\": \"validation\", \"loss\": 1.75, \"samples\": 3}" ;;
  generate) printf "namespace {\n}\n" ;;
esac'
failed=0
run() { code=0; (cd / && PATH=$work/bin STAND_IN_LOCKSTEP=$work/lockstep "$work/repo/scripts/quickstart" "$@") >"$work/said" 2>&1 || code=$?; }
says() { grep -qE -- "$1" "$work/said"; }
called() { grep -cE -- "$1" "$work/repo/calls"; }
expect() { # what condition-command...
  local what=$1
  shift
  if ! "$@"; then echo "FAILED: $what; exit $code, it said:"; cat "$work/said" "$work/repo/calls"; failed=1; fi
}

run train.steps=5
expect "first: exit 0" test "$code" -eq 0
expect "first: 2 ranks by mpirun" test "$(called '^mpirun -n 2$')" -eq 1
expect "first: the keys" test "$(called '^train configs/quickstart.yaml data.path=runs/quickstart/source-[0-9]+.h5 run.dir=runs/quickstart/run-1 train.steps=5$')" -eq 1
expect "first: validation loss" says '^validation loss +1\.75$'
expect "first: the middle rate of the later steps" says '^tokens/s +500$'
expect "first: the newest checkpoint" says '^checkpoint +runs/quickstart/run-1/checkpoints/step-10$'
expect "first: TensorBoard" says '^TensorBoard +runs/quickstart/run-1/tensorboard '
expect "first: sample" says '^    namespace \{$'

run
expect "second: a run of its own" test "$(called 'run.dir=runs/quickstart/run-2$')" -eq 1
expect "second: no second import" test "$(called '^data import')" -eq 1

echo 'int other() {}' >>"$work/repo/core/a.cpp"
rm "$work/bin/mpirun"
run
expect "changed text: imported anew" test "$(called '^data import text core/a.cpp runs/quickstart/source-')" -eq 2
expect "changed text: the old file stays" test "$(find "$work/repo/runs/quickstart" -name 'source-*.h5' | wc -l)" -eq 2
expect "no mpirun: threads" test "$(called 'run.dir=runs/quickstart/run-3 --ranks 2$')" -eq 1

run fail=1
expect "a failure: its exit code" test "$code" -eq 70
expect "a failure: how to go on" says '^  build/quickstart/bin/lockstep train .*run.dir=runs/quickstart/run-4 fail=1 --ranks 2 --resume$'

run --steps
expect "an option that is none: exit 64" test "$code" -eq 64
exit "$failed"
