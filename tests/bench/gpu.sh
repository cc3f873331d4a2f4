# The GPU's part of scripts/bench, which sources it: cases, both sides' programs, the table. One GPU, bf16, fp32 masters on both sides.
# Every timed step of ours and of PyTorch's ends in the host's read of its loss; the figure is the time from the first timed step until the
# device has nothing left to do, over their number.
# shellcheck shell=bash

steps_of() { # CASE: timed steps, and steps before them
  case $1 in tiny*) echo "3 1" ;; 124m-4*) echo "60 10" ;; 124m-16*) echo "40 8" ;; 124m*) echo "20 5" ;; 1558m*) echo "10 3" ;; *) echo "200 20" ;; esac
}
batch_of() { echo "$1" | cut -d - -f 2; }

ours_of() { # CASE [key=value ...]: the command
  local yaml keys=(device="$where" batch.global="$(batch_of "$1")" batch.micro=0 precision.compute=bf16) steps warmup
  read -r steps warmup <<<"$(steps_of "$1")"
  case $1 in
    124m*) yaml=configs/gpt2_124m.yaml ;;
    1558m*) yaml=configs/gpt2_1558m.yaml ;;
    mnist*) yaml=tests/bench/mnist.yaml keys+=(data.threads=8 data.prefetch=8) ;;
    tiny*) yaml=tests/bench/char.yaml keys+=(model.layers=1 model.heads=2 model.width=32 data.context=16) ;;
    *) fail "$exit_usage" "--cases: there is no step '$1' for a GPU" ;;
  esac
  if [[ $1 = *-fast* ]]; then keys+=(reduce=fast); fi
  if [[ $1 = *-graph* ]]; then keys+=(graph=true); fi
  if [[ $1 = *-recompute* ]]; then keys+=(recompute=block); fi
  echo "scripts/with_cuda $lockstep bench $yaml ${keys[*]} ${*:2} --steps $steps --warmup $warmup"
}
theirs_of() { # CASE [--option ...]
  local steps warmup more=("${@:2}") context=1024
  read -r steps warmup <<<"$(steps_of "$1")"
  if [[ $1 = *-recompute* && "${more[*]}" != *--recompute* ]]; then more+=(--recompute); fi
  if [[ $1 = *-graph* && "${more[*]}" = *--compile* ]]; then more+=(--graphs); fi
  if [[ $1 = tiny* ]]; then context=16; fi
  case $1 in
    mnist*) echo "$python tests/bench/peers/torch_conv.py --channels-last --batch $(batch_of "$1") --device $where --dtype bf16" \
      "--steps $steps --warmup $warmup ${more[*]}" ;;
    *) echo "$python tests/bench/peers/torch_gpt.py --size ${1%%-*} --context $context --batch $(batch_of "$1") --fused --device $where" \
      "--dtype bf16 --steps $steps --warmup $warmup ${more[*]}" ;;
  esac
}
command_of() { # CASE SIDE AGAIN
  case $2 in
    ours) ours_of "$1" ${3:+recompute=block} ;;
    eager) theirs_of "$1" ${3:+--recompute} ;;
    compiled) theirs_of "$1" --compile ${3:+--recompute} ;;
    *) fail "$exit_usage" "--sides: '$2' is none of ours, eager, compiled" ;;
  esac
}

# attempt FILE COMMAND: appends the run's line of JSON to FILE; else says why in FILE.why, and returns the exit code.
attempt() {
  local left=$((seconds - SECONDS)) code=0
  if [ "$left" -lt 5 ]; then echo "no time left" >"$1.why" && return 124; fi
  echo "$2" >"$1.command"
  # shellcheck disable=SC2086  # one word an argument
  timeout -k 5 $((left < 300 ? left : 300)) $2 >"$out/said" 2>"$out/errors" || code=$?
  if [ $code -eq 0 ] && grep -E '"(mean_ms|gemm_tflops)"' "$out/said" | tail -n 1 >>"$1"; then
    grep -vE '^\{' "$out/said" >"$1.choices" || true
    return 0
  fi
  if [ $code -eq 0 ]; then code=1; fi
  if [ $code -eq 124 ] || [ $code -eq 137 ]; then
    echo "out of time" >"$1.why"
  else
    { grep -v "^ *\$" "$out/errors" || echo "exit $code, without a word"; } | tail -n 1 | cut -c 1-300 >"$1.why"
  fi
  return $code
}

# A side that failed once is not tried again; one that ran out of memory is, with recomputed blocks.
measure() { # CASE SIDE
  local file=$out/$1.$2 code=0 again="" what
  if [ -e "$file.why" ]; then return; fi
  if [ -e "$file.recompute" ]; then again=yes; fi
  what=$(command_of "$1" "$2" "$again")
  attempt "$file" "$what" || code=$?
  if [ $code -eq 67 ] && [ -z "$again" ] && grep -q 'out of memory' "$file.why" && [[ $1 != mnist* && $1 != *-recompute* ]]; then
    again=yes code=0
    touch "$file.recompute"
    rm "$file.why"
    what=$(command_of "$1" "$2" "$again")
    attempt "$file" "$what" || code=$?
  fi
  if [ $code -ne 0 ]; then
    warn "$1, $2: $(cat "$file.why")"
  else
    say "$1, $2: $(tail -n 1 "$file" | number mean_ms) ms"  # known, whatever becomes of the rest
  fi
}

gpu_table() {
  local c side file ms flop peak limit cells base
  limit=$(of "$out/limits" gemm_tflops 2>/dev/null || true)  # a card without one still has its table
  echo "| step | $(for side in $sides; do printf '%s ms | MFU | of the product limit | GiB | ' "$side"; done)tokens or images a second, ours | eager / ours | compiled / ours |"
  echo "|---|$(for side in $sides; do printf -- '---|---|---|---|'; done)---|---|---|"
  for c in $cases; do
    cells="" base="" flop=""
    if [ -s "$out/$c.ours" ]; then
      base=$(of "$out/$c.ours" mean_ms)
      flop=$(awk -v t="$(of "$out/$c.ours" tflops)" -v ms="$base" 'BEGIN {print t * ms}')
      peak=$(of "$out/$c.ours" peak_tflops)
    fi
    for side in $sides; do
      file=$out/$c.$side
      if ! [ -s "$file" ]; then
        cells+="$(if [ -e "$file.why" ]; then cut -c 1-40 "$file.why"; fi) | | | | "
        continue
      fi
      ms=$(of "$file" mean_ms)
      cells+="$(awk -v f="${flop:-0}" -v ms="$ms" -v p="${peak:-0}" -v l="${limit:-0}" -v bytes="$(of "$file" peak_bytes)" -v note="$(if [ -e "$file.recompute" ]; then echo " (recompute)"; fi)" 'BEGIN {
        printf "%.2f%s | %s | %s | %.1f | ", ms, note, (f > 0 && p > 0 ? sprintf("%.1f%%", 100 * f / ms / p) : ""),
          (f > 0 && l > 0 ? sprintf("%.1f%%", 100 * f / ms / l) : ""), bytes / 2 ^ 30 }')"
    done
    cells+="$({ of "$out/$c.ours" tokens_per_s; of "$out/$c.ours" images_per_s; } | awk 'NF {printf "%.0f", $1}') | "
    for side in eager compiled; do
      cells+="$(if [ -n "$base" ] && [ -s "$out/$c.$side" ]; then awk -v a="$(of "$out/$c.$side" mean_ms)" -v b="$base" 'BEGIN {printf "%.2fx", a / b}'; fi) | "
    done
    echo "| $c | ${cells% }"
  done
}

gpu_bench() {
  local where=$device round c side lockstep limits
  rounds=${rounds:-2}
  if [ -n "$rehearse" ]; then
    cases=${cases:-tiny-2} sides=${sides:-ours}
  elif [ -z "${LOCKSTEP_BUILD:-}" ] && [ -f CMakeLists.txt ]; then
    scripts/install_packages test cuda
    say "building"
    quietly bench-configure cmake --preset cuda-release
    build bench-build cmake --build build/cuda-release -j "$(jobs)" --target lockstep gpu_kernels lockstep_cuda
  fi
  cases=${cases:-124m-64 1558m-16 124m-4 124m-4-graph 124m-16 mnist-1024 mnist-1024-graph} sides=${sides:-ours eager compiled}
  lockstep=$(program lockstep) limits="$(program gpu_kernels) limits"
  for c in $cases; do
    for side in $sides; do command_of "$c" "$side" "" >/dev/null; done  # refuses what there is not
  done
  if [ "$sides" != ours ] && ! "$python" -c 'import torch' 2>/dev/null; then
    say "no PyTorch for $python: our side only"
    sides=ours
  fi

  for round in $(seq "$rounds"); do
    attempt "$out/limits" "scripts/with_cuda $limits $where${rehearse:+ small}" || warn "gpu_kernels limits: $(cat "$out/limits.why")"
    if [ "$sides" != ours ]; then
      attempt "$out/torch_limits" "$python tests/bench/peers/torch_limits.py --device $where${rehearse:+ --extent 64 --mib 1}" ||
        warn "torch_limits: $(cat "$out/torch_limits.why")"
    fi
    for side in $sides; do # ours first: where time runs out, it is known
      say "round $round of $rounds: $side"
      for c in $cases; do measure "$c" "$side"; done
    done
  done

  echo
  if [ "$where" = cuda ]; then nvidia-smi --query-gpu=name,driver_version,power.limit,clocks.max.sm --format=csv,noheader 2>/dev/null || true; fi
  echo "$(date -u +%Y-%m-%d), $rounds rounds, medians; device: $(if [ -s "$out/limits" ]; then sed -n 's/.*"device": *"\([^"]*\)".*/\1/p' "$out/limits" | tail -n 1; fi)"
  echo "limits by our doors: $(of "$out/limits" gemm_tflops) TF/s in products of bf16, $(of "$out/limits" copy_gbps) GB/s copy (read and written)"
  if [ -s "$out/torch_limits" ]; then
    echo "limits by PyTorch: $(of "$out/torch_limits" gemm_tflops) TF/s, $(of "$out/torch_limits" copy_gbps) GB/s ($(sed -n 's/.*"peer": *"\([^"]*\)".*/\1/p' "$out/torch_limits" | tail -n 1))"
  fi
  echo "MFU: tokens/s x (6 N + 6 layers x width x context) / the card's data-sheet peak in bf16, and over the product limit above;"
  echo "of the convnet: the operations of its matrix products. ms: mean of the timed steps, each of which ends in a read of its loss."
  echo
  gpu_table
  echo
  for c in $cases; do
    if [ -s "$out/$c.ours.choices" ]; then
      echo "what the libraries chose for $c:"
      cat "$out/$c.ours.choices"
      echo
    fi
  done
  echo "commands:"
  cat "$out"/*.command
  if compgen -G "$out/*.why" >/dev/null; then
    echo "what did not run:"
    for c in "$out"/*.why; do echo "$(basename "$c" .why): $(cat "$c")"; done
  fi
  local ran=0
  for c in $cases; do if ! [ -s "$out/$c.ours" ]; then ran=1; fi; done
  return $ran
}
