#!/usr/bin/env bash
# recovery.from: memory on four machines (tests/fault/common.sh) with one rank each: KILLS processes are killed at random, of ranks, agents,
# mpirun, memory holders and whole machines, also while the run comes back, at sharding levels none, optimizer, parameters and 2x2. The
# digest is that of an undisturbed run, a step at most is repeated after the death of a process, nothing is read from disk where the state
# is in memory, nothing is left. Prints the seconds from each verdict to the first new step. Usage: memory_test.sh LOCKSTEP MPIRUN [KILLS [SEED]]
# shellcheck source=tests/fault/common.sh
. "$(dirname "$0")/common.sh" "${@:1:2}"
kills=${3:-40} seed=${4:-${LOCKSTEP_SEED:-1}}
nodes_up
make_inputs
per_kill=6 # steps between kills, at least
steps=$((kills / 4 * 14 + 30))
keys=(text.yaml "train.steps=$steps" checkpoint.every=0 recovery.from=memory launch.silence=3 comm.deadline=20)
slow=(chaos.enabled=true 'chaos.faults=[{kind: slow, step: 1, rank: 0, seconds: 0.15, attempt: 0}]')
succeeds "undisturbed" lockstep train "${keys[@]}" recovery.from=disk run.dir=plain
wanted=$(digest plain)
launch() { on n1 env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "$binary" launch --hostfile "$work/hostfile" --interface eth0 --remote-shell "$work/remote" "$@"; }
of_node() { # NODE 'REGEXP': its processes with such command lines
  local p
  for p in $(processes "$1"); do
    if tr '\0' ' ' 2>/dev/null <"/proc/$p/cmdline" | grep -qE "$2"; then echo "$p"; fi
  done
}
left() { for i in 1 2 3 4; do programs "n$i"; done; }

mapfile -t random < <(numbers "$((kills * 4 + 8))" 32768 "$seed")
i=0 total=0
declare -A count
: >times
for level in "none 0" "optimizer 0" "parameters 0" "parameters 2"; do
  read -r name group <<<"$level"
  layout="level $name$([ "$group" = 0 ] || echo ", groups of $group")"
  rm -rf run err
  launch --restarts 100000 -- train "${keys[@]}" "${slow[@]}" "sharding.level=$name" "sharding.group=$group" run.dir=run >out 2>>err &
  pid=$!
  next=1
  for ((n = 0; n < kills / 4; ++n)); do
    until [ "$(done_steps run)" -ge "$next" ] 2>/dev/null || ! kill -0 "$pid" 2>/dev/null; do sleep 0.02; done
    if ! kill -0 "$pid" 2>/dev/null; then break; fi
    last=$(done_steps run) starts=$(grep -c '^attempt' err || true)
    node=$((random[i] % 4 + 1)) other=$((random[i] % 3 + 2)) kind=$((random[i + 1] % 6)) # n1 has the launcher
    i=$((i + 2))
    comes_back=1
    case $kind in
      0 | 1) what="rank" && victim=$(rank_on "n$node") ;;
      2) what="agent" && victim=$(of_node "n$node" '^[^ ]*lockstep agent -- ') ;;
      3) what="mpirun" && victim=$(of_node n1 '^([^ ]*/)?mpirun ') ;;
      4) what="holder" && victim=$(of_node "n$node" '^[^ ]*lockstep agent --hold' | shuf -n 1) && comes_back=0 ;; # of two
      5) what="machine" && victim=$(processes "n$other") && if [ "$name" = parameters ] && [ "$group" = 0 ]; then what="rank" victim=$(rank_on "n$node"); fi ;;
    esac
    if [ "$kind" = 5 ] && [ "$name" = optimizer ]; then what="rank" victim=$(rank_on "n$node"); fi # its moments are nowhere else
    if [ -z "$victim" ]; then # it was found while it started
      n=$((n - 1))
      continue
    fi
    # shellcheck disable=SC2086  # numbers
    kill -KILL $victim 2>/dev/null || true
    echo "killed after step $last: $what, n$node or n$other" >>err
    count[$what]=$((${count[$what]:-0} + 1)) total=$((total + 1))
    next=$((last + per_kill))
    if [ "$comes_back" -eq 0 ]; then continue; fi
    until [ "$(grep -c '^attempt' err)" -gt "$starts" ] || ! kill -0 "$pid" 2>/dev/null; do sleep 0.02; done
    begun=$(seconds)
    if [ $((random[i] % 5)) -eq 0 ]; then # once more, while it comes back
      sleep "0.$((random[i + 1] % 9))"
      victim=$(rank_on "n$node")
      # shellcheck disable=SC2086  # numbers
      if [ -n "$victim" ] && kill -KILL $victim 2>/dev/null; then echo "killed: rank on n$node while it comes back" >>err && count[while it comes back]=$((${count[while it comes back]:-0} + 1)) total=$((total + 1)); fi
    fi
    until [ "$(done_steps run)" -gt "$((last + 1))" ] 2>/dev/null || ! kill -0 "$pid" 2>/dev/null; do sleep 0.02; done
    echo "$(since "$begun") $what" >>times
  done
  code=0
  wait "$pid" || code=$?
  expect "$layout: exit 0" test "$code" -eq 0
  same "$layout: the digest" "$wanted" "$(digest run)"
  same "$layout: each step once" "$steps" "$(grep -c '"loss"' run/metrics.jsonl)"
  same "$layout: starts that went on from disk" 0 "$(grep -cE '^rank 0: resumed .*/checkpoints/|starting from the beginning|going on from disk' err || true)"
  most=$(sed -nE 's/^rank 0: .*metrics.jsonl: ([0-9]+) lines? removed.*/\1/p' err | sort -n | tail -n 1)
  expect "$layout: repeats a step at most, not ${most:-0}" test "${most:-0}" -le 1
  for ((t = 0; t < 20; ++t)); do if [ -z "$(left)" ]; then break; fi; sleep 0.2; done
  same "$layout: processes left at the end" "none" "$(left | grep . || echo none)"
  if [ "$failed" -ne 0 ]; then cat err; fi
  echo "$layout: $(grep -c '^attempt' err || true) restarts, $(grep -c '^rank 0: resumed the state in memory' err || true) from memory; $(grep -E 'goodput [0-9]+%' err | tail -n 1 | sed 's/^rank 0: //')"
done
for what in "${!count[@]}"; do echo "  ${count[$what]} times killed: $what"; done | sort
sort -n times | awk '{ t[NR] = $1 } END { if (NR) printf "%d kills in all; from the next attempt to the first new step: median %.1f s, worst %.1f s\n", '"$total"', t[int((NR + 1) / 2)], t[NR] }'
worst=$(sort -n times | tail -n 1 | cut -d ' ' -f 1)
expect "the worst return takes 15 s at most, not ${worst:-?}" awk -v t="${worst:-99}" 'BEGIN { exit !(t <= 15) }'

# Where a machine takes the only copy with it, the newest checkpoint on disk is what is left, and the log says so; with copies on the next
# machine, which are made every fourth step, it is the last of these. A machine that comes back empty gets what it needs from others.
keys=(text.yaml train.steps=60 checkpoint.every=5 recovery.from=memory launch.silence=3)
succeeds "undisturbed, as long" lockstep train "${keys[@]}" recovery.from=disk run.dir=short
wanted=$(digest short)
machine_lost() { # NAME NODE KEY...
  rm -rf run err
  launch --restarts 2 -- train "${keys[@]}" "${slow[@]}" sharding.level=parameters "${@:3}" run.dir=run >out 2>err &
  pid=$!
  until_step run 18
  # shellcheck disable=SC2046  # numbers
  kill -KILL $(processes "$2")
  code=0
  wait "$pid" || code=$?
  expect "$1: exit 0" test "$code" -eq 0
  same "$1: the digest" "$wanted" "$(digest run)"
}
machine_lost "no copy" n3
expect "no copy: says so" grep -qE 'the state in memory after step [0-9]+ is not whole on the machines that are left: going on from disk' err
expect "no copy: from disk" grep -qE 'resumed .*/checkpoints/step-' err
for node in n2 n3 n4; do
  machine_lost "a copy of $node" "$node" checkpoint.every=0 recovery.mirror_every=4
  expect "a copy of $node: from it" grep -qE 'resumed the state in memory after step (16|20)$' err
done
machine_lost "a copy of every step" n3 checkpoint.every=0 recovery.mirror_every=1
expect "a copy of every step: from the last one" grep -qE 'resumed the state in memory after step (1[789]|2[0-9])$' err
finish
