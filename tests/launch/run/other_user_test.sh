#!/usr/bin/env bash
# Another user of the machine and a job that keeps its state in memory: what that user tries on sockets, processes, memory, temporary files
# and the run directory is refused, and a process of that user that takes the place of the memory holder gets nothing.
# Usage: other_user_test.sh OTHER_USER LOCKSTEP MPIRUN
# shellcheck source=tests/launch/run/common.sh
other_user=$1
. "$(dirname "$0")/common.sh" "${@:2}"
with_mpi || exit 0
if [ "$(id -u)" -ne 0 ]; then
  echo "skipped: another user: only root can become one"
  exit 77
fi
export ASAN_OPTIONS=$no_leak_check
chmod 755 "$work" # another user may enter it
cp "$other_user" other_user
make_inputs
keys=(text.yaml train.steps=40 checkpoint.every=0 recovery.from=memory)
succeeds "undisturbed" lockstep train text.yaml train.steps=40 run.dir=plain
wanted=$(digest plain)
holders() {
  local p
  for p in $(pgrep -f "^[^ ]*lockstep agent --hold"); do
    if grep -qzx "PWD=$work" "/proc/$p/environ" 2>/dev/null; then echo "$p"; fi
  done
}

started run 5 -n 2 -- train "${keys[@]}" train.steps=1000000 run.dir=run
# shellcheck disable=SC2046  # numbers
run ./other_user attempt "$work/run" "$pid" $(holders) $(pgrep -P "$pid") "$(rank_of 0)" "$(rank_of 1)"
cp out attempts
expect "attempts: none succeeds; $(grep -c SUCCEEDED attempts || true) did: $(grep SUCCEEDED attempts | sort | uniq -c | head -n 5 | xargs)" test "$code" -eq 0
expect "attempts: on the launcher's and the holder's sockets" test "$(grep -cE 'refused: to talk to a (launcher|memory holder)' attempts)" -ge 8
expect "attempts: on each process" test "$(grep -c 'refused: to trace' attempts)" -ge 5
expect "attempts: on files" test "$(grep -cE 'refused: to (open for writing|remove|make)' attempts)" -ge 10
kill -TERM "$pid"
ended
same "it was asked to stop: exit" 75 "$code"

# Where both processes of the holder are killed, their name is free, and another user takes it at once.
started run 12 -n 2 --restarts 3 -- train "${keys[@]}" chaos.enabled=true \
  'chaos.faults=[{kind: slow, step: 13, rank: 0, seconds: 1.5}]' run.dir=run
mkfifo stays
# shellcheck disable=SC2046  # numbers
./other_user take $(holders) <stays >taken 2>&1 &
thief=$!
exec 8>stays
ready() { grep -q ready taken; }
await "another user waits for the holder's name" ready
# shellcheck disable=SC2046  # numbers
kill -STOP $(holders)
# shellcheck disable=SC2046  # numbers
kill -KILL $(holders)
taken() { grep -q taken taken; }
await "the holder's name is taken" taken
kill -KILL "$(rank_of 1)"
ended
expect "the name is taken: exit 0" test "$code" -eq 0
same "the name is taken: the digest" "$wanted" "$(digest run)"
exec 8>&-
wait "$thief" || problem "another user was given memory of the run"
same "the name is taken: what its new owner got" "0 descriptors" "$(tail -n 1 taken)"
finish
