# read_all LOCKSTEP: in a folder of files that make.sh made: what this program reads from them, a line for each, and how its runs go on.
# Computed by the portable code level, so that any processor gives these numbers.
# shellcheck shell=bash

export LC_ALL=C LOCKSTEP_ISA=generic

# The value of a key in one line of JSON; the last line of an error where there is none.
value_of() { # KEY command...
  local out
  if out=$("${@:2}" 2>read.err) && grep -qE "\"$1\":" <<<"$out"; then
    sed -E "s/.*\"$1\": ?\"?([^\",}]*).*/\1/" <<<"$out" | tail -n 1
  else
    tail -n 1 read.err
  fi
}
state_of_run() { "$1" checkpoint digest "$2" 2>read.err || tail -n 1 read.err; } # LOCKSTEP RUN
read_all() {
  local name loss
  while read -r name; do
    echo "dataset $name $(value_of identity "$1" data inspect --json "$name")"
  done <datasets.txt
  while read -r name; do
    echo "run $name digest $(state_of_run "$1" "$name")"
    loss=$(value_of loss "$1" eval "$name")
    echo "run $name loss $loss"
    # It goes on at another layout than it was written in.
    "$1" train "$name/config.yaml" run.dir="$name" train.steps=6 sharding.level=optimizer --resume --ranks 2 >/dev/null 2>read.err ||
      tail -n 1 read.err
    echo "run $name resumed $(state_of_run "$1" "$name")"
  done <runs.txt
  # Weights, and a run whose checkpoint another run begins with.
  printf 'run: {dir: new}\ntrain: {steps: 1}\nbatch: {global: 4, micro: 1}\ndata: {path: text.h5, context: 8}\n' >folder.yaml
  { cat folder.yaml && printf 'model: {name: gpt, layers: 1, heads: 2, width: 8}\n'; } >model.yaml
  for name in gpt weights.safetensors weights.npz; do start_from "$1" model.yaml "$name" init.from="$name"; done
  start_from "$1" folder.yaml hf init.from=hf
  start_from "$1" folder.yaml adapter init.from=hf init.adapter=adapter lora.train="['*.lora_*']"
}
start_from() { # LOCKSTEP CONFIGURATION NAME key=value...
  "$1" train "$2" run.dir="from-$3" "${@:4}" >/dev/null 2>read.err || tail -n 1 read.err
  echo "from $3 $(state_of_run "$1" "from-$3")"
}
