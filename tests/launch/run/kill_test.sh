#!/usr/bin/env bash
# kill -9 at random moments of saving: nothing torn is ever taken, nothing saved is lost, and the run ends with the bits of the uninterrupted
# one; the same of its mirror. Usage: kill_test.sh KILLS KILL_SAVES LOCKSTEP [MPIRUN]; LOCKSTEP_KILLS overrides KILLS.
# shellcheck source=tests/launch/run/common.sh
. "$(dirname "$0")/common.sh" "${@:3}"
kills=${LOCKSTEP_KILLS:-$1} kill_saves=$2
make_inputs
keys=(train.steps=120 model.dropout=0.1 checkpoint.every=1)
mirror=(checkpoint.mirror=mirror checkpoint.mirror_every=3)
succeeds "uninterrupted" lockstep train text.yaml "${keys[@]}" run.dir=whole
mpirun_or_none=()
if with_mpi; then mpirun_or_none=("$mpirun_program"); fi
"$kill_saves" "$kills" "$(digest whole)" shot "${mpirun_or_none[@]}" -- "$binary" train text.yaml "${keys[@]}" "${mirror[@]}" run.dir=shot --resume || failed=1
succeeds "the mirror is whole" lockstep checkpoint verify mirror
same "the mirror: the digest" "$(digest whole)" "$(digest mirror)"
finish
