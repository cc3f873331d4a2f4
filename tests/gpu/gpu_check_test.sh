#!/usr/bin/env bash
# scripts/gpu_check, rehearsed on the CPU and on a GPU that the CPU plays: each part runs and is reported; a part that fails or takes too
# long does not stop the others. Usage: gpu_check_test.sh REPOSITORY BUILD FAKE_CUDA_LIBRARY
set -euo pipefail
repository=$1 build=$2 library=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
expect() { # what condition-command...
  if ! "${@:2}"; then
    echo "FAILED: $1; it said:"
    cat "$work/said"
    tail -n 300 "$work/report.txt"
    failed=1
  fi
}
export LOCKSTEP_GPU_CHECK_SECONDS=500 LOCKSTEP_GPU_CHECK_BUDGET=7200 # of each part and in all, on a machine that is slow or busy
run() { # BUILD [environment...]
  code=0
  rm -rf "$work/out" "$work/logs"
  mkdir "$work/logs"
  # shellcheck disable=SC2086  # options
  (cd "$work" && env LOCKSTEP_BUILD="$1" "${@:2}" "$repository/scripts/gpu_check" --rehearse ${options:-} --into out) >"$work/said" 2>&1 || code=$?
  cp "$work/out/report.txt" "$work/report.txt"
  tar -xzf "$work/out/logs.tar.gz" -C "$work/logs"
}
verdict() { # PART VERDICT: of the list at the report's end
  sed '1,/=== Verdicts/d' "$work/report.txt" | grep -qE "^$1 +$2 "
}

all_is_ok() { # WHERE
  expect "$1: all is ok: exit 0" test "$code" -eq 0
  expect "$1: three files" test "$(find "$work/out" -type f | sort | tr '\n' ' ')" = "$work/out/logs.tar.gz $work/out/report.txt $work/out/running.log "
  for part in machine nccl attention step ranks kernels operations graph memcheck racecheck digests bench resume sharding device large curves peers; do
    expect "$1: $part is ok" verdict "$part" ok
    expect "$1: $part has a log" test -s "$work/logs/$part.log"
  done
  for part in nccl attention operations large device sharding; do
    expect "$1: $part has its XML" grep -q '<testcase' "$work/logs/$part.xml"
    expect "$1: the log of $part has each test" grep -q '^\[       OK \]' "$work/logs/$part.log"
  done
  expect "$1: a timeline of a step" grep -q '"traceEvents"' "$work/logs/step.timeline.json"
  for figure in 'step of GPT-2 124M, 64 x 1024 tokens, bf16 [|] [0-9.]+ ms [|] 115 to 125 ms' 'products of 64.3, bf16 [|] [0-9.e+-]+ TF/s [|] 788 TF/s' \
    'scripts/bench, tiny-2 [|] [0-9.]+ ms [|] not estimated'; do
    expect "$1: the figure: $figure" test "$(grep -lE "^[|] $figure [|]$" "$work/report.txt" "$work/said" | wc -l)" -eq 2
  done
  expect "$1: kernels beside the least time that they could take" grep -qE '^[|] .* [|] [0-9.e-]+ ms [|] [0-9.e-]+ ms at least [|]$' "$work/report.txt"
  expect "$1: kernels are timed" grep -qE '^38 kernels timed, 0 failed$' "$work/report.txt"
  expect "$1: NCCL does each operation" grep -qE '^\[       OK \] Nccl.IsRecordedLaunchedAndAborted' "$work/logs/nccl.log"
  expect "$1: our side's time is known early" grep -q 'tiny-2, ours: [0-9.]* ms' "$work/logs/bench.log"
  expect "$1: one digest each" test "$(grep -cE '^one digest: [0-9]+ runs$' "$work/report.txt")" -eq 6
  expect "$1: three runs were killed and resumed" test "$(grep -cE '^resumed by [12]: ([0-9a-f]{32}); left alone: \1$' "$work/report.txt" || true)" -eq 3
  expect "$1: losses stand side by side" grep -qE '^ +100( +[0-9.]+){3}$' "$work/report.txt"
  expect "$1: the archive has the report, too" test -s "$work/logs/report.txt"
  expect "$1: the benchmark's table" grep -qE '^\| tiny-2 \| [0-9.]+ \|' "$work/report.txt"
}

# What no part runs would never be tried on a card.
listed() { # FILTER
  LOCKSTEP_TEST_FAKE_GPU=1 "$build/bin/gpu_tests" --gtest_list_tests --gtest_filter="$1" | sed 's/ *#.*//' |
    awk '/^[^ ].*\.$/ { suite = $0 } /^  / { print suite $1 }'
}
sed -n "s/^part_[a-z]*() { tests '\([^']*\)'.*/\1/p" "$repository/scripts/gpu_check" | while read -r filter; do listed "$filter"; done |
  sort -u >"$work/of_parts"
listed '*' | sort >"$work/all"
if ! diff "$work/all" "$work/of_parts"; then echo "FAILED: a test is in no part of scripts/gpu_check" && failed=1; fi

# Parts that differ on the CPU; all of them where every case is taken.
if ! "$build/bin/lockstep" devices --json | grep -q '"device":"cuda:0"'; then
  if [ "${LOCKSTEP_TEST_THOROUGH:-}" = 1 ]; then
    run "$build"
    all_is_ok "on the CPU"
  else
    for part in machine kernels graph; do
      code=0
      (cd "$work" && LOCKSTEP_BUILD=$build "$repository/scripts/gpu_check" --rehearse --part $part) >"$work/said" 2>&1 || code=$?
      if [ "$code" -ne 0 ]; then echo "FAILED: on the CPU: $part: exit $code; it said:" && cat "$work/said" && failed=1; fi
    done
  fi
fi

# Into FOLDER/bin, PROGRAM... of this build without its libraries of CUDA and NCCL, if it has any. Hard links, not symbolic ones: a
# program looks for a library beside its own place.
put() {
  mkdir -p "$work/$1/bin"
  local program
  for program in "${@:2}"; do
    ln "$build/bin/$program" "$work/$1/bin/" 2>/dev/null || cp "$build/bin/$program" "$work/$1/bin/"
  done
}

# The commands of a machine with a GPU.
put played lockstep gpu_tests gpu_kernels
mkdir -p "$work/played/lib"
cp "$library" "$work/played/lib/liblockstep_cuda.so"
ln -s liblockstep_cuda.so "$work/played/lib/liblockstep_nccl.so"
ln -s "$work/played/lib/liblockstep_cuda.so" "$work/played/lib/libcuda.so.1" # a program asks for the driver's first
LD_LIBRARY_PATH=$work/played/lib run "$work/played"
all_is_ok "on the GPU that the CPU plays"
expect "ranks share it" grep -q 'device=cuda share_gpu=true' "$work/report.txt"
expect "a step is recorded" grep -q 'graph=true' "$work/report.txt"
expect "the tests found it" grep -q '^on Fake GPU' "$work/report.txt"

# Parts that were asked for, in that order, and none else.
options="--parts racecheck,machine" run "$work/played"
expect "two parts: exit 0" test "$code" -eq 0
expect "two parts: in their order" test "$(sed '1,/=== Verdicts/d;/^$/,$d' "$work/report.txt" | sed 's/ .*//' | tr '\n' ' ')" = "racecheck machine "
code=0
LOCKSTEP_BUILD=$work/played "$repository/scripts/gpu_check" --parts machine,nothing "$work/none.txt" >"$work/said" 2>&1 || code=$?
expect "a part that is none: exit 64" test "$code" -eq 64
expect "a part that is none is named" grep -q 'there is no part nothing' "$work/said"

# Programs that fail, and one that does not end.
put broken gpu_tests
printf '#!/bin/bash\nif [ "$1" = --version ]; then exec sleep 1000; fi\nexit 1\n' >"$work/broken/bin/lockstep"
printf '#!/bin/bash\nexit 1\n' >"$work/broken/bin/gpu_kernels"
chmod +x "$work"/broken/bin/{lockstep,gpu_kernels}
run "$work/broken" LOCKSTEP_GPU_CHECK_SECONDS="500 machine=5"
expect "not all is ok: exit 1" test "$code" -eq 1
expect "machine takes too long" verdict machine 'out of time'
expect "machine takes too long: its last words" grep -qF 'it was in: $ lockstep --version' "$work/said"
for part in operations device; do expect "$part is ok beside what fails" verdict "$part" ok; done
for part in kernels digests graph resume curves bench peers; do expect "$part fails" verdict "$part" FAILED; done

# Where the time is over, a part is cut, the rest is not begun, and the report is whole.
began=$SECONDS
run "$work/broken" LOCKSTEP_GPU_CHECK_BUDGET=12 LOCKSTEP_GPU_CHECK_SECONDS=
expect "a budget: exit 1" test "$code" -eq 1
expect "a budget: it is kept to" test $((SECONDS - began)) -lt 60
expect "a budget: machine is cut" verdict machine 'out of time'
for part in nccl step ranks peers; do expect "a budget: $part" verdict "$part" 'not begun'; done
expect "a budget: the report ends with the figures" grep -q '^=== Figures' "$work/logs/../report.txt"

# NVIDIA's tool, where it does not serve the card, and where it finds something.
mkdir -p "$work/tool"
for said in 'Device not supported' 'ERROR SUMMARY: 1 error'; do
  printf '#!/bin/bash\necho "========= %s"\nexit 9\n' "$said" >"$work/tool/compute-sanitizer"
  chmod +x "$work/tool/compute-sanitizer"
  LD_LIBRARY_PATH=$work/played/lib options="--parts memcheck,racecheck" run "$work/played" PATH="$work/tool:$PATH"
  expected=$([ "$said" = 'Device not supported' ] && echo ok || echo FAILED)
  for part in memcheck racecheck; do expect "compute-sanitizer, $said: $part" verdict "$part" "$expected"; done
done

# Faults that are planted: each is named in the last lines, and they are few. Most parts are over at once here.
cat >"$work/quick.sh" <<'QUICK'
#!/bin/bash
exit 0
QUICK
put quick gpu_tests
for program in lockstep gpu_kernels; do cp "$work/quick.sh" "$work/quick/bin/$program" && chmod +x "$work/quick/bin/$program"; done
planted() { # FAULT 'REGEXP in the last lines' [environment...]
  run "$work/quick" LOCKSTEP_TEST_GPU_FAULT="$1" "${@:3}"
  expect "$1: exit 1" test "$code" -eq 1
  expect "$1: it is named" grep -qE "$2" <(sed '1,/^peers /d' "$work/said")
  expect "$1: in few characters" test "$(wc -c <"$work/said")" -lt 12000
}
planted "no nccl" 'cannot use NCCL: '
planted "old nccl" 'NCCL 2[.]18[.]3 was found, but this lockstep needs 2[.]27[.]3'
planted "hang Kernels.GiveTheCpusInitialValues" 'it was in: \[ RUN      \] Kernels[.]GiveTheCpusInitialValues' LOCKSTEP_GPU_CHECK_SECONDS="500 device=10"
planted "sticky Kernels.GiveTheCpusInitialValues" 'Kernels[.]GiveTheCpusInitialValues.*'
expect "a sticky fault: the others run again" grep -qE '^after Kernels.GiveTheCpusInitialValues nothing passed: [0-9]+ tests run again' "$work/logs/device.log"
expect "a sticky fault: the results of each process" grep -q '<failure' "$work/logs/device.xml"
expect "a sticky fault: those of the second" grep -q 'name="Memory"' "$work/logs/device.2.xml"
expect "a sticky fault: the others pass" grep -qE '^\[       OK \] Memory[.]' "$work/logs/device.log"
expect "a sticky fault: the first again, alone" grep -q '^the first that failed, alone' "$work/logs/device.log"
for program in lockstep gpu_tests; do rm "$work/played/bin/$program" && cp "$work/quick.sh" "$work/played/bin/$program"; done
echo "echo '\"device\":\"cuda:0\"'" >>"$work/played/bin/lockstep"
sed -i '/^exit 0/d' "$work/played/bin/lockstep"
chmod +x "$work"/played/bin/*
LD_LIBRARY_PATH=$work/played/lib run "$work/played" LOCKSTEP_TEST_GPU_FAULT=refused
expect "a refused shape: kernels fails" verdict kernels FAILED
expect "a refused shape is named" grep -q '^kernels: refused: attention of 1 x 2 x 3 x 4, bf16: kernels of our own, as cuDNN has none' "$work/said"
mkdir -p "$work/small"
if mount -t tmpfs -o size=16k none "$work/small" 2>/dev/null; then
  code=0
  (cd "$work" && LOCKSTEP_BUILD=$work/quick "$repository/scripts/gpu_check" --rehearse --into small/out) >"$work/said" 2>&1 || code=$?
  umount "$work/small"
  expect "a full disk: exit 1" test "$code" -eq 1
  expect "a full disk is named" grep -q 'small/out has no room: the report and the archive are not whole' "$work/said"
else
  echo "skipped: a full disk: no small file system can be mounted here"
fi
exit $failed
