#!/usr/bin/env bash
# scripts/lockstep-gdb.py: how gdb prints tensors and shapes. Usage: gdb_test.sh SOURCE PROGRAM
set -euo pipefail
if ! command -v gdb >/dev/null; then
  echo "skipped: there is no gdb here"
  exit 0
fi
out=$(gdb -batch -nx -x "$1/scripts/lockstep-gdb.py" -ex "break stop_here" -ex run -ex "info args" "$2" 2>&1)
failed=0
for line in 'plain = fp32[2, 3] {1.5, -2, 1.5, 1.5, 1.5, 1.5}' 'turned = fp32[3, 2] {1.5, 1.5, -2, 1.5, 1.5, 1.5}' \
  'half = bf16[20] {0.25, 0.25, 0.25, 0.25, 0.25, 0.25, 0.25, 0.25, ...}' 'none = undefined tensor' 'shape = [4, 5, 6]'; do
  if ! grep -qxF -- "$line" <<<"$out"; then
    echo "FAILED: gdb does not print: $line"
    failed=1
  fi
done
if [ "$failed" -ne 0 ]; then
  if grep -qiE 'ptrace|not permitted' <<<"$out"; then echo "skipped: gdb may not trace processes here" && exit 0; fi
  echo "$out"
fi
exit "$failed"
