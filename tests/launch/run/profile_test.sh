#!/usr/bin/env bash
# Timelines: profile.steps of a run, `lockstep profile record` of one that goes on, and the tables of `profile summary`.
# Usage: profile_test.sh LOCKSTEP [MPIRUN]
# shellcheck source=tests/launch/run/common.sh
. "$(dirname "$0")/common.sh" "$@"
make_inputs
digest() { lockstep checkpoint digest "$1" 2>/dev/null | cut -d' ' -f1; }

succeeds "a run" lockstep train text.yaml train.steps=8 run.dir=plain
succeeds "the same, with a timeline" lockstep train text.yaml train.steps=8 run.dir=traced profile.steps=3-5 --ranks 2 batch.micro=1
expect "the log names it" grep -q 'timeline: traced/profile/steps-3-5.json; ui.perfetto.dev opens it' err
succeeds "without" lockstep train text.yaml train.steps=8 run.dir=untraced --ranks 2 batch.micro=1
same "no bit changes" "$(digest untraced)" "$(digest traced)"
expect "three steps of two ranks" test "$(grep -c '"cat":"step"' traced/profile/steps-3-5.json)" -eq 6
succeeds "its summary" lockstep profile summary traced
expect "operations" grep -qE '^linear +[0-9.]+ +[0-9.]+ ' out
expect "modules" grep -qE '^blocks\.0' out
expect "ranks" grep -qE '^1 +[0-9.]+ +[0-9.]+$' out
succeeds "advice as JSON" lockstep profile summary traced/profile/steps-3-5.json --json
if with_mpi; then
  succeeds "processes" mpi 3 "$binary" train text.yaml train.steps=6 run.dir=processes profile.steps=4 batch.micro=1 profile.ranks=2
  expect "one step of two of three ranks" test "$(grep -c '"cat":"step"' processes/profile/steps-4-4.json)" -eq 2
fi

# Of a run that goes on.
"$binary" train text.yaml train.steps=100000000 run.dir=long checkpoint.every=0 >/dev/null 2>&1 &
run=$!
await "a run that goes on" test -s long/metrics.jsonl
succeeds "record" lockstep profile record long --steps 2
expect "its path" grep -qE '^long/profile/steps-[0-9]+-[0-9]+\.json$' out
expect "two steps" test "$(grep -c '"cat":"step"' "$(cat out)")" -eq 2
succeeds "once more" lockstep profile record long --steps 3
expect "three steps" test "$(grep -c '"cat":"step"' "$(cat out)")" -eq 3
kill -TERM $run
wait $run || true

refuses "no range" 78 'override 2 \(profile.steps=5-3\): profile.steps: .5-3. is no range of steps; write it as 10-13' \
  lockstep train text.yaml run.dir=odd profile.steps=5-3
refuses "beyond the end" 78 '.*profile.steps: the run ends after step 8' lockstep train text.yaml train.steps=8 run.dir=odd profile.steps=9
refuses "a run that has ended" 64 'plain: is finished; only a running run can be recorded' lockstep profile record plain
refuses "no timeline" 66 'plain: has no timeline; profile.steps=10-13 writes one' lockstep profile summary plain
refuses "no file" 66 'none.json: there is no such file' lockstep profile summary none.json
refuses "another file" 65 'text.yaml: is no timeline that lockstep wrote' lockstep profile summary text.yaml
head -c 3000 traced/profile/steps-3-5.json >cut.json
refuses "a part of one" 65 'cut.json: is no timeline' lockstep profile summary cut.json
mkfifo fifo.json
refuses "a FIFO" 65 'fifo.json: is not a file' timeout 120 "$binary" profile summary fifo.json
exit "$failed"
