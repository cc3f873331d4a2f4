#!/usr/bin/env bash
# lockstep prove, in its short form, of the built-in models: one digest at every number of ranks and level, resumed and recomputed, in fp32 and
# bf16. (prove_test.sh has gpt and convnet at length.)
# Usage: prove_models_test.sh LOCKSTEP
# shellcheck source=tests/launch/run/common.sh
. "$(dirname "$0")/common.sh" "$1"
make_inputs
sed -e '/^model:/,/^optim:/{/^optim:/!d}' text.yaml >tokens.yaml
sed -e '/^model:/,/^optim:/{/^optim:/!d}' images.yaml >pictures.yaml
sed -e '/^data:/,/^compute:/{/^compute:/!d}' pictures.yaml >shapes.yaml
printf 'data:\n  name: synthetic_shapes\n  validation: 0.1\n  synthetic: {images: 200, height: 16, width: 16}\n' >>shapes.yaml

before=
proves() { # MODEL FILE keys...
  local precision ranks=1,3,4
  if [ "$1" = "$before" ] && ! thorough; then ranks=1,3; fi
  for precision in fp32 $(if thorough || [ "$1" != "$before" ]; then echo bf16; fi); do # the first of a name in bf16, too
    succeeds "$1, $precision" lockstep prove "$2.yaml" "model.name=$1" "${@:3}" precision.compute=$precision --ranks "$ranks" --steps 3 --resume
    expect "$1, $precision: one digest" grep -qE '^one digest: [0-9]+ runs$' out
    same "$1, $precision: no line differs" 0 "$(grep -ci differs out || true)"
    if ! thorough; then ranks=1,3; fi
  done
  before=$1
}
proves llama tokens model.layers=2 model.heads=4 model.kv_heads=2 model.width=32 model.window=7 model.qkv_bias=true model.qk_norm=true
proves llama tokens model.layers=3 model.heads=4 model.kv_heads=2 model.width=32 model.qk_norm=true model.qk_norm_whole=true model.norms=after
proves llama tokens model.layers=3 model.heads=4 model.width=32 model.no_rope_every=2 model.window=7 model.window_from=1 model.proj_bias=true \
  model.mlp_bias=true
proves llama tokens model.layers=2 model.heads=4 model.kv_heads=2 model.width=32 model.window=7 model.fused=true
proves llama tokens model.layers=3 model.heads=4 model.kv_heads=2 model.width=32 model.head_width=12 model.qk_norm=true model.norms=both \
  model.norms_from_one=true model.gate=gelu model.scaled_embedding=true model.attention_scale=0.3 model.window=7 model.full_every=3 \
  model.window_theta=500 model.tied=true
proves lstm tokens model.width=24
proves gru tokens model.width=24 model.dropout=0.1
proves bert tokens model.width=16 model.heads=2 model.dropout=0.1 data.mask=0.3
proves vit pictures model.patch=4 model.width=16 model.heads=2 model.layers=2
proves resnet pictures model.stem=small model.width=4 train.label_smoothing=0.1
proves gan pictures model.width=4 model.latent=6 optim.ema=0.9
proves gan pictures model.width=4 model.latent=6 model.classify=true
proves unet shapes model.levels=2 model.width=4
finish
