#!/usr/bin/env bash
# `lockstep submit` on a real Slurm: slurmctld and slurmd on four machines (tests/fault/common.sh). A job trains; one is signalled at its
# limit, goes back into the queue, resumes; one loses a machine; all end with the digest of an undisturbed run. A job is cancelled, one is
# refused. Usage: slurm_test.sh LOCKSTEP MPIRUN [CASE...]
# shellcheck source=tests/fault/common.sh
. "$(dirname "$0")/common.sh" "${@:1:2}"
cases=" ${*:3} "
for program in slurmctld slurmd sbatch munged; do
  command -v "$program" >/dev/null || skip "$program is not installed (packages slurmctld, slurmd, slurm-client, munge)"
done
nodes_up
make_inputs

S=$work/slurm
mkdir -p "$S"/{state,munge,tmp} "$S"/spool/n{1..4} "$S"/tmp/n{1..4}
chmod 755 "$work" "$S"
chmod 700 "$S/munge"
head -c 1024 /dev/urandom >"$S/munge/munge.key"
chmod 600 "$S/munge/munge.key"
munged --force --socket="$S/munge.sock" --key-file="$S/munge/munge.key" --pid-file="$S/munge/pid" --log-file="$S/munge/log" --seed-file="$S/munge/seed"
cat >"$S/slurm.conf" <<CONF
ClusterName=test
SlurmctldHost=n1(10.77.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$S/munge.sock
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=batch_sched_delay=0,sched_interval=5,bf_interval=5,requeue_delay=1
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=5
SlurmdTimeout=10
SlurmctldTimeout=10
TmpFS=$S/tmp/%n
StateSaveLocation=$S/state
SlurmdSpoolDir=$S/spool/%n
SlurmdPidFile=$S/slurmd.%n.pid
SlurmctldPidFile=$S/slurmctld.pid
SlurmctldLogFile=$S/slurmctld.log
SlurmdLogFile=$S/slurmd.%n.log
AccountingStorageType=accounting_storage/none
NodeName=n1 NodeAddr=10.77.0.1 CPUs=2 RealMemory=4000
NodeName=n2 NodeAddr=10.77.0.2 CPUs=2 RealMemory=4000
NodeName=n3 NodeAddr=10.77.0.3 CPUs=2 RealMemory=4000
NodeName=n4 NodeAddr=10.77.0.4 CPUs=2 RealMemory=4000
PartitionName=debug Nodes=ALL Default=YES State=UP
CONF
export SLURM_CONF=$S/slurm.conf
slurm() { on n1 env "SLURM_CONF=$SLURM_CONF" OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 bash -c "cd $work && $(printf '%q ' "$@")"; }
slurm_down() {
  kill -KILL "$(cat "$S/munge/pid" 2>/dev/null)" 2>/dev/null || true
  nodes_down
}
trap 'slurm_down; rm -rf "$work"' EXIT
on n1 env "SLURM_CONF=$SLURM_CONF" slurmctld -c
for i in 1 2 3 4; do on "n$i" env "SLURM_CONF=$SLURM_CONF" slurmd -N "n$i"; done
for _ in $(seq 50); do
  if [ "$(slurm sinfo -h -t idle -o %D)" = 4 ]; then break; fi
  sleep 0.2
done
same "nodes of Slurm that are idle" 4 "$(slurm sinfo -h -t idle -o %D)"

keys=(text.yaml train.steps=40 checkpoint.every=5 launch.silence=4)
# One step a second: Slurm's limits are minutes.
slow=(chaos.enabled=true 'chaos.faults=[{kind: slow, step: 1, rank: 0, seconds: 1, attempt: 0}]')
succeeds "undisturbed" lockstep train "${keys[@]}" run.dir=plain
wanted=$(digest plain)
submit() { slurm "$binary" submit --remote-shell "$work/remote" --interface eth0 --nodes 2 "$@"; }
state_of() { slurm "$binary" status --json "$1" | sed -n 's/.*"state":"\([a-z ]*\)".*/\1/p'; }
until_state() { # RUN STATE SECONDS
  local end=$((SECONDS + $3)) state=""
  while [ "$SECONDS" -lt "$end" ]; do
    state=$(state_of "$1")
    if [ "$state" = "$2" ]; then return; fi
    sleep 0.5
  done
  problem "$1 was to be $2 within $3 s, and is $state"
  slurm "$binary" status "$1" || true
  tail -n 20 "$1"/job/*.log || true
}
asked() { [ "$cases" = "  " ] || [[ $cases == *" $1 "* ]]; }

if asked trains; then
  succeeds "submit" submit --time 5 "${keys[@]}" run.dir=a
  expect "submit: the job's id" grep -qE '^job [0-9]+$' out
  until_state a finished 60
  same "a batch job: the digest" "$wanted" "$(digest a)"
  succeeds "logs" slurm "$binary" logs a
  expect "logs: of the run" grep -q 'train 40/40 steps' out
  echo "submit: trained on 2 nodes, digest $wanted"
fi

if asked limit; then
  # The limit is a minute, and the run saves 45 s before it.
  succeeds "submit with a short limit" submit --time 1 --warning 45 "${keys[@]}" "${slow[@]}" run.dir=b
  job=$(sed -n 's/^job //p' out)
  until grep -q 'back into the queue' b/job/*.log 2>/dev/null || [ "$(state_of b)" = finished ]; do sleep 0.5; done
  expect "the limit: saved" grep -q 'stopped on request after step' b/log.txt
  done_before=$(done_steps b)
  for _ in $(seq 20); do # a job that comes back is held for two minutes
    slurm scontrol update "JobId=$job" StartTime=now >/dev/null 2>&1 || true
    if [ "$(grep -c 'back into the queue' b/job/"$job".log)" -ge 1 ] && [ "$(grep -c '^starting' b/job/"$job".log)" -ge 2 ]; then break; fi
    sleep 1
  done
  for _ in $(seq 180); do
    slurm scontrol update "JobId=$job" StartTime=now >/dev/null 2>&1 || true
    if [ "$(state_of b)" = finished ]; then break; fi
    sleep 1
  done
  until_state b finished 5
  same "after its limit: the digest" "$wanted" "$(digest b)"
  echo "limit: saved after step $done_before, requeued $(grep -c 'back into the queue' b/job/"$job".log) times, digest $(digest b)"
fi

if asked node; then
  succeeds "submit, and lose a machine" submit --time 5 "${keys[@]}" "${slow[@]}" run.dir=c
  job=$(sed -n 's/^job //p' out)
  until [ "$(done_steps c)" -ge 8 ] 2>/dev/null; do sleep 0.5; done
  lost=$(slurm squeue -h -j "$job" -o %N | sed -E 's/.*[[,-]([0-9]+)\]?$/\1/')
  ip -n "$id-sw" link set "v$lost" down
  for _ in $(seq 120); do
    slurm scontrol update "JobId=$job" StartTime=now >/dev/null 2>&1 || true
    if [ "$(state_of c)" = finished ]; then break; fi
    sleep 1
  done
  until_state c finished 5
  same "a machine lost: the digest" "$wanted" "$(digest c)"
  same "a machine lost: starts of the job, which Slurm did not end (--no-kill)" 1 "$(grep -c '^starting' c/job/"$job".log)"
  echo "node n$lost lost: $(grep -hE '^(attempt|error|warning: n)' c/job/*.log | head -n 3 | tr '\n' ';')"
  ip -n "$id-sw" link set "v$lost" up
fi

if asked cancel; then
  succeeds "submit, and cancel" submit --time 5 "${keys[@]}" "${slow[@]}" run.dir=d
  until [ "$(done_steps d)" -ge 3 ] 2>/dev/null; do sleep 0.5; done
  run submit --time 5 "${keys[@]}" run.dir=d
  expect "a second submission is refused with 73" test "$code" -eq 73
  succeeds "cancel" slurm "$binary" cancel d
  until_state d stopped 30
  expect "cancel: saved first" grep -q 'stopped on request after step' d/log.txt
  run submit --time 5 --option --partition=nowhere "${keys[@]}" run.dir=e
  expect "a refusal of Slurm: exit 64" test "$code" -eq 64
  expect "a refusal of Slurm: its words" grep -qiE '^error: Slurm refuses the job: .*partition' err
  echo "cancel: saved after step $(done_steps d)"
fi
# Slurm's own commands, which end all processes of the job at once.
if asked scancel; then
  succeeds "submit, and scancel" submit --time 5 "${keys[@]}" "${slow[@]}" run.dir=f
  job=$(sed -n 's/^job //p' out)
  until [ "$(done_steps f)" -ge 3 ] 2>/dev/null; do sleep 0.2; done
  slurm scancel "$job"
  until_state f stopped 30
  expect "scancel: saved first" grep -q 'stopped on request after step' f/log.txt
  expect "scancel: no other attempt" bash -c '! grep -q "^attempt" f/job/*.log'
  echo "scancel: saved after step $(done_steps f): $(grep -hE '^(attempt|error|warning|the job)' f/job/*.log | head -n 5 | cut -c 1-200 | tr '\n' ';')"
fi
if asked requeue; then
  succeeds "submit, and requeue" submit --time 5 "${keys[@]}" "${slow[@]}" run.dir=g
  job=$(sed -n 's/^job //p' out)
  until [ "$(done_steps g)" -ge 3 ] 2>/dev/null; do sleep 0.2; done
  slurm scontrol requeue "$job"
  until grep -q 'stopped on request after step' g/log.txt || [ "$SECONDS" -gt 600 ]; do sleep 0.2; done
  saved=$(done_steps g)
  expect "requeue: no other attempt" bash -c '! grep -q "^attempt" g/job/*.log'
  for _ in $(seq 120); do
    slurm scontrol update "JobId=$job" StartTime=now >/dev/null 2>&1 || true
    if [ "$(state_of g)" = finished ]; then break; fi
    sleep 1
  done
  until_state g finished 5
  expect "requeue: it went on from step $saved" grep -qE "resumed .*step-0*$saved" g/log.txt
  same "requeue: the digest" "$wanted" "$(digest g)"
  echo "requeue: saved after step $saved, digest $(digest g)"
fi
if asked sweep; then
  succeeds "submit a sweep" slurm "$binary" submit "${keys[@]}" optim.lr=1e-3,3e-3 seed=1,2 --sweep grid --time 5
  for _ in $(seq 120); do
    if [ "$(find grid -name sweep.log 2>/dev/null | wc -l)" = 4 ] && [ -z "$(slurm squeue -h)" ]; then break; fi
    sleep 0.5
  done
  succeeds "the results" lockstep sweep --collect grid
  expect "the results: four points that finished" test "$(field exit_code <grid/sweep.json | grep -cx 0)" -eq 4
  succeeds "a point by itself" lockstep train "${keys[@]}" optim.lr=1e-3 seed=2 run.dir=point
  same "a point of the array: the digest" "$(digest point)" "$(digest grid/001)"
  echo "sweep: $(grep -c . grid/sweep.csv) lines of results of 4 jobs"
fi
if asked memory; then
  # Daemons that mpirun starts by srun, and the memory holders as a step of their own: a rank is killed, Slurm ends what the attempt had
  # started, and the next one goes on from memory.
  cat >memory.sh <<SH
#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --overcommit
#SBATCH --no-kill
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
exec $binary launch --interface eth0 --restarts 3 -- train $(printf '%q ' "${keys[@]}" checkpoint.every=0 recovery.from=memory chaos.enabled=true 'chaos.faults=[{kind: kill, step: 20, rank: 1}]') run.dir=m
SH
  run slurm sbatch --parsable --output=memory.log memory.sh
  job=$(cat out)
  for _ in $(seq 300); do
    if [ -z "$(slurm squeue -h -j "$job" 2>/dev/null)" ]; then break; fi
    if [ -z "${seen:-}" ] && slurm squeue -h -s -j "$job" -o %i 2>/dev/null | grep -q . && grep -q '^rank 0: train' memory.log 2>/dev/null; then
      seen=$(slurm squeue -h -s -j "$job" -o '%i %j' | tr '\n' ';')
    fi
    sleep 0.2
  done
  cp memory.log err
  expect "memory under Slurm: from memory" grep -qE 'resumed the state in memory after step 1[89]' err
  same "memory under Slurm: the digest" "$wanted" "$(digest m)"
  same "memory under Slurm: what is left" none "$(for i in 1 2; do programs "n$i"; done | grep -E "lockstep (agent|train)" || echo none)"
  echo "memory: steps of the job: ${seen:-}; $(grep -E 'resumed' err)"
fi
finish
