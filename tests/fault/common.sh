# Machines of their own on one host, for tests of what happens across a network: network namespaces n1 to n4, joined by a bridge in a
# namespace of its own. Sourced as: common.sh LOCKSTEP MPIRUN; needs root. Ends with 77, and the reason, where that cannot be had.
# shellcheck shell=bash
# shellcheck source=tests/launch/run/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/../launch/run/common.sh" "$@"

skip() { echo "skipped: $*" && exit 77; }

id=lockstep-$$
nodes_down() {
  for i in 1 2 3 4; do
    # shellcheck disable=SC2046  # numbers
    kill -KILL $(ip netns pids "$id-n$i" 2>/dev/null) 2>/dev/null || true
    ip netns del "$id-n$i" 2>/dev/null || true
    rm -rf "/etc/netns/$id-n$i"
  done
  # shellcheck disable=SC2046  # numbers
  kill -KILL $(ip netns pids "$id-sw" 2>/dev/null) 2>/dev/null || true
  ip netns del "$id-sw" 2>/dev/null || true
}
nodes_up() {
  if [ "$(id -u)" -ne 0 ]; then skip "network namespaces need root"; fi
  for program in ip tc nft nsenter unshare; do
    command -v "$program" >/dev/null || skip "$program is not installed (packages iproute2, nftables, util-linux)"
  done
  ip netns add "$id-sw" 2>/dev/null || skip "this system makes no network namespaces"
  trap 'nodes_down; rm -rf "$work"' EXIT
  # To enter one, ip and unshare change how mounts of / propagate, which fails where / is no mount point.
  { ip -n "$id-sw" link show && unshare --mount true; } >probe 2>&1 ||
    skip "network namespaces cannot be entered here (is / a mount point? a chroot and some containers lack one): $(tail -n 1 probe)"
  ip -n "$id-sw" link add br0 type bridge
  ip -n "$id-sw" link set br0 up
  for i in 1 2 3 4; do
    ip netns add "$id-n$i"
    ip -n "$id-sw" link add "v$i" type veth peer name eth0 netns "$id-n$i"
    ip -n "$id-sw" link set "v$i" master br0 up
    ip -n "$id-n$i" addr add "10.77.0.$i/24" dev eth0
    ip -n "$id-n$i" link set eth0 up
    ip -n "$id-n$i" link set lo up
    echo "n$i slots=1" >>hostfile
    echo "10.77.0.$i n$i" >>hosts
  done
  echo "127.0.0.1 localhost" >>hosts
  cat >enter <<SH
#!/bin/bash
host=\$1
shift
exec nsenter --net=/run/netns/$id-\$host unshare --uts --mount bash -c 'hostname "\$0"; mount --bind $work/hosts /etc/hosts; exec bash -c "\$*"' "\$host" "\$@"
SH
  # What stands for ssh: joins its arguments as ssh does, and reaches only what the network reaches. A refused connection is an answer.
  cat >remote <<SH
#!/bin/bash
while [[ \$1 == -* ]]; do shift; done
host=\$1
shift
timeout 2 bash -c "exec 3<>/dev/tcp/10.77.0.\${host#n}/9" 2>/dev/null
if [ \$? -eq 124 ]; then echo "ssh: connect to host \$host port 22: Connection timed out" >&2 && exit 255; fi
exec $work/enter "\$host" "\$@"
SH
  chmod +x enter remote
}
on() { "$work/enter" "$1" "$(printf '%q ' "${@:2}")"; } # NODE command...
processes() { ip netns pids "$id-$1"; }                   # NODE
programs() { # NODE: their command lines
  local p
  for p in $(processes "$1"); do { tr '\0' ' ' <"/proc/$p/cmdline" && echo; } 2>/dev/null; done | cut -c 1-100
}
# rank_on NODE: the process of the rank that trains there, not its agent
rank_on() {
  local p
  for p in $(processes "$1"); do
    if tr '\0' ' ' 2>/dev/null <"/proc/$p/cmdline" | grep -qE '^[^ ]*lockstep train '; then echo "$p"; fi
  done
}
