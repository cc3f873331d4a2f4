#!/usr/bin/env bash
# A disk that fills while checkpoints are saved: the run goes on, earlier checkpoints stay whole, the third failure in a row ends it with 74,
# and with room again it ends with the same bits. On a small disk of its own; exit 77 where none can be mounted.
# Usage: full_disk_test.sh LOCKSTEP
if [ -z "${LOCKSTEP_OWN_MOUNTS:-}" ]; then
  export LOCKSTEP_OWN_MOUNTS=yes
  for enter in "unshare --mount" "unshare --map-root-user --mount"; do
    if $enter mount -t tmpfs none /mnt 2>/dev/null; then exec $enter "$0" "$@"; fi
  done
  echo "skipped: mounting a small disk is not allowed here"
  exit 77
fi
# shellcheck source=tests/launch/run/common.sh
. "$(dirname "$0")/common.sh" "$1"
make_inputs
mkdir disk
mount -t tmpfs -o size=2m none disk
trap 'umount "$work/disk"; rm -rf "$work"' EXIT
fill() { dd if=/dev/zero of=disk/filler bs=4k 2>/dev/null || true; }
stops_at() { echo "chaos.faults=[$(printf '{kind: stop, step: %s},' "$@")]"; } # STEP...: there it waits for what is done to the disk

keys=(model.dropout=0.1 train.steps=320 checkpoint.every=40)
succeeds "on a large disk" lockstep train text.yaml "${keys[@]}" run.dir=whole
"$binary" train text.yaml "${keys[@]}" run.dir=disk/run --ranks 2 chaos.enabled=true "$(stops_at 75 130)" >out 2>err &
pid=$!
until_stopped "between two saves"
expect "between two saves: the first is whole" test -d disk/run/checkpoints/step-00000040
fill
kill -CONT "$pid"
until_stopped "when a save has failed"
expect "full: it is said" grep -q 'checkpoint not saved (1 of 3 in a row that are tolerated): disk/run/checkpoints' err
run lockstep checkpoint verify disk/run
expect "full: the earlier checkpoints are whole" test "$code" -eq 0
expect "full: there are some" grep -q '^whole ' out
rm disk/filler
kill -CONT "$pid"
ended
same "the run goes on to its end" 0 "$code"
same "the same bits" "$(digest whole)" "$(digest disk/run)"
succeeds "all are whole" lockstep checkpoint verify disk/run
if compgen -G 'disk/run/checkpoints/.*pending*' >/dev/null; then problem "something torn stays: $(ls -A disk/run/checkpoints)"; fi
rm -rf disk/run

# Room is looked for before the first step: for what will be kept, beyond what is there.
no_room() { # WHAT 'COUNT more checkpoints' RUN key...
  refuses "$1" 74 "(rank 0 on [^ ]+: )?disk/$3/checkpoints has .* free, but $2 of [0-9]+ KiB each .* need .*: free space" \
    lockstep train text.yaml run.dir="disk/$3" "${@:4}"
}
no_room "all are kept" '8 more checkpoints' all train.steps=1600 checkpoint.every=200 checkpoint.keep_last=0
if [ -s disk/all/metrics.jsonl ] || compgen -G 'disk/all/checkpoints/*' >/dev/null; then problem "all are kept: a step was done"; fi
no_room "some are kept for ever" '9 more checkpoints' ever train.steps=16000 checkpoint.every=1000 checkpoint.keep_every=2000
no_room "several ranks" '8 more checkpoints' ranks train.steps=1600 checkpoint.every=200 checkpoint.keep_last=0 --ranks 2
rm -rf disk/all disk/ever disk/ranks
steps=(checkpoint.every=10 checkpoint.keep_last=4)
succeeds "room for four and one more" lockstep train text.yaml run.dir=disk/again "${steps[@]}" train.steps=40 schedule.steps=80
succeeds "what is there counts" lockstep train text.yaml run.dir=disk/again "${steps[@]}" train.steps=80 schedule.steps=80 --resume
rm -rf disk/again

keys=(model.dropout=0.1 train.steps=320 checkpoint.every=10)
"$binary" train text.yaml "${keys[@]}" run.dir=disk/run --ranks 2 chaos.enabled=true "$(stops_at 22)" >out 2>err &
pid=$!
until_stopped "after a save"
fill
kill -CONT "$pid"
ended
same "full for good: exit 74" 74 "$code"
expect "full for good: two were tolerated" grep -q 'checkpoint not saved (2 of 3 in a row that are tolerated)' err
expect "full for good: one error, with the file" test "$(grep -c '^error: .*disk/run/checkpoints/.*' err)" -eq 1
rm disk/filler
succeeds "full for good: what was saved is whole" lockstep checkpoint verify disk/run
succeeds "with room again, resumed" lockstep train text.yaml "${keys[@]}" run.dir=disk/run --resume
same "with room again: the same bits" "$(digest whole)" "$(digest disk/run)"
finish
