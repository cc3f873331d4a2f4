# The products' part of scripts/bench, which sources it: kernel_bench and PyTorch on the same shapes and threads, alternating.
# shellcheck shell=bash
# shellcheck disable=SC2154  # out, rounds, threads, python, root: scripts/bench
product_bench() {
  rounds=${rounds:-3}
  if [ "$threads" != 1 ] && [ "$threads" != "$(nproc)" ]; then fail "$exit_usage" "--threads $threads: 1 or $(nproc), all of this machine"; fi
  scripts/install_packages test
  say "building"
  quietly bench-configure cmake --preset cpu-release -DLOCKSTEP_BENCH=ON
  build bench-build cmake --build build/cpu-release -j "$(jobs)" --target kernel_bench machine_limits
  local round
  for round in $(seq "$rounds"); do
    say "round $round of $rounds"
    "$root/build/cpu-release/tests/machine_limits" >>"$out/limits"
    # One line a product: its name and 10^9 operations a second.
    "$root/build/cpu-release/tests/kernel_bench" --benchmark_filter="^Gemm(Bf16)?/.*/$threads/real_time\$" --benchmark_format=csv 2>/dev/null |
      awk -F, -v round="$round" 'NR == 1 {for (i = 1; i <= NF; i++) if ($i ~ /GF/) g = i; next} /Gemm/ {gsub(/"/, "", $1); sub(/\/real_time/, "", $1); print $1, round, $g}' >>"$out/ours"
    if "$python" -c 'import torch' 2>/dev/null; then "$python" tests/bench/peers/torch_products.py "$threads" | awk -F, -v round="$round" '{print $1, round, $2}' >>"$out/theirs"; fi
  done
  touch "$out/theirs"
  echo
  echo "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), level $(of_text "$out/limits" isa), $threads threads, $(date -u +%Y-%m-%d), $rounds alternating rounds, medians; multiply-add peak $(of "$out/limits" fma_gflops_1) GF/s on one thread, $(of "$out/limits" fma_gflops) on all"
  echo
  echo "| product, M x N x K | Y = X W^T: ours, PyTorch, ratio | dX = dY W | dW = dY^T X | dW += dY^T X |"
  echo "|---|---|---|---|---|"
  awk '
    function median(list,   v, n, i, j, t) {
      n = split(list, v, " ")
      for (i = 2; i <= n; i++) for (j = i; j > 1 && v[j - 1] + 0 > v[j] + 0; j--) { t = v[j]; v[j] = v[j - 1]; v[j - 1] = t }
      return n % 2 ? v[(n + 1) / 2] : (v[n / 2] + v[n / 2 + 1]) / 2
    }
    FNR == NR { ours[$1 " " $2] = $3; all[$1] = all[$1] " " $3; if (!($1 in seen)) { seen[$1] = 1; order[++count] = $1 }; next }
    { theirs[$1] = theirs[$1] " " $3; if ($3 > 0) ratios[$1] = ratios[$1] " " ours[$1 " " $2] / $3 }
    END {
      for (i = 1; i <= count; i++) {
        split(order[i], p, "/")
        row = p[1] (p[1] == "Gemm" ? " fp32 " : " bf16 ") p[2] " x " p[3] " x " p[4]
        sub(/^Gemm(Bf16)? /, "", row)
        cell = sprintf("%.0f", median(all[order[i]]))
        if (order[i] in ratios) {
          r = median(ratios[order[i]])
          cell = cell sprintf(", %.0f, %.2f", median(theirs[order[i]]), r)
          logs[p[1]] += log(r); n[p[1]]++
          if (!(p[1] in least) || r < least[p[1]]) least[p[1]] = r
        }
        if (row != before) printf "%s| %s |", before == "" ? "" : "\n", row
        before = row
        printf " %s |", cell
      }
      print ""
      for (k in logs) printf "\n%s: geometric mean of the ratios %.2f, least %.2f", k == "Gemm" ? "fp32" : "bf16", exp(logs[k] / n[k]), least[k]
      print ""
    }' "$out/ours" "$out/theirs"
}
