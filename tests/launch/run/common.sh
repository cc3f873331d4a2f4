# What the tests of the whole program share: a temporary folder, tiny inputs made in it, runs and what is expected of them.
# Sourced by each test as: common.sh LOCKSTEP [MPIRUN]; without MPIRUN, the cases of MPI are left out.
# shellcheck shell=bash
set -euo pipefail

binary=$1
mpirun_program=${2:-}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
# Temporary files are this test's own: in a shared folder, a run would remove, and report, what the processes that another test killed left.
mkdir tmp
export TMPDIR=$work/tmp
failed=0

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_hwloc_base_binding_policy=none
export LC_ALL=C

lockstep() { "$binary" "$@"; }
with_mpi() {
  if [ -n "$mpirun_program" ]; then return; fi
  echo "skipped: cases with mpirun: this build has no MPI"
  return 1
}
# Whether every case is taken, as in the tier "nightly", or a slice that has each value of each dimension (tests/support/thorough.h).
thorough() { [ "${LOCKSTEP_TEST_THOROUGH:-}" = 1 ]; }
# Open MPI unloads its plugins before the leak check of a sanitizer build, which can then not tell their leaks from ours.
no_leak_check="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0"
mpi() { ASAN_OPTIONS=$no_leak_check "$mpirun_program" -n "$@"; } # RANKS command...

# run command...: its exit code, what it printed and what it reported are then in $code, ./out and ./err
run() {
  code=0
  "$@" >out 2>err || code=$?
}
problem() {
  echo "FAILED: $*"
  failed=1
}
show() { # the last run
  echo "  exit $code; it printed:" && tail -n 20 out && echo "  and reported:" && tail -n 20 err
}
expect() { # what condition-command...: about the last run
  if ! "${@:2}"; then problem "$1" && show; fi
}
succeeds() { # what command...
  run "${@:2}"
  if [ "$code" -ne 0 ]; then problem "$1" && show; fi
}
# refuses WHAT CODE 'REGEXP' command...: this exit code, and exactly one line of error, which matches.
refuses() {
  run "${@:4}"
  local errors
  errors=$(grep -v '^ *$' err | grep -vcE '^(rank 0: )?(warning: |training |train |resumed |import |write |check |removed /dev/shm/[^ ]*, left by a process that was killed$)' || true)
  if [ "$code" -ne "$2" ] || [ "$errors" -ne 1 ] || ! grep -qE -- "^error: $3" err; then
    problem "$1: exit $2 was due, and one line like: error: $3" && show
  fi
}
same() { # what wanted found
  if [ -z "$2" ] || [ "$2" != "$3" ]; then problem "$1: '$2' was due and '$3' found"; fi
}

# Numbers that look random and are always the same: COUNT of them below LIMIT, one a line. (awk's own differ among versions.)
numbers() {
  awk -v n="$1" -v limit="$2" -v x="${3:-1}" 'BEGIN {
    for (i = 0; i < n; i++) { x = (x * 1103515245 + 12345) % 2147483648; print int(x / 65536) % limit } }'
}
make_text() { # FILE WORDS
  numbers "$2" 12 | awk 'BEGIN { split("the cat sat on a mat and it saw many red birds", w) }
    { printf "%s%s", w[$1 + 1], NR % 9 ? " " : ".\n" }' >"$1"
}
bytes() { # numbers on standard input become bytes
  local octal
  octal=$(awk '{ printf "\\0%03o", $1 }')
  printf '%b' "$octal"
}
# IDX files of COUNT images of EXTENT x EXTENT and their labels 0..3: noise, brighter in the label's quarter of the rows.
make_images() { # IMAGES LABELS COUNT EXTENT
  { echo "0 0 8 3 0 0 $(($3 / 256)) $(($3 % 256)) 0 0 0 $4 0 0 0 $4" | tr ' ' '\n'
    numbers "$(($3 * $4 * $4))" 128 7 | awk -v e="$4" '{
      i = NR - 1; row = int(i / e) % e; label = int(i / (e * e)) % 4; print $1 + (int(row * 4 / e) == label ? 100 : 0) }'
  } | bytes >"$1"
  { echo "0 0 8 1 0 0 $(($3 / 256)) $(($3 % 256))" | tr ' ' '\n'
    awk -v n="$3" 'BEGIN { for (i = 0; i < n; i++) print i % 4 }'
  } | bytes >"$2"
}

flip() { # FILE OFFSET
  printf '%b' "\\0$(printf '%03o' $(($(od -An -tu1 -j "$2" -N 1 "$1") ^ 4)))" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}
# The middle of the largest range of chunks that the file's seal names (data/FORMAT.md).
chunk_byte() { # FILE
  od -An -v -td8 -w16 -j 48 -N 4048 "$1" | awk '$2 - $1 > size { size = $2 - $1; at = int(($1 + $2) / 2) } END { print at }'
}

text_config() { # a small GPT: 4 micro-batches a step
  cat <<'YAML'
seed: 3
run:
  dir: run
train:
  steps: 30
batch:
  global: 8
  micro: 2
model:
  name: gpt
  layers: 2
  heads: 2
  width: 32
optim:
  lr: 0.003
  clip_norm: 1
schedule:
  name: cosine
  warmup: 5
data:
  path: text.h5
  context: 16
  validation: 0.1
compute:
  threads: 1
YAML
}
images_config() {
  cat <<'YAML'
seed: 3
run:
  dir: run
train:
  steps: 30
batch:
  global: 8
  micro: 2
model:
  name: convnet
  channels: [4, 8]
  hidden: 16
optim:
  lr: 0.003
  clip_norm: 1
data:
  path: images.h5
  validation: 0.2
compute:
  threads: 1
YAML
}
# Inputs and configurations of both kinds: text.h5 and text.yaml, images.h5 and images.yaml
make_inputs() {
  make_text text.txt 2300
  make_images images.idx labels.idx 200 12
  lockstep data import text text.txt text.h5 >/dev/null 2>&1
  lockstep data import idx images.idx labels.idx images.h5 >/dev/null 2>&1
  text_config >text.yaml
  images_config >images.yaml
}

# A training that is hard to keep exact: dropout, clipping in most steps, ignored tokens, 7 micro-batches a step, epochs that end in an
# uneven batch. hard_keys KIND adds its keys to `keys`; was_hard RUN: 30 steps with them were so.
hard_keys() {
  keys+=(model.dropout=0.1 optim.clip_norm=0.2 batch.global=21 batch.micro=3)
  if [ "$1" = text ]; then keys+=('data.ignore_tokens=[2, 5]'); fi
}
was_hard() {
  local clipped uneven
  clipped=$(field grad_norm <"$1/metrics.jsonl" | awk '$1 > 0.2' | wc -l)
  if [ "$clipped" -lt 16 ]; then problem "clipping was active in $clipped of 30 steps only"; fi
  # Items of each step: the rate times the time. An epoch's last batch has fewer.
  uneven=$(paste <(field '(tokens|images)_per_s' <"$1/metrics.jsonl") <(field step_ms <"$1/metrics.jsonl") |
    awk '{ n = int($1 * $2 / 1000 + 0.5); if (NR == 1) whole = n; if (n < whole) ++fewer } END { print fewer + 0 }')
  if [ "$uneven" -lt 1 ]; then problem "no epoch ended in an uneven batch"; fi
}

digest() { # RUN: the 32 digits that are alone on the last line
  lockstep checkpoint digest "$1" 2>/dev/null | tail -n 1 | grep -xE '[0-9a-f]{32}' || echo "no digest"
}
# field KEY: (a regular expression) of JSON lines on standard input, as numbers, one a line
field() { grep -oE "\"$1\": *-?[0-9][0-9.eE+-]*" | sed -E 's/.*: *//'; }
# Everything that a directory holds, by content: equal texts mean that nothing was touched.
fingerprint() { find "$1" -type f ! -name lock ! -name log.txt ! -name failure.json -exec sha256sum {} + | sort -k 2; }

# Runs that go on in the background: $pid is theirs.
done_steps() { field step 2>/dev/null <"$1/metrics.jsonl" | tail -n 1; } # RUN
until_step() { # RUN STEP [PID]: returns when it has done so many steps, or has ended
  until [ "$(done_steps "$1")" -ge "$2" ] 2>/dev/null || ! kill -0 "${3:-$pid}" 2>/dev/null; do sleep 0.02; done
}
started() { # RUN STEPS launch-arguments...: launches a run and returns when it has done so many steps
  rm -rf "$1"
  "$binary" launch --mpirun "$mpirun_program" "${@:3}" >out 2>err &
  pid=$!
  until_step "$1" "$2"
}
ended() { # waits for it; its exit code is then in $code
  code=0
  wait "$pid" || code=$?
}
rank_of() { # RANK: its process, not its agent
  local p
  for p in $(pgrep -f "^[^ ]*lockstep train text.yaml"); do
    if grep -qzx "OMPI_COMM_WORLD_RANK=$1" "/proc/$p/environ" 2>/dev/null && grep -qzx "PWD=$work" "/proc/$p/environ" 2>/dev/null; then echo "$p"; fi
  done
}
state_of() { lockstep status --json "$1" 2>/dev/null | sed -n 's/.*"state":"\([a-z ]*\)".*/\1/p'; } # RUN

is_stopped() { [[ $(sed -E 's/.*\) (.).*/\1/' "/proc/$1/stat" 2>/dev/null) == T ]]; }   # PID
process_of() { sed -nE 's/.*"pid": *([0-9]+).*/\1/p' "$1/lock" 2>/dev/null; }           # RUN: the one that trains
own_processes() { # 'REGEXP': those in this test's folder with such a command line
  local p
  for p in $(pgrep -f -- "$1"); do
    if [ "$(readlink "/proc/$p/cwd")" = "$work" ]; then echo "$p"; fi
  done
}

# Tests wait for what happens, not for a time, and a busy machine may need long for it.
await() { # WHAT condition-command...: returns when it holds; after two minutes that is a problem
  local end=$((SECONDS + 120))
  until "${@:2}"; do
    if [ "$SECONDS" -ge "$end" ]; then problem "$1: not within two minutes" && return; fi
    sleep 0.05
  done
}
# A run whose configuration stops it by chaos.faults (kind: stop), started in the background as $pid: returns when it is stopped.
until_stopped() { # WHAT
  until is_stopped "$pid" || ! kill -0 "$pid" 2>/dev/null; do sleep 0.02; done
  expect "$1: it is stopped, and has not ended" is_stopped "$pid"
}
seconds() { date +%s.%N; }
since() { awk -v a="$1" -v b="$(seconds)" 'BEGIN { printf "%.2f", b - a }'; } # SECONDS
# within SECONDS WHAT ELAPSED: the time that is promised, where LOCKSTEP_TEST_BOUNDS=1 says that nothing else runs on this machine (the tier
# "cluster"); elsewhere only that it did not hang.
within() {
  local most=$1
  if [ "${LOCKSTEP_TEST_BOUNDS:-}" != 1 ]; then most=$(awk -v s="$1" 'BEGIN { print (s > 12 ? 10 * s : 120) }'); fi
  expect "$2: after $3 s, $most at most" awk -v took="$3" -v most="$most" 'BEGIN { exit !(took <= most) }'
}

finish() { exit "$failed"; }
