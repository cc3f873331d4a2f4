#!/usr/bin/env bash
# Each fuzz target for some seconds, with mutations from LOCKSTEP_SEED. Usage: slice_test.sh SECONDS SEEDS PROGRAMS
set -euo pipefail
seconds=$1 seeds=$2 programs=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
for folder in "$seeds"/*/; do
  target=$(basename "$folder")
  options=(-max_total_time="$seconds" -seed="${LOCKSTEP_SEED:-1}" -artifact_prefix="$work/")
  if [ "$target" = hdf5 ]; then options+=(-tolerate=libhdf5 -timeout=2); fi
  echo "$target, ${options[1]}"
  if ! "$programs/fuzz_$target" "${options[@]}" "$folder" 2>&1 | tail -n 20; then echo "FAILED: $target" && failed=1; fi
done
exit "$failed"
