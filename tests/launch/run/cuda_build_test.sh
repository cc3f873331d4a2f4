#!/usr/bin/env bash
# A build for GPUs on a machine without one: the program links and opens nothing of CUDA unasked, and each CUDA part loads,
# links no driver and shows what the program looks up in it. Usage: cuda_build_test.sh LOCKSTEP CUDA_PART...
# shellcheck source=tests/launch/run/common.sh
. "$(dirname "$0")/common.sh" "$1"
shift
of_cuda='lib(lockstep_[a-z]+|cuda|cudart|cublas|cublasLt|cudnn[a-z_]*|nccl|nvrtc)\.so'

links_none() { ! ldd "$binary" | grep -E "$of_cuda"; }
run true
expect "the program links nothing of CUDA" links_none
opens_none() { grep -q 'file=.*libc\.so' err && ! grep -E "file=[^ ]*$of_cuda" err; }
succeeds "--version" env LD_DEBUG=files "$binary" --version
expect "the program opens nothing of CUDA unasked" opens_none

for part in "$@"; do
  # Loaded as a GPU would have it; the loader complains of what it cannot preload, and goes on.
  succeeds "loading $part" env LD_PRELOAD="$part" LD_BIND_NOW=1 "$binary" --version
  expect "$part loads" test ! -s err
  run ldd "$part"
  lacks_none() { [ "$code" -eq 0 ] && ! grep -q 'not found' out; }
  expect "$part lacks no library" lacks_none
  links_no_driver() { ! grep -q 'libcuda\.so' out; }
  expect "$part does not link the driver, which a machine may lack" links_no_driver
  case ${part##*/} in
    liblockstep_cuda.so) symbols='lockstep_cuda_backend lockstep_cuda_warn_by' ;;
    *) symbols=lockstep_nccl_api ;;
  esac
  same "functions that $part shows" "$symbols" "$(nm -D --defined-only "$part" | awk '$2 == "T" {print $3}' | sort | xargs)"
done

# Where there is a driver, what is said of it is another matter.
if ! ldconfig -p | grep -q 'libcuda\.so\.1'; then
  succeeds "devices" lockstep devices
  expect "devices says that there is no driver" grep -qE '^no GPU: no NVIDIA driver' out
fi
finish
