#!/usr/bin/env bash
# `lockstep submit` for PBS against a stand-in for qsub, qstat and qdel: this has never met a real PBS. A job that trains, one that is
# submitted again at its time limit until it is done, one that is cancelled, one that is refused. Slurm: tests/fault/slurm_test.sh.
# Usage: pbs_test.sh LOCKSTEP MPIRUN
# shellcheck source=tests/launch/run/common.sh
. "$(dirname "$0")/common.sh" "$@"
export ASAN_OPTIONS=$no_leak_check # of ranks that it launches
if ! with_mpi; then finish; fi
make_inputs
mkdir -p bin pbs
# A job is a process group; its state is R while it lives.
cat >bin/qsub <<SH
#!/bin/bash
if grep -q '^#PBS -q nowhere' "\$1"; then echo "qsub: Unknown queue" >&2 && exit 170; fi
exec 9>"$work/pbs/lock" && flock 9
n=\$(ls "$work/pbs" | grep -c '^job')
host=\$(hostname)
for _ in \$(seq "\$(sed -n 's/^#PBS -l select=\\([0-9]*\\).*mpiprocs=\\([0-9]*\\).*/\\2/p' "\$1")"); do echo "\$host"; done >"$work/pbs/nodes\$n"
echo "\$1" >>"$work/pbs/submitted"
export PBS_JOBID=\$n.test PBS_NODEFILE="$work/pbs/nodes\$n"
range=\$(sed -n 's/^#PBS -J \\([0-9]*\\)-\\([0-9]*\\).*/\\1 \\2/p' "\$1")
if [ -n "\$range" ]; then # an array: a process for each of its jobs
  setsid bash -c 'for i in \$(seq \$0); do PBS_ARRAY_INDEX=\$i bash "\$1" & done; wait' "\$range" "\$1" >"$work/pbs/out\$n" 2>&1 9>&- </dev/null &
else
  setsid bash "\$1" >"$work/pbs/out\$n" 2>&1 9>&- </dev/null &
fi
echo \$! >"$work/pbs/job\$n"
echo "\$n.test"
SH
cat >bin/qstat <<SH
#!/bin/bash
pid=\$(cat "$work/pbs/job\${2%.test}")
kill -0 "\$pid" 2>/dev/null || exit 35
printf 'Job Id: %s\n    job_state = R\n    comment = Job run at now\n' "\$2"
SH
cat >bin/qdel <<SH
#!/bin/bash
kill -TERM -- "-\$(cat "$work/pbs/job\${1%.test}")"
SH
chmod +x bin/*
export PATH=$work/bin:$PATH
keys=(text.yaml train.steps=40 checkpoint.every=5)
# Ten slow steps at the end: they take longer than the 15 s after which a run saves, and a start takes less than these.
slow=(chaos.enabled=true 'chaos.faults=[{kind: slow, step: 31, rank: 0, seconds: 2, attempt: 0}]')
limit=(--time 0:25 --warning 10)
succeeds "undisturbed" lockstep train "${keys[@]}" run.dir=plain
wanted=$(digest plain)
submit() { lockstep submit --scheduler pbs --ranks-per-node 2 "$@"; }
until_state() { # RUN STATE
  local end=$((SECONDS + 240))
  until [ "$(state_of "$1")" = "$2" ]; do
    if [ "$SECONDS" -ge "$end" ]; then problem "$1 was to be $2, and is $(state_of "$1")" && cat pbs/out* && return; fi
    sleep 0.2
  done
}

succeeds "submit" submit "${keys[@]}" run.dir=a
expect "submit: the job's id" grep -qx 'job 0.test' out
until_state a finished
same "a job: the digest" "$wanted" "$(digest a)"
expect "a job: 2 ranks of its node file" grep -q '^starting 2 ranks on ' pbs/out0

succeeds "submit with a short limit" submit "${limit[@]}" "${keys[@]}" "${slow[@]}" run.dir=b
until_state b finished
same "after its limits: the digest" "$wanted" "$(digest b)"
expect "its time limit came" grep -q 'the time given by --time is over' pbs/out1
expect "it was submitted again" grep -q 'saved, and submitted again' pbs/out1

# An array whose points reach their limits: each comes back by itself.
rm -f pbs/submitted
succeeds "submit a sweep" lockstep submit --scheduler pbs "${limit[@]}" --sweep grid "${keys[@]}" "${slow[@]}" optim.lr=1e-3,3e-3
both_ended() { [ "$(field exit_code 2>/dev/null <<<"$(lockstep sweep --collect grid --json 2>/dev/null)" | grep -cx 0)" -eq 2 ]; }
await "both points end" both_ended
succeeds "the results of the sweep" lockstep sweep --collect grid
same "points of the sweep that finished" 2 "$(field exit_code <grid/sweep.json | grep -cx 0)"
succeeds "a point by itself" lockstep train "${keys[@]}" optim.lr=3e-3 run.dir=point
same "a point of the array: the digest" "$(digest point)" "$(digest grid/001)"
same "arrays that were submitted" 1 "$(grep -c '/submit.sh$' pbs/submitted)"
for point in 0 1; do expect "point $point was submitted again" grep -q "/again_$point.sh$" pbs/submitted; done
for n in $(cd pbs && ls | sed -n 's/^job//p'); do while kill -0 "$(cat "pbs/job$n")" 2>/dev/null; do sleep 0.1; done; done
succeeds "cancel, when all have ended, finds nothing" bash -c "! '$binary' cancel grid"

succeeds "submit, and cancel" submit --time 10 "${keys[@]}" train.steps=1000000 run.dir=c
job=$(sed -n 's/^job \([0-9]*\).*/\1/p' out)
until_step c 2 "$(cat "pbs/job$job")"
run submit "${keys[@]}" run.dir=c
same "a second job for the same run: exit 73" 73 "$code"
succeeds "cancel" lockstep cancel c
until_state c stopped
expect "cancel: saved first" grep -q 'stopped on request after step' c/log.txt
jobs_before=$(find pbs -name 'job*' | wc -l)
while kill -0 "$(cat "pbs/job$job")" 2>/dev/null; do sleep 0.1; done
same "cancel: not submitted again" "$jobs_before" "$(find pbs -name 'job*' | wc -l)"
refuses "a refusal of PBS" 64 'PBS refuses the job: qsub: Unknown queue' submit --option '-q nowhere' "${keys[@]}" run.dir=d
refuses "no time" 64 '--time soon: is not a time' submit --time soon "${keys[@]}" run.dir=d
refuses "another scheduler" 64 '--scheduler lsf: is slurm or pbs' lockstep submit --scheduler lsf "${keys[@]}" run.dir=d
succeeds "dry run" submit --dry-run --nodes 3 --gpus-per-node 4 "${keys[@]}" batch.micro=1 run.dir=e
expect "dry run: the script" grep -qx '#PBS -l select=3:ncpus=2:mpiprocs=2:ngpus=4' out
expect "dry run: nothing is made" test ! -e e
finish
