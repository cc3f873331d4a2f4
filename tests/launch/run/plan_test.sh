#!/usr/bin/env bash
# `lockstep plan` against what `lockstep bench` measures in processes of their own: the same state and traffic at every level, and a peak
# that differs by what a loader's threads had not loaded yet.
# Usage: plan_test.sh LOCKSTEP [MPIRUN]
# shellcheck source=tests/launch/run/common.sh
. "$(dirname "$0")/common.sh" "$@"
make_inputs

compare() { # KIND RANKS LEVEL GROUP keys...
  local kind=$1 ranks=$2 level=$3 group=$4 what="$1, $2 ranks, level $3, group $4" key
  local keys=("${@:5}")
  if [ "$level" != none ]; then keys+=(sharding.level="$level"); fi
  if [ "$group" -gt 1 ] && [ "$group" -lt "$ranks" ]; then keys+=(sharding.group="$group"); fi
  local bench=("$binary" bench "$kind.yaml" "${keys[@]}" --steps 3 --warmup 2)
  if [ "$ranks" -gt 1 ]; then
    succeeds "$what: bench" mpi "$ranks" "${bench[@]}"
  else
    succeeds "$what: bench" "${bench[@]}"
  fi
  tail -n 1 out >measured
  succeeds "$what: plan" lockstep plan "$kind.yaml" "${keys[@]}" --ranks "$ranks" --json
  grep "\"level\":\"$level\",\"group\":$group," out >planned || problem "$what: the plan has no such line"
  for key in parameters_bytes moments_bytes in_host_bytes wire_bytes; do
    same "$what: $key" "$(field "$key" <measured)" "$(field "$key" <planned)"
  done
  # Within 5%; a plan has all batches loaded ahead, a run's loader may be behind, which shows in models as small as these.
  awk -v p="$(field peak_bytes <planned)" -v m="$(field peak_bytes <measured)" -v b="$(field batches_bytes <planned)" \
    'BEGIN { exit !(m > 0 && p >= 0.95 * m && p - b <= 1.05 * m) }' ||
    problem "$what: peak: $(field peak_bytes <planned) planned, $(field peak_bytes <measured) measured"
}
for kind in text images; do
  compare $kind 1 none 1
  if with_mpi; then
    for ranks in 2 4; do
      if [ "$kind $ranks" = "images 4" ] && ! thorough; then continue; fi
      compare $kind $ranks none 1
      for level in optimizer gradients parameters; do compare $kind $ranks $level $ranks; done
    done
    for level in optimizer parameters; do compare $kind 4 $level 2; done
  fi
done
if with_mpi; then
  # Micro-batches that do not divide into the tree: ranks send unlike numbers of its nodes, and rank 0 the fewest.
  compare text 3 none 1 batch.global=20
  compare images 4 none 1 batch.global=14 batch.micro=1
  compare text 4 optimizer 4 batch.global=22 batch.micro=2
  compare text 2 none 1 reduce=fast model.dropout=0.1 batch.global=12 batch.micro=2
  compare text 2 none 1 precision.compute=bf16 precision.reduce=bf16
  compare text 4 parameters 2 precision.compute=fp16 sharding.offload=optimizer
  compare images 2 parameters 2 sharding.gathered_limit=1 sharding.reshard_after_forward=false
  compare text 2 parameters 2 recompute=block
  compare text 2 gradients 2 comm.bucket=0 optim.name=sgd optim.momentum=0.9 data.prefetch=5
fi

# The copy that a checkpoint keeps in host memory: parameters and two moments, in all as much as the ranks hold together.
succeeds "a plan" lockstep plan text.yaml --ranks 1 --json
expect "the copy is as large as they are" awk -v c="$(field checkpoint_copy_bytes <out)" -v p="$(field parameters_bytes <out)" \
  -v m="$(field moments_bytes <out)" 'BEGIN { exit !(c > 0.95 * (p + m) && c <= p + m) }'

# The table, and which level fits.
succeeds "the table" lockstep plan text.yaml sharding.level=parameters sharding.group=2 --ranks 4
expect "a line for each level, twice where there are groups" test \
  "$(grep -oE '^(none|optimizer|gradients|parameters) +[0-9]+' out | tr -s ' ' | tr '\n' ',')" = \
  "none 1,optimizer 2,optimizer 4,gradients 2,gradients 4,parameters 2,parameters 4,"
sed -i '/^  path:/d' text.yaml
large=(model.layers=96 model.heads=96 model.width=12288 data.name=synthetic_tokens data.context=2048 data.synthetic.vocabulary=50304
  data.synthetic.tokens=4000000
  batch.global=512 batch.micro=1)
succeeds "175 billion parameters" lockstep plan text.yaml "${large[@]}" --ranks 64 --json
expect "they take what 4 bytes each take" awk -v b="$(head -n 1 out | field parameters_bytes)" 'BEGIN { exit !(b > 174e9 * 4 && b < 176e9 * 4) }'
succeeds "1 TB holds no copy of their state" lockstep plan text.yaml "${large[@]}" --ranks 64 --gpu-memory 1TB
expect "but a part of it" grep -qE '^931 GiB are enough for sharding.level=(gradients|parameters)$' out
succeeds "no level" lockstep plan text.yaml "${large[@]}" --ranks 64 --gpu-memory 1GiB
expect "no level" grep -qE '^1.00 GiB are enough for no level; .*use more ranks$' out
succeeds "a group of 8 is too small" lockstep plan text.yaml "${large[@]}" sharding.level=parameters sharding.group=8 --ranks 64 --gpu-memory 300GB
expect "and which keys help" grep -qE '^279 GiB are enough for sharding.level=parameters sharding.group=0$' out
small=("${large[@]}" model.layers=2 model.heads=2 model.width=32 batch.micro=8)
succeeds "smaller micro-batches help" lockstep plan text.yaml "${small[@]}" --ranks 64 --gpu-memory 3GiB
expect "and which" grep -qE '^3.00 GiB are enough for no level; with .*(batch.micro=[421]|recompute=block) .*a rank would take [0-9.]+ [MG]iB$' out
succeeds "any level" lockstep plan text.yaml "${small[@]}" --ranks 2 --gpu-memory 2TiB
expect "the lowest" grep -qE '^2.00 TiB are enough for sharding.level=none$' out

# A tenth is kept free, which the verdict says; what fits without it alone is named.
succeeds "the memory of each level" lockstep plan text.yaml "${small[@]}" device=cpu --ranks 2 --json
need=$(($(head -n 1 out | field peak_bytes) + $(head -n 1 out | field checkpoint_copy_bytes)))
expect "gradients of all parameters once: as large as these" awk -v g="$(head -n 1 out | field gradient_copy_bytes)" \
  -v p="$(head -n 1 out | field parameters_bytes)" 'BEGIN { exit !(g > 0.99 * p && g <= p) }'
succeeds "a level that fits barely" lockstep plan text.yaml "${small[@]}" device=cpu --ranks 2 --gpu-memory $((need + need / 20))
expect "a level that fits barely is not the one" grep -qE 'are enough for (no level; .*|sharding.level=(optimizer|gradients|parameters))$' out
expect "a level that fits barely: the margin" grep -qE "^[0-9.]+ [MG]iB of them \(10%\) are kept free for what is not counted: .*; sharding.level=none takes [0-9.]+ [MG]iB" out
succeeds "a level that fits with the margin" lockstep plan text.yaml "${small[@]}" device=cpu --ranks 2 --gpu-memory $((need + need / 8))
expect "a level that fits with the margin" grep -qE 'are enough for sharding.level=none$' out
expect "a level that fits with the margin: nothing else is said" grep -qE "a GPU's driver$" out
succeeds "the same as JSON" lockstep plan text.yaml "${small[@]}" device=cpu --ranks 2 --json --gpu-memory $((need + need / 20))
expect "the same as JSON: does not fit" grep -qE '"level":"none".*"fits":false' out

# Gradients of several micro-batches: what they take, and what would take less.
several=("${large[@]}" model.layers=2 model.heads=2 model.width=64 batch.global=64)
succeeds "several micro-batches a rank" lockstep plan text.yaml "${several[@]}" --ranks 8
expect "several micro-batches a rank: it says so" grep -q '^A rank adds the gradients of its 8 micro-batches of a step in a fixed tree (reduce: exact)' out
expect "several micro-batches a rank: the copy" grep -qE '^take [0-9.]+ MiB below sharding.level=gradients; one copy of the gradients is [0-9.]+ MiB' out
same "several micro-batches a rank: a level" "$(sed -nE 's/^gradients +8 +[0-9.]+ .iB +([0-9.]+ .iB).*/\1/p' out)" \
  "$(sed -nE 's/^  sharding.level=gradients, which .* takes ([0-9.]+ MiB): the same bits;$/\1/p' out)"
taken=$(sed -nE 's/^  fewer micro-batches a rank: batch.micro=8, which is one, takes ([0-9.]+ MiB), .*/\1/p' out)
succeeds "one micro-batch a rank" lockstep plan text.yaml "${several[@]}" batch.micro=8 --ranks 8
same "one micro-batch a rank: what was said" "$taken" "$(sed -nE 's/^none +1 +[0-9.]+ .iB +([0-9.]+ .iB).*/\1/p' out)"
expect "one micro-batch a rank: nothing to explain" bash -c "! grep -q 'fixed tree' out"

# Advice is for the device of the table, which --gpu-memory chooses here: GPUs take buffers for what they exchange, CPUs none.
gpus=("${several[@]}" --ranks 8 --machine-ranks 4 --gpu-memory 80GiB)
none_takes() { sed -nE 's/^none +1 +[0-9.]+ .iB +([0-9.]+ .iB).*/\1/p' out; } # of gradients
advised() { sed -nE "s/^  .*$1.* takes ([0-9.]+ MiB)[,:].*/\\1/p" out; }
succeeds "advice for GPUs" lockstep plan text.yaml "${gpus[@]}"
expect "advice for GPUs: the device" grep -q '^planned for GPUs, which exchange by NCCL (device (default): auto, and --gpu-memory is given)$' out
one=$(advised batch.micro=8) fast=$(advised reduce=fast)
expect "advice for GPUs: a level that takes no less is not named" bash -c "! grep -q '^  sharding.level=gradients' out"
expect "advice for GPUs: sums of the library, and what they give up" grep -qE '^  reduce=fast takes [0-9.]+ MiB: .*bits depend on' out
succeeds "advice for GPUs: one micro-batch" lockstep plan text.yaml "${gpus[@]}" batch.micro=8
same "advice for GPUs: one micro-batch" "$one" "$(none_takes)"
succeeds "advice for GPUs: sums of the library" lockstep plan text.yaml "${gpus[@]}" reduce=fast
same "advice for GPUs: sums of the library" "$fast" "$(none_takes)"
expect "sums of the library: they are not advised again" bash -c "! grep -q 'reduce=fast' out"
succeeds "advice for CPUs: one micro-batch" lockstep plan text.yaml "${gpus[@]}" batch.micro=8 device=cpu
expect "advice for CPUs: one micro-batch takes less" test "$one" != "$(none_takes)"
expect "advice for CPUs: the device" grep -q '^planned for CPUs (override .*device=cpu): device)$' out
succeeds "the device as JSON" lockstep plan text.yaml "${gpus[@]}" --json
expect "the device as JSON" grep -q '"device":"cuda"' out
succeeds "advice where no level fits" lockstep plan text.yaml "${several[@]}" --ranks 2 --gpu-memory 1MiB
expect "advice where no level fits: what was tried" grep -qE 'enough for no level; neither .*reduce=fast makes it fit: a rank takes at least' out

# What the file says of its own layout is set back in the advice, so that it can be followed; sentinels have nothing to compare.
layout=(sharding.level=parameters sharding.group=2 sharding.gathered_limit=30 sharding.reshard_after_forward=true)
succeeds "a file with a layout of its own" lockstep plan images.yaml "${layout[@]}" verify.every=1 --ranks 4 --gpu-memory 1GiB
advised=$(sed -n 's/.* are enough for //p' out)
# shellcheck disable=SC2086  # several keys
succeeds "its advice is followed: $advised" lockstep train images.yaml "${layout[@]}" $advised run.dir=advised train.steps=1 --ranks 4

# The time of a step on machines that are not there.
on8=(images.yaml batch.global=16 batch.micro=1 --ranks 8 --time --flops 100 --memory-rate 10)
step_of() { grep "\"level\":\"$1\"" out | field step_ms; } # LEVEL
succeeds "time on one machine" lockstep plan "${on8[@]}" --json
here=$(step_of none)
for rate in 1000 10; do
  succeeds "time on four machines, $rate MB/s" lockstep plan "${on8[@]}" --machine-ranks 2 --latency 20 --bandwidth "$rate" --json
  there=$(step_of none)
  expect "time on four machines, $rate MB/s: more than before" awk -v a="$here" -v b="$there" 'BEGIN { exit !(b > a && a > 0) }'
  here=$there
done
succeeds "time on four machines as a table" lockstep plan "${on8[@]}" --machine-ranks 2 --latency 20 --bandwidth 10
expect "time on four machines as a table" grep -qE '^parameters +8 +[0-9.]+ ms +[0-9.]+ ms +[0-9.]+ ms +[0-9.]+% +[0-9.]+$' out
expect "time on four machines as a table: where its figures come from" grep -qE \
  '^from 100 GF/s \(--flops\) and 10.0 GB/s of memory \(--memory-rate\) a rank; between machines 20.0 us a message \(--latency\) and 10.0 MB/s a machine \(--bandwidth\)$' out
# GPUs' rings bring a gathered byte to a machine once, as stages of CPUs do.
for device in cpu cuda; do
  succeeds "time of level parameters, $device" lockstep plan text.yaml "${several[@]}" --ranks 8 --machine-ranks 4 --time --flops 1000 \
    --memory-rate 100 --latency 20 --bandwidth 100 device=$device --json
  step_of parameters >"step.$device"
done
expect "time of level parameters: as many bytes" awk -v c="$(cat step.cpu)" -v g="$(cat step.cuda)" 'BEGIN { exit !(g > 0.7 * c && g < 1.3 * c) }'
succeeds "doctor" lockstep doctor --ranks 2 --json
cp out health
succeeds "time by what doctor measured" lockstep plan images.yaml --ranks 2 --time --health health --json
expect "time by what doctor measured" test -n "$(step_of none)"
succeeds "time by what doctor measured, as a table" lockstep plan images.yaml --ranks 2 --time --health health --flops 3
expect "time by what doctor measured: the device" grep -q '^planned for CPUs (device (default): auto, and --health was measured on CPUs)$' out
expect "time by what doctor measured: the figures" grep -qE '^from 3.0 GF/s \(--flops\) and [0-9.]+ GB/s of memory \(--health health, measured on CPUs\) a rank$' out
succeeds "figures of another device" lockstep plan images.yaml device=cuda --ranks 2 --time --health health
expect "figures of another device" grep -q 'times are planned for GPUs, but --health health was measured on CPUs' err
refuses "time without a rank's speed" 64 "--time needs a rank's speed: --health FILE.*" lockstep plan images.yaml --time
refuses "time without links" 64 '--time on several machines needs their links.*' lockstep plan images.yaml --ranks 4 --machine-ranks 2 --time --health health
refuses "machines of unequal size" 64 '--machine-ranks 3 does not divide 4 ranks' lockstep plan images.yaml --ranks 4 --machine-ranks 3
refuses "a speed of 0" 64 '--flops 0: .*' lockstep plan images.yaml --time --flops 0 --memory-rate 1
echo '{"kind":"link","a":0,"b":1,"latency_us":1,"mb_s":1}' >links
refuses "speed without time" 64 '--flops has an effect only with --time' lockstep plan images.yaml --flops 3
refuses "links of no ranks" 65 '--health links: a link of a rank that is not there.*' lockstep plan images.yaml --time --health links
echo 'all is well' >words
refuses "no JSON" 65 '--health words: this line is no JSON object: all is well' lockstep plan images.yaml --time --health words
: >nothing
refuses "an empty file" 65 '--health nothing: has no ranks.*' lockstep plan images.yaml --time --health nothing

refuses "no memory at all" 64 '--gpu-memory 0: must be above 0' lockstep plan text.yaml --gpu-memory 0
refuses "a size without a unit that we know" 64 '--gpu-memory 80 gigs: is not a size; write it as 80GiB or 512MB' lockstep plan text.yaml --gpu-memory '80 gigs'
refuses "no ranks" 64 '--ranks 0: must be 1 to' lockstep plan text.yaml --ranks 0
refuses "more ranks than micro-batches" 78 'text.yaml:.*batch.micro: 8 ranks are more than the 4 micro-batches' lockstep plan text.yaml --ranks 8
refuses "no data" 78 'data.path is not set' lockstep plan text.yaml
finish
