#!/usr/bin/env bash
# FAULTS random faults in one run under `lockstep launch --restarts` on four machines (tests/fault/common.sh): ranks killed, crashed or
# stopped for good or for a while, links cut for a moment or until the machine is given up, slow links, machines whose processes are all
# killed, full disks. The digest at the end is that of a run without faults. Prints how many of each, and the goodput: the share of the
# time in which steps were done that count. Usage: soak_test.sh LOCKSTEP MPIRUN [FAULTS [SEED]]
# shellcheck source=tests/fault/common.sh
. "$(dirname "$0")/common.sh" "${@:1:2}"
faults=${3:-200} seed=${4:-${LOCKSTEP_SEED:-1}}
nodes_up
make_inputs
per_fault=12 # steps between faults, at least
# Each step takes 50 ms, so that the run lasts as long as there are faults to come.
steps=$((faults * 60 + 20))
silence=4 # in which ranks that are well are heard of on a busy machine, too
if [ "${LOCKSTEP_TEST_BOUNDS:-}" = 1 ]; then silence=2; fi
keys=(text.yaml "train.steps=$steps" checkpoint.every=5 "launch.silence=$silence" comm.deadline=20)
slow=(chaos.enabled=true 'chaos.faults=[{kind: slow, step: 1, rank: 0, seconds: 0.05, attempt: 0}]')
succeeds "undisturbed" lockstep train "${keys[@]}" run.dir=plain
wanted=$(digest plain)

# The checkpoints' folder is a small file system of its own, so that it can be filled.
mkdir -p run/checkpoints
mount -t tmpfs -o size=24m none run/checkpoints || skip "no file system can be mounted here"
trap 'umount "$work/run/checkpoints" 2>/dev/null || true; nodes_down; rm -rf "$work"' EXIT

begun=$(seconds)
on n1 env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "$binary" launch --restarts 100000 --hostfile "$work/hostfile" --interface eth0 --remote-shell "$work/remote" -- train "${keys[@]}" "${slow[@]}" run.dir=run >out 2>err &
pid=$!
shut() { # a link for SECONDS
  ip -n "$id-sw" link set "v$1" down && sleep "$2" && ip -n "$id-sw" link set "v$1" up
}
declare -A count
next=1 last=0
mapfile -t random < <(numbers "$((faults * 4 + 8))" 32768 "$seed")
i=0
for ((n = 0; n < faults; ++n)); do
  # Some progress between two faults: a job that always fails at the same step is given up, and rightly.
  until [ "$(done_steps run)" -ge "$next" ] 2>/dev/null || ! kill -0 "$pid" 2>/dev/null; do sleep 0.05; done
  if ! kill -0 "$pid" 2>/dev/null; then break; fi
  last=$(done_steps run)
  node=$((random[i] % 4 + 1)) other=$((random[i] % 3 + 2)) kind=$((random[i + 1] % 9)) # n1 has the launcher
  i=$((i + 2))
  victim=$(rank_on "n$node" | head -n 1)
  case $kind in
    0 | 1) what="rank killed" && kill -KILL "$victim" 2>/dev/null ;;
    2) what="rank crashed" && kill -SEGV "$victim" 2>/dev/null ;;
    3) what="rank stopped for good" && kill -STOP "$victim" 2>/dev/null ;;
    4) what="rank stopped for 0.7 s" && kill -STOP "$victim" 2>/dev/null && sleep 0.7 && kill -CONT "$victim" 2>/dev/null ;;
    5) what="link cut for 0.7 s" && shut "$other" 0.7 ;;
    6) what="link cut for $((2 * silence)) s" && shut "$other" $((2 * silence)) ;;
    7) # shellcheck disable=SC2046  # numbers
      what="machine killed" && kill -KILL $(processes "n$other") 2>/dev/null ;;
    8) what="disk full for 0.4 s" && { head -c 30M /dev/zero >run/checkpoints/.filler 2>/dev/null || true; } && sleep 0.4 && rm -f run/checkpoints/.filler ;;
  esac || what="$what (too late)"
  count[$what]=$((${count[$what]:-0} + 1))
  if [ -t 1 ]; then echo "fault $((n + 1)) after step $last: $what"; fi
  next=$((last + per_fault))
done
code=0
wait "$pid" || code=$?
took=$(since "$begun")
expect "the run ends: exit 0" test "$code" -eq 0
same "the digest after $n faults" "$wanted" "$(digest run)"
for what in "${!count[@]}"; do echo "  ${count[$what]} times: $what"; done | sort
same "faults injected before the run ended" "$faults" "$n"
useful=$(field step_ms <run/metrics.jsonl | awk '{ s += $1 } END { printf "%.1f", s / 1000 }') # of the steps that were kept
echo "$n faults, $(grep -c '^attempt' err) restarts, $steps steps in $took s, of which $useful s in steps that count: goodput $(awk -v a="$useful" -v b="$took" 'BEGIN { printf "%.0f%%", 100 * a / b }'); digest $(digest run)"
finish
