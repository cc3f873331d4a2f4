#!/usr/bin/env bash
# The time of a step as `lockstep plan --time` predicts it from what `lockstep doctor --json` measures, and as it is: 24 cases on machines of
# their own (tests/fault/common.sh) whose links are limited to 100 Mb/s and 1 Gb/s, and in eight of them 2 ms longer each way, by a relay.
# Within 20% (median) and 40% (worst). Usage: time_test.sh LOCKSTEP MPIRUN RELAY
# shellcheck source=tests/fault/common.sh
. "$(dirname "$0")/common.sh" "${@:1:2}"
relay=$3
nodes_up
# Each machine's line to the bridge gets a relay between, for frames of both directions.
delay() { # MILLISECONDS
  for i in 1 2 3 4; do
    ip -n "$id-sw" link set "v$i" nomaster
    ip -n "$id-sw" link add "d$i" type veth peer name "e$i"
    ip -n "$id-sw" link set "e$i" master br0 up
    ip -n "$id-sw" link set "d$i" up
    ip netns exec "$id-sw" "$relay" "v$i" "d$i" "$1" &
    relays+=($!)
  done
}
relays=()
undelay() {
  kill "${relays[@]}"
  wait "${relays[@]}" 2>/dev/null || true
  for i in 1 2 3 4; do
    ip -n "$id-sw" link del "d$i"
    ip -n "$id-sw" link set "v$i" master br0
  done
  relays=()
}
make_inputs
limit() { # MBIT
  for i in 1 2 3 4; do
    tc -n "$id-sw" qdisc replace dev "v$i" root tbf rate "$1mbit" burst 128kb latency 400ms
    tc -n "$id-n$i" qdisc replace dev eth0 root tbf rate "$1mbit" burst 128kb latency 400ms
  done
}
job() { # MACHINES RANKS-OF-EACH arguments...
  for i in $(seq "$1"); do echo "n$i slots=$2"; done >hostfile
  on n1 env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_mpi_yield_when_idle=1 \
    OMPI_MCA_hwloc_base_binding_policy=none "$mpirun_program" --mca plm_rsh_agent "$work/remote" --mca btl_tcp_if_include eth0 \
    --mca oob_tcp_if_include eth0 --map-by slot --hostfile "$work/hostfile" -n "$(($1 * $2))" "$binary" "${@:3}"
}
number() { grep -o "\"$1\":[0-9.]*" | cut -d : -f 2; }
model=(model.layers=6 model.heads=6 model.bias=false data.context=64 compute.threads=1)
for rate in 100 1000; do
  limit "$rate"
  width=192
  if [ "$rate" -eq 1000 ]; then width=384; fi
  for layout in "4 2 0" "4 1 0" "2 2 2"; do
    read -r machines ranks delay <<<"$layout"
    if [ "$delay" -gt 0 ]; then delay "$delay"; fi
    succeeds "doctor on $machines x $ranks at $rate Mb/s" job "$machines" "$ranks" doctor --json
    cp out health
    for level in none optimizer gradients parameters; do
      case="$machines x $ranks ranks, $rate Mb/s, $delay ms more, level $level"
      keys=(text.yaml "${model[@]}" model.width="$width" batch.global="$((machines * ranks * 2))" batch.micro=2 sharding.level="$level")
      succeeds "$case" job "$machines" "$ranks" bench "${keys[@]}" --warmup 1 --steps 4
      measured=$(tail -n 1 out | number ms)
      succeeds "plan of $case" lockstep plan "${keys[@]}" --ranks "$((machines * ranks))" --machine-ranks "$ranks" --time --health health --json
      planned=$(grep "\"level\":\"$level\"" out | number step_ms)
      awk -v m="$measured" -v p="$planned" -v c="$case" \
        'BEGIN { e = (p - m) / m; printf "%s: measured %.0f ms, planned %.0f ms\n", c, m, p; print (e < 0 ? -e : e) >>"errors" }'
    done
    if [ "$delay" -gt 0 ]; then undelay; fi
  done
done
sort -n errors >sorted
middle=$(awk '{ e[NR] = $1 } END { print (e[int((NR + 1) / 2)] + e[int(NR / 2) + 1]) / 2 }' sorted)
worst=$(tail -n 1 sorted)
echo "the planned time is off by $middle (median) and $worst (worst) of $(wc -l <sorted) cases"
expect "median" awk -v e="$middle" 'BEGIN { exit !(e <= 0.2) }'
expect "worst" awk -v e="$worst" 'BEGIN { exit !(e <= 0.4) }'
finish
