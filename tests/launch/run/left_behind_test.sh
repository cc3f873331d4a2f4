#!/usr/bin/env bash
# What a kill -9 leaves of temporary files, and the next start of the same thing removes: parts of exports, files of a run directory. A launcher
# leaves nothing, in TMPDIR or /dev/shm. What is not lockstep's, or is in use, stays. Usage: left_behind_test.sh LOCKSTEP [MPIRUN]
# shellcheck disable=SC2016  # texts for other shells
# shellcheck source=tests/launch/run/common.sh
. "$(dirname "$0")/common.sh" "$@"
make_inputs
digits=0123456789abcdef
here() { find "$1" -mindepth 1 -maxdepth 1 -name "$2" | wc -l; } # FOLDER PATTERN

# Parts as a killed process leaves them: nobody has a lock on them.
succeeds "a run" lockstep train text.yaml train.steps=4 run.dir=run
for name in run.safetensors run.npz run.h5; do
  echo half >"$name.part-$digits"
  echo mine >"$name.part-2"
  succeeds "$name: exported again" lockstep checkpoint export run "$name"
  expect "$name: it says what it removed" grep -q "removed .*$name.part-$digits, left by a process that was killed" err
  same "$name: the part is gone, a file of another's is not" "$name $name.part-2" "$(echo "$name"*)"
done
hf=$(cd "$OLDPWD" && cd "$(dirname "$0")/../../parity/hf" && pwd)
cp -r "$hf/gpt2" from && chmod -R u+w from
mkdir -p "out.hf.part-$digits"
echo half >"out.hf.part-$digits/model.safetensors"
cat >fine.yaml <<'YAML'
init: {from: from}
run: {dir: fine}
train: {steps: 0}
batch: {global: 8, micro: 1}
data: {path: text.h5, context: 16}
YAML
succeeds "a run from a folder" lockstep train fine.yaml
succeeds "a folder again" lockstep checkpoint export fine out.hf --to hf
same "the folder's part is gone" out.hf "$(echo out.hf*)"

# An export that is killed in the middle, and one that goes on beside the next.
big=(model.layers=2 model.width=768 model.heads=12 train.steps=0 checkpoint.every=0)
succeeds "a larger run" lockstep train text.yaml "${big[@]}" run.dir=big
killed=0
for ((n = 0; n < 20 || (killed == 0 && n < 200); ++n)); do
  "$binary" checkpoint export big big.safetensors >/dev/null 2>&1 &
  pid=$!
  until compgen -G 'big.safetensors.part-*' >/dev/null || ! kill -0 $pid 2>/dev/null; do :; done
  kill -9 $pid 2>/dev/null || true
  wait $pid 2>/dev/null || true
  if [ ! -e big.safetensors ]; then killed=$((killed + 1)); fi
  expect "no more than one part" test "$(here . 'big.safetensors.part-*')" -le 1
  rm -f big.safetensors
done
expect "some were killed" test "$killed" -gt 0
succeeds "then it is complete" lockstep checkpoint export big big.safetensors
same "and no part is left" big.safetensors "$(echo big.safetensors*)"

for name in config.yaml.tmp- metrics.jsonl.tmp- algorithms.txt.tmp- failure.json.tmp- .probe- checkpoints/.probe-; do echo torn >"run/$name$digits"; done
echo mine >run/config.yaml.tmp-mine
succeeds "the run goes on" lockstep train text.yaml train.steps=4 run.dir=run --resume
same "its unfinished files are gone" "run/config.yaml.tmp-mine" "$(find run -name '*.tmp-*' -o -name '.probe-*')"

if with_mpi; then
  shared() { find /dev/shm -maxdepth 1 -name 'lockstep-flight*' 2>/dev/null | wc -l; }
  before=$(shared)
  "$binary" launch --mpirun "$mpirun_program" -n 2 -- train text.yaml train.steps=1000000 schedule.steps=60 run.dir=launched >out 2>err &
  pid=$!
  until grep -q '"step":[1-9]' launched/ranks.jsonl 2>/dev/null || ! kill -0 $pid 2>/dev/null; do sleep 0.05; done
  same "its socket is no file; Open MPI's are in a folder of the run" 1 "$(here tmp '*')"
  segments=$(for r in $(pgrep -f "^[^ ]*lockstep train .*run.dir=launched"); do grep -o "/dev/shm/[^ ]*$" "/proc/$r/maps" || true; done | sort -u)
  expect "what its ranks share is in a folder of the run, too ($segments)" bash -c '! grep -vE "^(/dev/shm/lockstep-mpi-.*)?$" <<<"$0"' "$segments"
  same "its recorders have no names" "$before" "$(shared)"
  expect "but the launcher sees what its ranks do" kill -0 $pid
  kill -9 $pid
  wait $pid 2>/dev/null || true
  no_process() { [ -z "$(own_processes "run.dir=launched")" ]; }
  await "after kill -9, no rank is left" no_process
  nothing_here() { [ "$(here tmp '*')" -eq 0 ]; } # mpirun is given up to 4.5 s
  await "nor anything in TMPDIR" nothing_here
  same "nor in /dev/shm" "$before" "$(shared)"
  while read -r segment; do await "nor $segment" test ! -e "$segment"; done <<<"$segments"
fi
finish
