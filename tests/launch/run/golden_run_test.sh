#!/usr/bin/env bash
# Twenty steps of a small GPT, a small Llama and a small convolutional network learn, and give the bits that this repository keeps: one
# digest for CPUs with AVX2, AVX-512 or AMX, another for code without them (bits_of_isa in core/kernels/kernels.h). A change of bits that is
# meant changes the digests here, and says why in its commit. Usage: golden_run_test.sh LOCKSTEP
# shellcheck source=tests/launch/run/common.sh
. "$(dirname "$0")/common.sh" "$@"
make_inputs
# The window is shorter than the context.
sed 's/^  name: gpt$/  name: llama\n  kv_heads: 1\n  window: 7\n  qkv_bias: true\n  qk_norm: true/' text.yaml >llama.yaml
golden() { # KIND LEVEL BOUND DIGEST [KEY=VALUE]
  local run=$1-$2
  rm -rf "$run"
  LOCKSTEP_ISA=$2 run lockstep train "$1.yaml" run.dir="$run" train.steps=20 "${@:5}"
  if [ "$2" != generic ] && [ "$code" -ne 0 ] && grep -q "$2" err; then
    echo "skipped: this CPU lacks $2"
    return
  fi
  expect "$1, $2: it trains" test "$code" -eq 0
  expect "$1, $2: the loss is below $3 after 20 steps" awk -v loss="$(field loss <"$run/metrics.jsonl" | tail -n 1)" -v bound="$3" \
    'BEGIN { exit !(loss < bound) }'
  same "$1, $2: the digest" "$4" "$(digest "$run")"
}
golden text generic 2.5 08d985bf9cf42deb4c0a395583ef2151
golden text avx2 2.5 1bb45b3a4ac7e6254b763b793f9afb6c
golden llama generic 2.5 5abea7bba77dd456ac0f0f2432f935c1
golden llama avx2 2.5 3ec896610cc8aa8b886a214c081cbce9
golden images generic 1.0 6a5f9504c468c4cd201b154511a0b170
golden images avx2 1.0 acb654e68a2f531bd428a761edb09c4d
for level in avx2 avx512 avx512_bf16 amx; do
  golden text $level 2.5 84e0e4c533a07a84009ab8146dd51f6c precision.compute=bf16
  golden llama $level 2.5 e2fcf42de0a1b326a7c46ab098af8918 precision.compute=bf16
  golden images $level 1.0 63d1eba38581ae15be395984949e8333 precision.compute=bf16
done
finish
