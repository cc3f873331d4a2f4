#!/bin/bash
#PBS -N @name@
#PBS -l select=@nodes@:ncpus=@cpus_per_node@:mpiprocs=@ranks_per_node@@gpus@
#PBS -l walltime=@time@
#PBS -j oe
#PBS -o @folder@/pbs.log
#PBS -r y
@options@
# Written by `lockstep submit`. @warning@ s before the time limit the run saves and ends with 75; then this script submits itself again.
# It is the same run when it comes again: run.resume=auto.
cd @directory@ || exit 1
@setup@
point=${PBS_ARRAY_INDEX:-} # of a sweep
code=0
@command@ || code=$?
if [ "$code" -eq 75 ] && [ ! -e @folder@/cancelled ]; then
  echo "time limit: saved, and submitted again"
  if [ -n "$point" ]; then # this point by itself, not the whole array
    sed -e '/^#PBS -J /d' -e "s/^point=.*/point=$point/" @folder@/submit.sh >@folder@/"again_$point.sh"
    qsub @folder@/"again_$point.sh" >>@folder@/more_jobs
  else
    qsub @folder@/submit.sh >@folder@/next_job && mv @folder@/next_job @folder@/job
  fi
fi
exit "$code"
