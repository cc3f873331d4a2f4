#!/usr/bin/env bash
# Random kill -9 of commands that write: imports, splits, merges, exports, sweeps, runs, launchers of runs, cancels (ranks of launched runs:
# tests/fault/soak_test.sh). The same command again completes with the content of an undisturbed one, and leaves nothing of the killed ones in its
# folder, in TMPDIR or in /dev/shm, and no process.
# Usage: kill_commands_test.sh KILLS LOCKSTEP [MPIRUN]; LOCKSTEP_SEED chooses the moments, LOCKSTEP_KINDS the kinds, such as "text launch".
# shellcheck disable=SC2317  # the commands are called by name
# With a /dev/shm of its own, where mounts are allowed: other tests kill launchers, too.
if [ -z "${OWN_SHM:-}" ] && unshare --mount mount -t tmpfs none /dev/shm 2>/dev/null; then
  OWN_SHM=1 exec unshare --mount bash -c 'mount -t tmpfs none /dev/shm; exec bash "$0" "$@"' "$0" "$@"
fi
# shellcheck source=tests/launch/run/common.sh
. "$(dirname "$0")/common.sh" "${@:2}"
kills=$1
RANDOM=${LOCKSTEP_SEED:-1}
export ASAN_OPTIONS=$no_leak_check
unset OMPI_MCA_orte_tmpdir_base OMPI_MCA_btl_vader_backing_directory

make_inputs
make_text long.txt 400000
awk '{ gsub(/["\\]/, ""); for (i = 1; i + 8 <= NF; i += 8) printf "{\"text\": \"%s %s %s %s\", \"y\": \"%s\"}\n", $i, $(i + 1), $(i + 2), $(i + 3), $(i + 4) }' long.txt >long.jsonl
numbers 120000 1000 5 | paste -d , - - - - | awk -F , 'BEGIN { print "a,b,c,y" } { print }' >long.csv
lockstep tokenizer train text.txt bpe.json --vocab-size 300 >/dev/null 2>&1
small=(text.yaml train.steps=12 checkpoint.every=3)
large=(text.yaml model.layers=4 model.width=512 model.heads=8 train.steps=0 checkpoint.every=0)
lockstep train "${large[@]}" run.dir=large >/dev/null 2>&1
lockstep train "${small[@]}" run.dir=plain >/dev/null 2>&1
lockstep data import text long.txt whole.h5 >/dev/null 2>&1

identity() { lockstep data inspect "$1" --json 2>/dev/null | grep -oE '"identity": *"[0-9a-f]+"' || echo "none of $1"; }
# Each kind of command: NAME does it, with output in the folder $place; found_NAME prints what came of it.
text() { lockstep data import text long.txt "$place/out.h5" --tokenizer bpe.json; }
found_text() { identity "$place/out.h5"; }
json() { lockstep data import json long.jsonl "$place/out.h5" --field text --label y --tokenizer bpe.json; }
found_json() { identity "$place/out.h5"; }
table() { lockstep data import csv long.csv "$place/out.h5" --target y; }
found_table() { identity "$place/out.h5"; }
split() { lockstep data split whole.h5 --into "$place/a.h5:0.5,$place/b.h5:0.5"; }
found_split() { identity "$place/a.h5" && identity "$place/b.h5"; }
merge() { lockstep data merge whole.h5 whole.h5 "$place/out.h5"; }
found_merge() { identity "$place/out.h5"; }
weights() { lockstep checkpoint export large "$place/out.safetensors"; }
found_weights() { sha256sum <"$place/out.safetensors"; }
folder() { lockstep checkpoint export large "$place/out" --to hf; }
found_folder() { (cd "$place/out" && sha256sum ./* 2>/dev/null); }
sweep() { lockstep sweep "${small[@]}" optim.lr=1e-3,3e-3 --dir "$place/grid"; }
found_sweep() { digest "$place/grid/000" && digest "$place/grid/001"; }
train() { lockstep train "${small[@]}" run.dir="$place/run" "$([ -e "$place/run/metrics.jsonl" ] && echo --resume || echo optim.lr=0.003)"; }
found_train() { digest "$place/run"; }
launch() { lockstep launch --mpirun "$mpirun_program" -n 2 -- train "${small[@]}" run.dir="$place/run" "$([ -e "$place/run/metrics.jsonl" ] && echo --resume || echo optim.lr=0.003)"; }
found_launch() { digest "$place/run"; }
kinds=(text json table split merge weights folder sweep train)
if with_mpi; then kinds+=(launch); fi
if [ -n "${LOCKSTEP_KINDS:-}" ]; then read -ra kinds <<<"$LOCKSTEP_KINDS"; fi

working() { # processes on the outputs, among them mpirun and its keeper
  local p
  for p in $(pgrep -f 'run.dir=killed/|killed/grid'); do
    if [ "$(readlink "/proc/$p/cwd")" = "$work" ]; then echo "$p"; fi
  done
}
shared() { # folders of launched runs in /dev/shm that no process has locked
  find /dev/shm -maxdepth 1 -name 'lockstep-mpi-*' -newer text.yaml -exec flock --nonblock {} echo {} \; 2>/dev/null
}
nobody_works() { [ -z "$(working)" ]; }
nothing_shared() { [ -z "$(shared)" ]; }
no_group() { [ -z "$(ps -eo pgid=,stat= | awk -v group="$1" '$1 == group && $2 !~ /^Z/')" ]; }
milliseconds() { echo $(($(date +%s%N) / 1000000)); }
place=wanted
declare -A wanted took files
for kind in "${kinds[@]}"; do
  mkdir -p "$place"
  begun=$(milliseconds)
  succeeds "$kind: undisturbed" "$kind"
  took[$kind]=$(($(milliseconds) - begun + 20))
  wanted[$kind]=$(found_"$kind")
  files[$kind]=$(find "$place" | sort | sed 's/^wanted/killed/')
  rm -rf "$place"
done

place=killed
declare -A killed
for ((n = 0; n < kills; ++n)); do
  kind=${kinds[RANDOM % ${#kinds[@]}]}
  mkdir -p "$place"
  for _ in $(seq $((1 + RANDOM % 3))); do # killed once, or while it goes on
    setsid bash -c "$(declare -f "$kind" lockstep); $(declare -p binary mpirun_program small large place); $kind" >out 2>err </dev/null &
    pid=$!
    after=$((RANDOM * took[$kind] / 32768))
    sleep "$(printf '%d.%03d' $((after / 1000)) $((after % 1000)))"
    if kill -KILL -- "-$pid" 2>/dev/null; then killed[$kind]=$((${killed[$kind]:-0} + 1)); fi
    wait "$pid" 2>/dev/null || true
    await "kill $n, $kind: all of it, with its locks" no_group "$pid"
  done
  # Points of a sweep, mpirun and its ranks end by themselves within seconds.
  case $kind in
    sweep | launch) await "kill $n, $kind: no process of the killed is left" nobody_works ;;
    *) expect "kill $n, $kind: no process of the killed is left" nobody_works ;;
  esac
  case $kind in
    split | merge | text | json | table | weights | folder) # complete outputs stay, and are not replaced
      for output in a.h5 b.h5 out.h5 out.safetensors out; do if [ -e "$place/$output" ]; then rm -rf "${place:?}/$output"; fi; done ;;
  esac
  succeeds "kill $n, $kind: again" "$kind"
  same "kill $n, $kind: what came of it" "${wanted[$kind]}" "$(found_"$kind")"
  case $kind in
    sweep | train | launch) # logs and events of earlier attempts stay
      expect "kill $n, $kind: nothing unfinished is left" test -z "$(find "$place" -name '*.tmp-*' -o -name '*.part-*' -o -name '.probe-*')" ;;
    *) same "kill $n, $kind: the files that are there" "${files[$kind]}" "$(find "$place" | sort)" ;;
  esac
  expect "kill $n, $kind: no process is left" test -z "$(working)"
  same "kill $n, $kind: what is in TMPDIR" none "$(find tmp -mindepth 1 -maxdepth 1 | grep . || echo none)"
  await "kill $n, $kind: nothing is in /dev/shm" nothing_shared # other tests start and kill launchers, too
  rm -rf "$place"
  if [ "$failed" -ne 0 ]; then break; fi
done
echo "$n rounds; killed: $(for kind in "${!killed[@]}"; do printf '%s %s, ' "$kind" "${killed[$kind]}"; done)seed ${LOCKSTEP_SEED:-1}"

# Cancels that are killed: the run goes on or saves, and ends with the same bits once it is resumed.
for ((n = 0; n < kills / 10; ++n)); do
  mkdir -p "$place"
  lockstep train "${small[@]}" run.dir=killed/run chaos.enabled=true 'chaos.faults=[{kind: slow, step: 1, rank: 0, seconds: 0.02, attempt: 0}]' >out 2>err &
  pid=$!
  until_step killed/run $((1 + RANDOM % 6))
  "$binary" cancel killed/run >/dev/null 2>&1 &
  asks=$!
  sleep "0.00$((RANDOM % 10))"
  kill -KILL "$asks" 2>/dev/null || true
  code=0
  wait "$pid" || code=$?
  expect "cancel $n: it ends, or has saved" test "$code" -eq 0 -o "$code" -eq 75
  if [ "$code" -eq 75 ]; then succeeds "cancel $n: resumed" lockstep train "${small[@]}" run.dir=killed/run --resume; fi
  same "cancel $n: the digest" "$(digest plain)" "$(digest killed/run)"
  rm -rf "$place"
done
finish
