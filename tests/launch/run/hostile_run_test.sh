#!/usr/bin/env bash
# Run directories that somebody else may have written: what reads them neither waits for a FIFO nor reads a device without end, signals no
# process that is not the run's, hands nothing to a scheduler but a job's number, and follows no link.
# Usage: hostile_run_test.sh LOCKSTEP [MPIRUN]
# shellcheck source=tests/launch/run/common.sh
. "$(dirname "$0")/common.sh" "$@"
export ASAN_OPTIONS=$no_leak_check # of ranks that it launches
make_inputs
succeeds "a run" lockstep train text.yaml train.steps=4 checkpoint.every=2
succeeds "a sweep" lockstep sweep text.yaml seed=1,2 train.steps=2 --dir sweep
bounded() { timeout 120 "$binary" "$@"; } # 124: it hung

# What is no regular file is refused, or counts as absent.
for file in config.yaml metrics.jsonl log.txt; do
  for kind in fifo zero; do
    rm -rf odd && cp -r run odd && rm odd/$file
    case $kind in
      fifo) mkfifo odd/$file ;;
      zero) ln -s /dev/zero odd/$file ;;
    esac
    case $file in
      log.txt) refuses "logs: $kind" 65 'odd/log.txt: is not a file' bounded logs odd ;;
      *)
        refuses "status: $kind as $file" 65 "odd/$file: is not a file" bounded status odd
        refuses "top: $kind as $file" 65 "odd/$file: is not a file" bounded top odd --once ;;
    esac
  done
done
for file in lock failure.json ranks.jsonl; do
  rm -rf odd && cp -r run odd && rm -f odd/$file && mkfifo odd/$file
  succeeds "status: a FIFO as $file" bounded status odd
done
for kind in fifo zero; do
  rm -f sweep/001/metrics.jsonl
  if [ $kind = fifo ]; then mkfifo sweep/001/metrics.jsonl; else ln -s /dev/zero sweep/001/metrics.jsonl; fi
  refuses "sweep --collect: $kind" 65 'sweep/001/metrics.jsonl: is not a file' bounded sweep --collect sweep
done
rm sweep/001/metrics.jsonl
truncate -s 100M sweep/001/metrics.jsonl
refuses "sweep --collect: a line without end" 65 'sweep/001/metrics.jsonl: has a line of more than [0-9]+ bytes' bounded sweep --collect sweep

# cancel signals the run's own processes alone.
sleep 1000 &
victim=$!
trap 'kill $victim ${holder:-} 2>/dev/null; rm -rf "$work"' EXIT
started=$(sed -E 's/.*\) //' /proc/$victim/stat | cut -d' ' -f20)
plant() { printf '%s\n' "$1" >planted/ranks.jsonl; }
cp -r run planted
plant "{\"launcher\":$victim,\"host\":\"$(hostname)\",\"attempt\":1}"
refuses "another program as launcher" 65 "planted/ranks.jsonl: names process $victim, which runs .*; no signal was sent" lockstep cancel planted
plant "{\"launcher\":$victim,\"started\":$started,\"host\":\"$(hostname)\",\"attempt\":1}"
refuses "its start time does not help" 65 "planted/ranks.jsonl: names process $victim, which runs .*; no signal was sent" lockstep cancel planted
for odd in '"abc"' -1 0 1 1.5 4294967297 null; do
  plant "{\"launcher\":$odd,\"host\":\"$(hostname)\",\"attempt\":1}"
  run lockstep cancel planted
  expect "launcher $odd: refused" test "$code" -eq 65 -o "$code" -eq 64
done
rm planted/ranks.jsonl
printf '{"pid":%s,"host":"%s","since":"now"}\n' $victim "$(hostname)" >planted/lock
(flock 9 && exec sleep 1000) 9<>planted/lock &
holder=$!
until ! flock --nonblock planted/lock true; do sleep 0.02; done
refuses "another process as holder of the lock" 65 "planted/lock: names process $victim, which does not have it open; no signal was sent" \
  lockstep cancel planted
kill $holder
expect "nobody was signalled" kill -0 $victim
# This program, but of another run.
"$binary" train text.yaml train.steps=100000 run.dir=other >/dev/null 2>&1 &
pid=$!
until_step other 2
started=$(sed -E 's/.*\) //' /proc/$pid/stat | cut -d' ' -f20)
plant "{\"launcher\":$pid,\"started\":$((started + 1)),\"host\":\"$(hostname)\",\"attempt\":1}"
refuses "another start time" 65 "planted/ranks.jsonl: names process $pid, which began at another time" lockstep cancel planted
plant "{\"launcher\":$pid,\"started\":$started,\"host\":\"$(hostname)\",\"attempt\":1}"
refuses "the process of another run" 65 "planted/ranks.jsonl: names process $pid, which does not have the run directory open" lockstep cancel planted
succeeds "its own" lockstep cancel other
ended
same "its own: saved" 75 "$code"
same "its own: the process is named" "asked process $pid to save and end" "$(cat out)"

# A scheduler gets job numbers alone.
mkdir -p bin
for program in squeue scancel qstat qdel; do
  cat >bin/$program <<SH
#!/bin/bash
echo "$program \$*" >>"$work/asked"
case $program in squeue) echo 'PENDING|Resources|1:00' ;; qstat) echo '    job_state = Q' ;; esac
SH
done
chmod +x bin/*
export PATH=$work/bin:$PATH
mkdir planted/job
rm planted/ranks.jsonl
echo slurm >planted/job/scheduler
for id in --user=root '-u root' '1 2' '*' '1;rm' 12a _3 '3[' ; do
  printf '%s\n' "$id" >planted/job/job
  for command in status cancel; do
    refuses "$command of job $id" 65 ".*planted/job/job: '.*' is no job's number" lockstep $command planted
  done
done
if [ -e asked ]; then problem "a scheduler was asked: $(cat asked)"; fi
for id in 12 12_3 '12[]' 7.server.example-1; do
  printf '%s\n' "$id" >planted/job/job
  succeeds "cancel of job $id" lockstep cancel planted
  expect "cancel of job $id: the scheduler is asked" grep -qFx "scancel $id" asked
done
echo pbs >planted/job/scheduler
rm -f planted/job/cancelled
echo precious >precious
ln -s ../../precious planted/job/cancelled
refuses "a link in place of the mark" 73 'cannot write .*/planted/job/cancelled: a symbolic link is in its place' lockstep cancel planted
same "a link in place of the mark: its target" precious "$(cat precious)"
if grep -q qdel asked; then problem "a link in place of the mark: the job was cancelled all the same"; fi
rm planted/job/cancelled
succeeds "without the link" lockstep cancel planted
expect "without the link: the mark" test -f planted/job/cancelled

# A line break in a name would add lines to the batch script.
for scheduler in slurm pbs; do
  submit=(lockstep submit text.yaml --scheduler $scheduler --dry-run)
  refuses "$scheduler: a line break in run.dir" 64 "submit: the folder of the job's files '.*a\\\\n#SBATCH --uid=0.*' holds a line break" \
    "${submit[@]}" "run.dir=\"a\n#SBATCH --uid=0\""
  refuses "$scheduler: in --sweep" 64 "submit: the folder of the job's files .* holds a line break" "${submit[@]}" seed=1,2 --sweep $'a\ncurl evil'
  refuses "$scheduler: in an option" 64 'submit: --option .* holds a line break' "${submit[@]}" --option $'--partition=x\nrm -rf ~'
  refuses "$scheduler: a point's bad value" 78 'point 001 \(optim.lr=abc\): .*optim.lr: expected a number' \
    "${submit[@]}" optim.lr=0.1,abc --sweep points
  refuses "$scheduler: a point's model" 78 'point 001 \(model.heads=5\): .*heads' "${submit[@]}" model.heads=2,5 --sweep points
  refuses "$scheduler: the model of a run" 78 '.*heads' "${submit[@]}" model.heads=5
  succeeds "$scheduler: what is right" "${submit[@]}" model.heads=2,4 --sweep points
done
refuses "sweep: a point's model" 78 'point 001 \(model.heads=5\): .*heads' lockstep sweep text.yaml model.heads=2,5 --dir points
if [ -e points ]; then problem "points: something was created before it was refused"; fi

finish
