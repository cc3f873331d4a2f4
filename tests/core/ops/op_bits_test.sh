#!/usr/bin/env bash
# avx2 and the levels above it must give equal bits in every operation and type (bits_of_isa in core/kernels/kernels.h).
# Usage: op_bits_test.sh OP_BITS
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

bits() { LOCKSTEP_ISA=$1 "$program" >"$work/$1" 2>"$work/error"; }
program=$1
if [ ! -x "$program" ]; then echo "FAILED: $program is not built" && exit 1; fi
if ! bits avx2; then
  echo "skipped: this CPU lacks avx2: there is nothing to compare" && cat "$work/error"
  exit 77
fi
cases=$(wc -l <"$work/avx2")
if [ "$cases" -lt 100 ]; then echo "FAILED: only $cases cases" && exit 1; fi
compared=""
for level in avx512 avx512_bf16 amx; do
  if ! bits $level; then continue; fi
  if ! cmp -s "$work/avx2" "$work/$level"; then
    echo "FAILED: these give other bits on avx2 (<) than on $level (>):"
    diff "$work/avx2" "$work/$level"
    exit 1
  fi
  compared+=" $level"
done
if [ -z "$compared" ]; then
  echo "skipped: this CPU lacks avx512: there is nothing to compare" && cat "$work/error"
  exit 77
fi
echo "$cases cases are equal to the bit: avx2$compared."
