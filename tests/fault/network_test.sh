#!/usr/bin/env bash
# Failures across a network, on four machines (tests/fault/common.sh) with one rank each: the verdict, the seconds until it, the exit
# code, what is left running, and that the run comes back on the machines that are left with the bits of an undisturbed one.
# Usage: network_test.sh LOCKSTEP MPIRUN [CASE...]
# shellcheck disable=SC2317  # disturbances are called by name
# shellcheck source=tests/fault/common.sh
. "$(dirname "$0")/common.sh" "${@:1:2}"
cases=("${@:3}")
nodes_up
make_inputs
steps=80
keys=(text.yaml "train.steps=$steps" checkpoint.every=5 launch.silence=4)
launch() { on n1 env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "$binary" launch --hostfile "$work/hostfile" --interface eth0 --remote-shell "$work/remote" "$@"; }

succeeds "undisturbed" lockstep train "${keys[@]}" run.dir=plain
wanted=$(digest plain)

heal() {
  for i in 1 2 3 4; do
    ip -n "$id-sw" link set "v$i" up
    ip netns exec "$id-n$i" nft flush ruleset
    tc -n "$id-sw" qdisc del dev "v$i" root 2>/dev/null || true
    tc -n "$id-n$i" qdisc del dev eth0 root 2>/dev/null || true
  done
}
# disturb NAME INJECT SECONDS CODE 'VERDICT' [RESTARTS]: INJECT is called when some steps are done. The verdict is due within SECONDS
# of it; CODE is the exit code without restarts. Then the same with restarts, to the digest of the undisturbed run.
disturb() {
  local name=$1 inject=$2 limit=$3 wanted_code=$4 verdict=$5 restarts pid begun took left
  if [ "${#cases[@]}" -gt 0 ] && [[ " ${cases[*]} " != *" $inject "* ]]; then return; fi
  for restarts in 0 2; do
    rm -rf run
    launch --restarts "$restarts" -- train "${keys[@]}" run.dir=run >out 2>err &
    pid=$!
    until_step run 12
    begun=$(seconds)
    "$inject"
    took="" code=0
    while kill -0 "$pid" 2>/dev/null; do
      if [ -z "$took" ] && grep -qE "^(error|warning): .*($verdict)" err; then
        took=$(since "$begun")
        if [ "$restarts" -eq 0 ]; then # nothing is left 3 s after the verdict, on machines that can be reached
          sleep 3
          left=$(for i in 1 2 3 4; do if [ "$inject$i" != link_cut3 ]; then programs "n$i"; fi; done)
          same "$name: processes left 3 s after the verdict" "none" "${left:-none}"
        fi
      fi
      sleep 0.05
    done
    wait "$pid" || code=$?
    if [ -z "$took" ] && grep -qE "^(error|warning): .*($verdict)" err; then took=$(since "$begun"); fi
    expect "$name: a verdict like $verdict" test -n "$took"
    expect "$name: the verdict after ${took:-?} s, $limit at most" awk -v t="${took:-99}" -v l="$limit" 'BEGIN { exit !(t <= l) }'
    if [ "$restarts" -eq 0 ]; then
      expect "$name: exit $wanted_code" test "$code" -eq "$wanted_code"
      if [ "$wanted_code" -ne 0 ]; then expect "$name: failure.json" grep -q "\"exit_code\":$wanted_code" run/failure.json; fi
      sleep "$([ "$inject" = link_cut ] && echo 5 || echo 0)"
      left=$(for i in 1 2 3 4; do programs "n$i"; done)
      same "$name: processes left at the end" "none" "${left:-none}"
      echo "$name: verdict after $took s, exit $code: $(grep -E "^(error|warning): .*($verdict)" err | tail -n 1 | cut -c 1-220)"
    else
      expect "$name: comes back" test "$code" -eq 0
      same "$name: the digest after the restart" "$wanted" "$(digest run)"
      echo "$name: came back as: $(grep -E '^attempt' err | tail -n 1)"
    fi
    heal
    sleep 0.5
  done
}
# A disturbance that the run must survive by itself.
endure() { # NAME INJECT 'WORDS'
  if [ "${#cases[@]}" -gt 0 ] && [[ " ${cases[*]} " != *" $2 "* ]]; then return; fi
  rm -rf run
  launch -- train "${keys[@]}" run.dir=run >out 2>err &
  local pid=$!
  until_step run 12
  "$2"
  code=0
  wait "$pid" || code=$?
  expect "$1: goes on" test "$code" -eq 0
  expect "$1: says so" grep -qE "$3" err
  same "$1: the digest" "$wanted" "$(digest run)"
  echo "$1: $(grep -E "$3" err | head -n 1 | cut -c 1-220)"
  heal
}

killed() { kill -KILL "$(rank_on n3)"; }
stopped() { kill -STOP "$(rank_on n3)"; }
link_cut() { ip -n "$id-sw" link set v3 down; }
# Nothing arrives at n3 any more; what it sends does.
one_way() { ip netns exec "$id-n3" nft 'add table inet t; add chain inet t i { type filter hook input priority 0; }; add rule inet t i iifname "eth0" drop'; }
# shellcheck disable=SC2046  # numbers
node_killed() { kill -KILL $(processes n3); }
short_cut() { link_cut && sleep 1 && ip -n "$id-sw" link set v3 up; }
slow_link() { tc -n "$id-sw" qdisc add dev v3 root tbf rate 20mbit burst 32kb latency 400ms && tc -n "$id-n3" qdisc add dev eth0 root tbf rate 20mbit burst 32kb latency 400ms; }

# What is no agent of this job, on the launcher's port: bytes, a wrong secret, half a message that never ends.
hostile() {
  local address port
  address=$(tr '\0' '\n' <"/proc/$(ps -o ppid= -p "$(rank_on n2)" | tr -d ' ')/environ" | sed -n 's/^LOCKSTEP_CONTROL=tcp://p')
  port=${address##*:}
  on n2 bash -c "exec 3<>/dev/tcp/n1/$port && head -c 5000 /dev/urandom >&3; exec 4<>/dev/tcp/n1/$port && echo '{\"type\":\"hello\",\"secret\":\"0\",\"rank\":1,\"size\":4}' >&4; exec 5<>/dev/tcp/n1/$port && printf '{\"type\":' >&5; sleep 1"
}
endure "hostile peers" hostile 'dropped a connection from 10.77.0.2 to the control port: (it sent|it does not know)'
disturb "rank killed" killed 1 69 'rank 2 on n3 .*was killed by SIGKILL'
disturb "rank stopped" stopped 6 69 'rank 2 on n3 .*has been stopped for'
disturb "link cut" link_cut 6 69 'n3 .rank 2. does not answer'
disturb "one-way loss" one_way 6 69 'n3 .rank 2. does not answer|rank 2 on n3'
disturb "node killed" node_killed 2 69 'n3 .rank 2. closed the connection|rank 2 on n3'
endure "link cut for 1 s" short_cut 'train 80/80'
endure "slow link" slow_link 'warning: exchanges between the machines take [0-9]+ of the [0-9]+ ms of a step.*; the slowest is from rank ([0-9]+ on n[0-9]+ to rank 2 on n3|2 on n3 to rank [0-9]+ on n[0-9]+), [0-9.]+ MB/s'

if [ "${#cases[@]}" -eq 0 ] || [[ " ${cases[*]} " == *" grows "* ]]; then
  # A machine that was lost answers again while the others train, slowly enough that it is asked meanwhile.
  rm -rf run
  launch --restarts 1 -- train "${keys[@]}" train.steps=200 launch.grow=true chaos.enabled=true \
    'chaos.faults=[{kind: slow, step: 1, rank: 0, seconds: 0.1, attempt: 2}]' run.dir=run >out 2>err &
  pid=$!
  until_step run 12
  link_cut
  until grep -q '^attempt 2: 3 ranks' err || ! kill -0 "$pid" 2>/dev/null; do sleep 0.1; done
  until_step run 30
  heal
  code=0
  wait "$pid" || code=$?
  expect "grows: exit 0" test "$code" -eq 0
  expect "grows: says so" grep -q '^n3 answers again: the ranks save, and go on with it' err
  expect "grows: on all machines" grep -q '^attempt 3: 4 ranks on n1:1,n2:1,n3:1,n4:1' err
  same "grows: each step once" 200 "$(grep -c '"loss"' run/metrics.jsonl)"
  succeeds "undisturbed, as long" lockstep train "${keys[@]}" train.steps=200 run.dir=long
  same "grows: the digest" "$(digest long)" "$(digest run)"
fi

if [ "${#cases[@]}" -eq 0 ] || [[ " ${cases[*]} " == *" miscomputes "* ]]; then
  # A machine whose processor computes wrong gradients: the others find it, and go on without it from before.
  rm -rf run
  run launch --restarts 2 -- train "${keys[@]}" verify.recompute=4 chaos.enabled=true \
    'chaos.faults=[{kind: gradients, step: 18, rank: 2, attempt: 1}]' run.dir=run
  expect "miscomputes: exit 0" test "$code" -eq 0
  expect "miscomputes: named" grep -qE 'rank 2 on n3.* computes other gradients than the other ranks, in .*, first in element' err
  expect "miscomputes: left out" grep -q '^attempt 2: 3 ranks on n1:1,n2:1,n4:1, from the newest valid checkpoint at or before step 16' err
  same "miscomputes: the digest" "$wanted" "$(digest run)"
fi

if [ "${#cases[@]}" -eq 0 ] || [[ " ${cases[*]} " == *" never "* ]]; then
  # A machine whose login hangs.
  sed 's|^exec |if [ "$host" = n3 ]; then sleep 60; fi; exec |' remote >remote_hangs
  chmod +x remote_hangs
  rm -rf run
  run on n1 env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "$binary" launch --hostfile "$work/hostfile" --interface eth0 --remote-shell "$work/remote_hangs" --start-within 4 -- train "${keys[@]}" run.dir=run
  expect "a rank that never starts: exit 69" test "$code" -eq 69
  expect "a rank that never starts: named" grep -qE '^error: ranks? .*2.* not started within 4 s: no answer from n3' err
  echo "a rank that never starts: $(grep '^error' err)"
fi
if [ "${#cases[@]}" -eq 0 ] || [[ " ${cases[*]} " == *" program "* ]]; then
  # A machine whose program is another version, or not there: another file lies over it on n3.
  version=$("$binary" --version | sed 's/.* //')
  sed "s/${version//./\\.}/9${version:1}/g" "$binary" >other
  : >nothing
  chmod +x other
  for file in other nothing; do
    sed "s|^exec |if [ \"\$host\" = n3 ]; then set -- \"mount --bind $work/$file $binary; \$*\"; fi; exec |" remote >remote_$file
    chmod +x remote_$file
    rm -rf run
    run on n1 env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "$binary" launch --hostfile "$work/hostfile" --interface eth0 --remote-shell "$work/remote_$file" --start-within 20 -- train "${keys[@]}" run.dir=run
    echo "program on n3 is $file: exit $code, $(grep '^error' err)"
    if [ $file = other ]; then
      expect "another version: exit 76" test "$code" -eq 76
      expect "another version: named" grep -qE "^error: rank 2 on n3 runs lockstep 9${version:1}, and the launcher on n1 $version" err
    else
      expect "no program: exit 69" test "$code" -eq 69
      expect "no program: said" grep -qE '^error: .*does not have this program' err
    fi
  done
fi
if [ "${#cases[@]}" -eq 0 ] || [[ " ${cases[*]} " == *" launcher "* ]]; then
  rm -rf run
  launch -- train "${keys[@]}" train.steps=1000000 schedule.steps=80 run.dir=run >out 2>err &
  pid=$!
  until_step run 12
  for p in $(processes n1); do if tr '\0' ' ' <"/proc/$p/cmdline" | grep -q 'lockstep launch'; then kill -KILL "$p"; fi; done
  sleep 1
  same "launcher killed: ranks left after 1 s" "none" "$(for i in 1 2 3 4; do rank_on "n$i"; done | grep . || echo none)"
  wait "$pid" || true
  echo "launcher killed: no rank is left after 1 s"
fi
finish
