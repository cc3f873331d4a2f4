#!/usr/bin/env bash
# `lockstep launch` on one machine: the same bits, verdicts on ranks that are killed, crash or are stopped, restarts, signals, bad input.
# Across machines: tests/fault/network_test.sh. Usage: launch_test.sh LOCKSTEP MPIRUN
# shellcheck disable=SC2016,SC2317  # backquotes of messages; functions that are called by name
# shellcheck source=tests/launch/run/common.sh
. "$(dirname "$0")/common.sh" "$@"
export ASAN_OPTIONS=$no_leak_check # of ranks that it launches
if ! with_mpi; then finish; fi
make_inputs
keys=(text.yaml checkpoint.every=5)
launch() { timeout 300 "$binary" launch --mpirun "$launched_by" "$@"; }
launched_by=$mpirun_program
endless=(train.steps=1000000 schedule.steps=60)

succeeds "undisturbed" lockstep train "${keys[@]}" train.steps=60 run.dir=plain
wanted=$(digest plain)
begun=$(date +%s)
succeeds "launch" launch -n 3 -- train "${keys[@]}" train.steps=60 run.dir=launched
same "launch: the digest" "$wanted" "$(digest launched)"
expect "launch: it prints the mpirun command" grep -q '^starting 3 ranks: .*-n 3 .*lockstep agent -- ' err
expect "launch: each step's time stamp" test "$(field time <launched/metrics.jsonl | awk -v begun="$begun" -v now="$(date +%s)" '$1 >= begun && $1 <= now + 1' | wc -l)" -eq 60
expect "launch: each rank's time for the step before" test "$(grep -cE '"rank_ms":\[[0-9.]+,[0-9.]+,[0-9.]+\]' launched/metrics.jsonl)" -eq 60
expect "launch: which is not 0" test "$(grep -cE '"rank_ms":\[[0.]*[1-9][0-9.]*,' launched/metrics.jsonl)" -ge 30
expect "launch: rank 0's lines" grep -q '^rank 0: train 60/60 steps' err
if command -v script >/dev/null; then # on a terminal; slowly enough that the bar moves
  slow="chaos.enabled=true 'chaos.faults=[{kind: slow, step: 1, rank: 0, seconds: 0.006}]'"
  run env TERM=xterm script -qec "'$binary' launch --mpirun '$mpirun_program' -n 2 -- train text.yaml train.steps=200 schedule.steps=200 run.dir=bar $slow" /dev/null
  expect "one bar for all ranks" grep -qE 'train +[0-9]+/200 +[0-9]+%.* steps/s' out
  expect "one bar, no lines of progress" bash -c '! grep -q "rank 0: train " out'
fi
succeeds "eval under launch" launch -n 2 -- eval launched
expect "eval under launch: one result" test "$(grep -c '"loss"' out)" -eq 1

# The process of a rank: not its agent, whose child it is.
fails() { # WHAT CODE 'REGEXP' SECONDS: the run just started ends so, within this time, and leaves nothing
  local begun took
  begun=$(seconds)
  ended
  took=$(since "$begun")
  expect "$1: exit $2" test "$code" -eq "$2"
  expect "$1: the verdict" grep -qE "^error: .*$3" err
  expect "$1: one error" test "$(grep -c '^error: ' err)" -eq 1
  within "$4" "$1: it ends" "$took"
  nothing_left "$1"
}
nothing_left() { # WHAT
  same "$1: ranks that are left" "none" "$(for r in 0 1 2; do rank_of "$r"; done | grep . || echo none)"
}

started run 10 -n 3 -- train "${keys[@]}" "${endless[@]}" run.dir=run
kill -KILL "$(rank_of 2)"
fails "a killed rank" 69 'rank 2 on .*was killed by SIGKILL .*after step [0-9]+.*go on from the last checkpoint' 5
expect "a killed rank: failure.json" grep -qE '"exit_code":69,"message":"rank 2 on .*"rank":2,"step":[1-9]' run/failure.json
# AddressSanitizer would report the signal itself.
ASAN_OPTIONS=${ASAN_OPTIONS:-}:handle_segv=0 started run 10 -n 3 -- train "${keys[@]}" "${endless[@]}" run.dir=run
kill -SEGV "$(rank_of 1)"
fails "a crash" 69 'rank 1 on .*ended by SIGSEGV .*after step' 5
expect "a crash: said by the rank" grep -q '^rank 1: error: this process crashed by SIGSEGV' err
started run 10 -n 3 -- train "${keys[@]}" "${endless[@]}" run.dir=run launch.silence=8
kill -STOP "$(rank_of 0)"
fails "a stopped rank" 69 'rank 0 on .*has been stopped for (8|9|[1-9][0-9])[.0-9]* s, by SIGSTOP' 14
expect "a stopped rank: said before" grep -qE '^warning: rank 0 on .* is stopped, by SIGSTOP' err
started run 10 -n 2 -- train "${keys[@]}" "${endless[@]}" run.dir=run
begun=$(seconds)
kill -KILL "$pid"
ended
no_ranks() { [ -z "$(for r in 0 1; do rank_of "$r"; done)" ]; }
await "launcher killed: its ranks end" no_ranks
within 1 "launcher killed: its ranks end" "$(since "$begun")"
same "launcher killed: status" failed "$(state_of run)"
expect "launcher killed: its process is named" grep -qE "its (launcher, )?process [0-9]+ on .*, ended without a word" <(lockstep status run)
succeeds "launcher killed: resumed without one" lockstep train "${keys[@]}" run.dir=run train.steps=$(($(done_steps run) + 1)) schedule.steps=60 --resume
same "launcher killed: resumed without one: status" finished "$(state_of run)"

started run 10 -n 2 -- train "${keys[@]}" "${endless[@]}" run.dir=run
until [ -s run/ranks.jsonl ] || ! kill -0 "$pid" 2>/dev/null; do sleep 0.05; done
same "cancel: the launcher is asked" "asked process $pid to save and end" "$(lockstep cancel run)"
ended
same "cancel: exit 75" 75 "$code"
same "cancel: status" stopped "$(state_of run)"

started run 10 -n 2 -- train "${keys[@]}" "${endless[@]}" run.dir=run
kill -TERM "$pid"
ended
expect "SIGTERM: exit 75" test "$code" -eq 75
expect "SIGTERM: saved" grep -q 'stopped on request after step [0-9]*; saved' err
succeeds "it goes on" launch -n 3 -- train "${keys[@]}" train.steps=60 schedule.steps=60 run.dir=run --resume
same "after SIGTERM and with another number of ranks: the digest" "$wanted" "$(digest run)"

# shellcheck disable=SC2016  # the command's shell expands them
tells=('launch.on_failure=echo "$LOCKSTEP_RUN $LOCKSTEP_EXIT_CODE $LOCKSTEP_MESSAGE" >>told' 'launch.on_end=echo "end $LOCKSTEP_EXIT_CODE" >>told')
# The first attempt is slow from step 13 on, so that the signal finds it at work.
started run 12 -n 3 --restarts 2 -- train "${keys[@]}" train.steps=60 run.dir=run "${tells[@]}" chaos.enabled=true \
  'chaos.faults=[{kind: slow, step: 13, rank: 0, seconds: 1}]'
kill -KILL "$(rank_of 1)"
ended
expect "restarts: the user's commands" grep -qE '^run 69 rank 1 on .* was killed by SIGKILL' told
expect "restarts: at the end" grep -qx 'end 0' told
expect "restarts: exit 0" test "$code" -eq 0
expect "restarts: said" grep -q '^attempt 2: 3 ranks, from the newest valid checkpoint' err
same "restarts: the digest" "$wanted" "$(digest run)"

# Other machines, all played by this one: a stand-in for ssh. Their ranks reach the launcher by TCP.
cat >shell_to <<SH
#!/bin/bash
while [[ \$1 == -* ]]; do shift; done
mkdir -p $work/tmp.\$1 # as on machines of their own: two daemons of Open MPI in one TMPDIR now and then end without a word
export TMPDIR=$work/tmp.\$1
shift
exec bash -c "\$*"
SH
chmod +x shell_to
machines() { launch --remote-shell "$work/shell_to" "$@"; }

# 300 connections that say nothing, before the ranks connect.
cat >crowded_mpirun <<SH
#!/bin/bash
if [ -n "\${LOCKSTEP_CONTROL:-}" ]; then
  address=\${LOCKSTEP_CONTROL#tcp:}
  for _ in \$(seq 300); do exec {fd}<>"/dev/tcp/\${address%:*}/\${address##*:}"; done 2>/dev/null
fi
exec "$mpirun_program" "\$@"
SH
chmod +x crowded_mpirun
launched_by=$work/crowded_mpirun
succeeds "silent connections" machines --hosts 127.0.0.2:3 -- train "${keys[@]}" train.steps=60 run.dir=silent
expect "silent connections: said" grep -q '^warning: dropped a connection from 127.0.0.1 to the control port: ' err
same "silent connections: the digest" "$wanted" "$(digest silent)"
launched_by=$mpirun_program

# More ranks than the usual limit of open files lets in, which is raised; and a limit that cannot be.
succeeds "few open files" bash -c "ulimit -Sn 20; exec '$binary' launch --mpirun '$mpirun_program' -n 16 -- doctor --dir ."
run bash -c "ulimit -n 20; exec '$binary' launch --mpirun '$mpirun_program' -n 16 -- doctor --dir ."
expect "too few open files: exit 67" test "$code" -eq 67
expect "too few open files: said" grep -qE '^error: a process may have only 20 open files here, and for 16 ranks [0-9]+ are needed' err

rm -rf run
refuses "nothing to run" 64 'launch: what should the ranks run' launch -n 2
refuses "no such command" 64 "launch: 'trian' is not a command" launch -n 2 -- trian text.yaml
refuses "--ranks beside -n" 64 'launch: -n says how many ranks' launch -n 2 -- train text.yaml --ranks 2
refuses "a bad key" 78 'override 1 \(modle.name=gpt\)' launch -n 2 -- train text.yaml modle.name=gpt
refuses "a bad hostfile" 66 'the hostfile nowhere cannot be read' launch --hostfile nowhere -- train text.yaml
refuses "a device as the hostfile" 65 'the hostfile /dev/zero cannot be read: /dev/zero: is not a file' timeout 60 "$binary" launch --hostfile /dev/zero -- train text.yaml
refuses "hosts twice" 64 'launch: --hosts and --hostfile' launch --hosts a --hostfile b -- train text.yaml
refuses "too many ranks" 64 'launch: 3 ranks, but localhost:2 have 2 slots' launch -n 3 --hosts localhost:2 -- train text.yaml
refuses "no mpirun" 66 'cannot run nowhere' "$binary" launch --mpirun nowhere -- train text.yaml
refuses "restarts of what cannot" 64 '--restarts: only training' launch -n 2 --restarts 1 -- eval launched
run mpi 1 "$binary" launch -n 2 -- train text.yaml
expect "within mpirun: exit 64, and why" grep -qE '^error: launch: this process was itself started by an MPI launcher; either .*lockstep launch -n 2 -- train text.yaml., without mpirun' err
refuses "within srun: what to type" 64 'launch: this process was itself started by srun; .*`lockstep launch -n 2 -- train text.yaml`, without srun, .*`srun --mpi=pmix lockstep train text.yaml`' env SLURM_STEP_ID=0 PMIX_RANK=0 "$binary" launch -n 2 -- train text.yaml
refuses "as by torchrun" 64 'RANK and WORLD_SIZE are set, as by torchrun' env RANK=0 WORLD_SIZE=2 "$binary" train text.yaml run.dir=new
refuses "the launcher of another MPI" 64 'the launcher started 2 processes, but MPI sees this one alone: lockstep is built with Open MPI' env PMI_RANK=0 PMI_SIZE=2 "$binary" train text.yaml run.dir=new
refuses "srun without MPI" 64 'srun started several processes, but without MPI' env SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=2 "$binary" train text.yaml run.dir=new
# A scheduler that ends a job sends SIGTERM to all its processes at once, and its batch script hands it on.
tree() { # PID: it and all its descendants
  local p
  echo "$1"
  for p in $(pgrep -P "$1"); do tree "$p"; done
}
printf '%s\n%s\n' "$(hostname)" "$(hostname)" >nodes
export PBS_JOBID=7.test PBS_NODEFILE=$work/nodes
mkfifo nothing_comes
for _ in 1 2 3 4 5; do
  started run 10 -n 2 --restarts 2 -- train "${keys[@]}" "${endless[@]}" run.dir=run
  mapfile -t all < <(tree "$pid")
  begun=${EPOCHREALTIME/./}
  kill -TERM "${all[@]}"
  read -rt 0.2 <>nothing_comes || true
  kill -TERM "$pid" || true
  apart=$((${EPOCHREALTIME/./} - begun))
  ended
  # Within a second both are one request: once more, if this shell was held up for longer.
  if [ "$apart" -lt 700000 ]; then break; fi
done
unset PBS_JOBID PBS_NODEFILE
expect "SIGTERM of all at once: exit 75" test "$code" -eq 75
expect "SIGTERM of all at once: saved" grep -q 'stopped on request after step [0-9]*; saved' err
expect "SIGTERM of all at once: no other attempt" bash -c '! grep -q "^attempt" err'
nothing_left "SIGTERM of all at once"

# Ctrl-Z of the launcher, for longer than launch.silence.
started run 10 -n 2 -- train "${keys[@]}" train.steps=300 schedule.steps=60 run.dir=run launch.silence=5
kill -TSTP "$pid"
await "Ctrl-Z: the launcher is stopped" is_stopped "$pid"
sleep 6
expect "Ctrl-Z: the launcher is still stopped" grep -q '^State:.*T' "/proc/$pid/status"
until_step run 21
before=$(done_steps run)
kill -CONT "$pid"
ended
expect "Ctrl-Z: the ranks went on meanwhile, to step $before" test "$before" -gt 20
expect "Ctrl-Z: exit 0" test "$code" -eq 0
expect "Ctrl-Z: said" grep -q '^the launcher is stopped, and its ranks go on' err
# (Another process of this machine may make a rank slow, or there may be one core only, and that is said.)
expect "Ctrl-Z: nobody is blamed" bash -c '! grep -E "^(warning|error):" err | grep -qvE "^warning: (rank [01] on .* is slow: it computes|2 ranks on 1 core: )"'
expect "Ctrl-Z: all steps" test "$(done_steps run)" -eq 300

# mpirun, or its keeper, is killed before, while and after its ranks start.
for delay in 0.2 0.4 0.6 0.8 1; do
  rm -rf killed
  "$binary" launch --mpirun "$mpirun_program" -n 2 -- train "${keys[@]}" "${endless[@]}" run.dir=killed >out 2>err &
  pid=$!
  sleep "$delay"
  until keeper=$(pgrep -P "$pid" -f 'agent --keep') || ! kill -0 "$pid" 2>/dev/null; do sleep 0.02; done
  if [ "$delay" = 0.8 ]; then kill -STOP "$keeper"; fi # it is slow to see that
  if [ "$delay" = 0.6 ] || ! pkill -KILL -P "$keeper"; then kill -KILL "$keeper"; fi
  if [ "$delay" = 0.8 ]; then sleep 0.7 && kill -CONT "$keeper" || true; fi
  ended
  expect "mpirun killed after $delay s: exit 69" test "$code" -eq 69
  expect "mpirun killed after $delay s: said" grep -qE '^error: mpirun was killed by SIGKILL (before all ranks were started|while ranks were (starting|training))' err
done

# Where temporary files lie: nowhere, in a file, on a full disk, under a long name.
refuses "TMPDIR is absent" 73 "the temporary folder $work/absent on .* cannot be written: No such file" env TMPDIR="$work/absent" "$binary" launch -n 2 -- train text.yaml run.dir=temporary
refuses "TMPDIR is a file" 73 "the temporary folder $work/text.txt on .* cannot be written: Not a directory" env TMPDIR="$work/text.txt" "$binary" launch -n 2 -- train text.yaml run.dir=temporary
long=$work/$(printf 'x%.0s' $(seq 100))
mkdir "$long"
succeeds "TMPDIR has a long name" env TMPDIR="$long" "$binary" launch --mpirun "$mpirun_program" -n 2 -- train "${keys[@]}" train.steps=60 run.dir=temporary
same "TMPDIR has a long name: the digest" "$wanted" "$(digest temporary)"
same "left in TMPDIR" "0 files" "$(find "$long" -name 'lockstep*' | wc -l) files"
if mkdir full && mount -t tmpfs -o size=64k none full 2>/dev/null; then
  trap 'umount "$work/full"; rm -rf "$work"' EXIT
  head -c 100000 /dev/zero >full/filler 2>/dev/null || true
  refuses "TMPDIR is full" 74 "the temporary folder $work/full on .* cannot be written: No space left" env TMPDIR="$work/full" "$binary" launch -n 2 -- train text.yaml run.dir=temporary
else
  echo "skipped: a full TMPDIR: needs a file system of its own, and root"
fi

begun=$(seconds)
refuses "an agent whose launcher is gone" 69 'cannot reach the launcher at unix:@lockstep-gone' env OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1 LOCKSTEP_CONTROL=unix:@lockstep-gone LOCKSTEP_SECRET=0 "$binary" agent -- train text.yaml
within 4 "an agent whose launcher is gone: it ends" "$(since "$begun")"
refuses "agent by hand" 64 '.lockstep agent. is started by' lockstep agent -- train text.yaml
code=0 && launch -n 2 --hosts no-such-host:2 -- train text.yaml >out 2>err || code=$?
expect "an unknown host: exit 66" test "$code" -eq 66
expect "an unknown host: named" grep -qE '^error: the host no-such-host is unknown' err
finish
