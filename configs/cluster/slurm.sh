#!/bin/bash
#SBATCH --job-name=@name@
#SBATCH --nodes=@nodes@
#SBATCH --ntasks-per-node=@ranks_per_node@
#SBATCH --cpus-per-task=@cpus_per_rank@
#SBATCH --time=@time@
#SBATCH --output=@folder@/%j.log
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --no-kill
#SBATCH --signal=B:USR1@@@warning@
@options@
# Written by `lockstep submit`. @warning@ s before the time limit Slurm sends SIGUSR1: the run saves, ends with 75, and goes back into the
# queue. It is the same run when it comes again: run.resume=auto.
cd @directory@ || exit 1
@setup@
job=${SLURM_JOB_ID:-0}
time_is_up="" waits=0
on_signal() { # NAME
  waits=$((waits + 1))
  kill "-$1" "$pid" 2>/dev/null
}
trap 'time_is_up=yes; on_signal USR1' USR1
trap 'on_signal TERM' TERM
@command@ &
pid=$!
code=0
wait "$pid" || code=$?
while [ "$code" -gt 128 ] && [ "$waits" -gt 0 ]; do # a signal ended the wait, not the run
  waits=$((waits - 1)) code=0
  wait "$pid" || code=$?
done
if [ "$code" -eq 75 ] && [ -n "$time_is_up" ]; then
  echo "time limit: saved, and back into the queue"
  scontrol requeue "$job" && sleep 60
fi
exit "$code"
