#!/usr/bin/env bash
# The keeper, which stands between `lockstep launch` and mpirun: mpirun ends when the launcher is killed, also where it does not do what it is
# asked; its folders go too; the launcher is told how mpirun ended. mpirun is a stand-in that starts no ranks. Usage: keeper_test.sh LOCKSTEP
# shellcheck disable=SC2016  # texts for other shells
# shellcheck source=tests/launch/run/common.sh
. "$(dirname "$0")/common.sh" "$@"
export ASAN_OPTIONS=$no_leak_check
make_inputs
unset OMPI_MCA_orte_tmpdir_base OMPI_MCA_btl_vader_backing_directory

# What Open MPI 4 is told by its environment; then "$then".
cat >mpirun <<'SH'
#!/bin/bash
if [ "$1" = --version ]; then echo "mpirun (Open MPI) 4.1.4" && exit; fi
mkdir -p "$OMPI_MCA_orte_tmpdir_base/ompi.here/pid.$$"
if [ -d "$OMPI_MCA_btl_vader_backing_directory" ]; then echo >"$OMPI_MCA_btl_vader_backing_directory/segment"; fi
printf '%s\n' "$OMPI_MCA_orte_tmpdir_base" "$OMPI_MCA_btl_vader_backing_directory" >folders
eval "$then"
SH
chmod +x mpirun
started_with() { # THEN: the launcher is $pid, its keeper $keeper, mpirun $mpirun
  rm -f folders process
  then="echo \$\$ >process.tmp && mv process.tmp process; $1" "$binary" launch --mpirun "$work/mpirun" -n 2 -- train text.yaml run.dir=run >out 2>err &
  pid=$!
  until [ -s process ] || ! kill -0 "$pid" 2>/dev/null; do sleep 0.02; done
  mpirun=$(cat process)
  keeper=$(awk '/^PPid:/ { print $2 }' "/proc/$mpirun/status" 2>/dev/null) || true # it may have ended
  code=unknown
}
no_process() { ! kill -0 "$1" 2>/dev/null; }
gone() { # WHAT SECONDS PROCESS...: they end, within this time
  local begun p
  begun=$(seconds)
  for p in "${@:3}"; do await "$1: process $p is gone" no_process "$p"; done
  within "$2" "$1: its processes are gone" "$(since "$begun")"
}
killed() { # PROCESS... which are killed at once
  kill -KILL "$@"
  wait "$pid" 2>/dev/null || true
}
nothing_left() { # WHAT
  same "$1: TMPDIR" "none" "$(find tmp -mindepth 1 | grep . || echo none)"
  while read -r folder; do expect "$1: $folder" test ! -e "$folder"; done <folders
}

started_with 'trap "" TERM INT HUP; exec sleep 1000'
expect "a folder for its session, in TMPDIR" grep -q "^$work/tmp/lockstep-mpi-" folders
if [ -w /dev/shm ]; then expect "and one for what ranks share" grep -q '^/dev/shm/lockstep-mpi-' folders; fi
expect "the keeper is between them" test "$(awk '/^PPid:/ { print $2 }' "/proc/$keeper/status")" -eq "$pid"
kill -TERM "$keeper" && kill -INT "$keeper" && kill -HUP "$keeper"
sleep 0.3
expect "the keeper goes on at signals" kill -0 "$keeper" "$mpirun"
killed "$pid"
gone "it ignores all signals" 8 "$mpirun" "$keeper"
nothing_left "it ignores all signals"

started_with 'trap "echo asked >>asks" INT; for _ in $(seq 200); do sleep 0.1; done'
killed "$pid"
gone "it ends at no request" 8 "$mpirun" "$keeper"
same "it ends at no request: requests" 2 "$(wc -l <asks)"
nothing_left "it ends at no request"

started_with 'trap "exit 1" INT; for _ in $(seq 200); do sleep 0.1; done'
killed "$pid"
gone "it ends at the first request" 2 "$mpirun" "$keeper"
nothing_left "it ends at the first request"

# The keeper killed alone, and with the launcher, whose next start removes the folders.
started_with 'exec sleep 1000'
kill -KILL "$keeper"
ended
same "the keeper is killed: exit 69" 69 "$code"
expect "the keeper is killed: said" grep -q '^error: mpirun was killed by SIGKILL before all ranks were started' err
gone "the keeper is killed" 2 "$mpirun"
nothing_left "the keeper is killed"
started_with 'exec sleep 1000'
cp folders before
kill -STOP "$keeper" # or it may see the launcher's end, and remove the folders, before its own
killed "$pid" "$keeper"
gone "both are killed" 2 "$mpirun"
started_with 'exit 7'
ended
expect "both are killed: the next start says what it removed" grep -q "^removed $(head -n 1 before), left by a process that was killed" err
cat before >>folders
nothing_left "both are killed, and the next start"

# How mpirun ended.
expect "exit 7: said" grep -q '^error: mpirun ended with exit code 7 before all ranks were started' err
started_with 'kill -SEGV $$'
ended
expect "SIGSEGV: said" grep -q '^error: mpirun was killed by SIGSEGV before all ranks were started' err
nothing_left "SIGSEGV"

run env TMPDIR=tmp then='exit 7' "$binary" launch --mpirun "$work/mpirun" -n 2 -- train text.yaml run.dir=run
expect "a relative TMPDIR" grep -q "^$work/tmp/lockstep-mpi-" folders
nothing_left "a relative TMPDIR"
run env OMPI_MCA_orte_tmpdir_base="$work/own" then='exit 7' "$binary" launch --mpirun "$work/mpirun" -n 2 -- train text.yaml run.dir=run
same "a folder of the user's own is kept to" "$work/own" "$(head -n 1 folders)"
refuses "keeper by hand" 64 '.lockstep agent. is started by' lockstep agent --keep
finish
