#!/usr/bin/env bash
# checkpoint.mirror: a run goes on from either directory, wherever it was last; what was not brought is brought by the next start; a damaged
# or unreachable mirror is said and harms nothing. Usage: mirror_test.sh LOCKSTEP
# shellcheck source=tests/launch/run/common.sh
. "$(dirname "$0")/common.sh" "$@"
make_inputs
keys=(text.yaml train.steps=24 schedule.steps=24 checkpoint.every=4 checkpoint.mirror=shared checkpoint.mirror_every=8 --ranks 2)
steps_of() { find "$1/checkpoints" -maxdepth 1 -name 'step-*' -printf '%f\n' 2>/dev/null | sed 's/step-0*//' | sort -n | tr '\n' ' '; } # RUN
part() {                                                                                                                                # WHAT CODE RUN KEY...
  run lockstep train "${keys[@]}" "run.dir=$3" "${@:4}"
  expect "$1: exit $2" test "$code" -eq "$2"
}
succeeds "undisturbed" lockstep train text.yaml train.steps=24 schedule.steps=24 run.dir=plain
wanted=$(digest plain)

# Machine a, then b, then a again: each with what the mirror has.
part "on a" 75 a --until 10
same "the mirror after 10: multiples of 8, and the last" "8 10 " "$(steps_of shared)"
part "on b" 75 b --until 18 --resume
expect "on b: from the mirror" grep -q 'resumed shared/checkpoints/step-00000010' err
part "on a again" 0 a --resume
expect "on a again: from the mirror" grep -q 'resumed shared/checkpoints/step-00000018' err
same "on a again: the digest" "$wanted" "$(digest a)"
for d in a shared; do
  same "$d: each step once" "$(seq -s ' ' 24)" "$(field step <"$d/metrics.jsonl" | sort -n | tr '\n' ' ' | sed 's/ $//')"
  expect "$d: whole" lockstep checkpoint verify "$d"
done
succeeds "the mirror is a run" lockstep eval shared

# A mirror that lacks the last one, as after a kill, gets it from the next start.
rm -r shared/checkpoints/step-00000024
part "no step left" 0 a --resume
expect "what was not brought" test -d shared/checkpoints/step-00000024

# Damage of either is passed over.
flip() { # CHECKPOINT: a byte of its tensors
  local file
  file=$(find "$1" -name 'part-*' | head -n 1)
  printf '\377' | dd of="$file" bs=1 seek=$(($(stat -c %s "$file") / 2)) conv=notrunc status=none
}
cp -r a c && cp -r shared shared.kept
rm -rf shared/checkpoints/step-0000001* c/checkpoints/step-00000024
flip shared/checkpoints/step-00000024
part "a damaged mirror" 0 c --resume
expect "a damaged mirror: from run.dir" grep -q 'resumed c/checkpoints/step-00000020' err
same "a damaged mirror: the digest" "$wanted" "$(digest c)"
rm -rf shared && cp -r shared.kept shared && cp -r a d
for c in d/checkpoints/step-*; do flip "$c"; done
part "a damaged run.dir" 0 d --resume
expect "a damaged run.dir: from the mirror" grep -q 'resumed shared/checkpoints/step-00000024' err

# Of another run, itself, or not to be written.
refuses "the mirror of another run" 73 'rank 0 on .*: checkpoint.mirror: as a directory of this run: .* already holds a run' lockstep train "${keys[@]}" run.dir=other
refuses "within itself" 78 'override.*: checkpoint.mirror: lies within run.dir' lockstep train "${keys[@]}" run.dir=new checkpoint.mirror=new/mirror/
refuses "around itself" 78 'override.*: checkpoint.mirror: holds run.dir' lockstep train "${keys[@]}" run.dir=new/run/ checkpoint.mirror=new
refuses "itself" 78 'override.*: checkpoint.mirror: is run.dir itself' lockstep train "${keys[@]}" run.dir=shared
echo "a file" >file
refuses "a file" 73 'rank 0 on .*: checkpoint.mirror: as a directory of this run: .*file' lockstep train "${keys[@]}" run.dir=other2 checkpoint.mirror=file
# One that fails when the last is due: the run says so, and what it saved is whole.
"$binary" train "${keys[@]}" run.dir=late checkpoint.mirror=gone checkpoint.write_limit=0.2 \
  chaos.enabled=true 'chaos.faults=[{kind: stop, step: 3}]' >out 2>err &
pid=$!
until_stopped "a mirror that fails at the end"
rm -rf gone/checkpoints && echo "a file" >gone/checkpoints
kill -CONT "$pid"
ended
expect "a mirror that fails at the end: exit 74, not $code" test "$code" -eq 74
expect "a mirror that fails at the end: says what and where" grep -qE '^error: .*checkpoint.mirror: the checkpoint of step 24 was not brought: .*; it is whole in late' err
same "a mirror that fails at the end: the digest" "$wanted" "$(digest late)"
finish
