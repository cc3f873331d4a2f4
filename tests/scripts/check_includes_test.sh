#!/usr/bin/env bash
# A tiny tree that keeps the include rules passes; each single break of a rule fails and is named with file and line.
# Usage: check_includes_test.sh REPOSITORY
set -euo pipefail
check=$1/scripts/check_includes
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT

new_tree() {
  rm -rf "${tree:?}"/*
  mkdir -p "$tree"/{core/base,core/tensor,core/ops,core/io/hdf5,core/kernels,core/device/cuda/runtime,comm,sharding,optim,data/{import,samples,streams,text},launch/training,tests/data}
  echo '#include <vector>' >"$tree/core/base/error.h"
  printf '%s\n' '// a tensor' '#include "core/base/error.h"' >"$tree/core/tensor/tensor.h"
  printf '%s\n' '#include "core/tensor/tensor.h"' '#include <sys/stat.h>' >"$tree/core/ops/add.h"
  printf '%s\n' '#include <hdf5.h>' '#include "core/base/error.h"' >"$tree/core/io/hdf5/hdf5_file.cpp"
  echo '#include "core/ops/add.h"' >"$tree/comm/communicator.h"
  echo '#include "comm/communicator.h"' >"$tree/sharding/layout.h"
  echo '#include "core/ops/add.h"' >"$tree/optim/adamw.h"
  printf '%s\n' '#include <zstd.h>' '#include "core/tensor/tensor.h"' >"$tree/data/import/zstd_decoder.cpp"
  printf '%s\n' '#include "sharding/layout.h"' '#include "optim/adamw.h"' >"$tree/launch/main.cpp"
  printf '%s\n' '#include <gtest/gtest.h>' '#include "launch/training/own.h"' '#include "support.h"' >"$tree/tests/data/import_test.cpp"
  echo '#include <cuda_runtime_api.h>' >"$tree/core/device/cuda/runtime/queue.h"
  touch "$tree"/data/{samples/dataset,streams/loader}.h "$tree/launch/training/own.h" "$tree/tests/data/support.h"
}

failed=0
# fails_with FILE LINES TEXT: with LINES in FILE the check must fail and say TEXT
fails_with() {
  new_tree
  mkdir -p "$(dirname "$tree/$1")"
  printf '%b' "$2" >"$tree/$1"
  local said code=0
  said=$("$check" "$tree" 2>&1) || code=$?
  if [ "$code" -eq 1 ] && grep -qF -- "$3" <<<"$said"; then return; fi
  printf 'FAILED: %s with\n%b  exit %s, said:\n%s\n  expected: %s\n' "$1" "$2" "$code" "$said" "$3"
  failed=1
}

new_tree
"$check" "$tree" || failed=1

fails_with core/base/log.h '\n#include "core/tensor/tensor.h"\n' 'core/base/log.h:2: core/base may not include core/tensor'
fails_with core/kernels/add.cpp '#include "core/tensor/tensor.h"\n' 'core/kernels/add.cpp:1: core/kernels may not include core/tensor'
fails_with core/state/state.h '#include "core/ops/add.h"\n' 'core/state may not include core/ops'
fails_with core/io/json.h '#include "core/tensor/tensor.h"\n' 'core/io may not include core/tensor'
fails_with core/ops/sum.h '  #  include "comm/communicator.h"\n' 'core/ops/sum.h:1: core/ops may not include comm'
fails_with optim/sgd.h '#include "sharding/layout.h"\n' 'optim/sgd.h:1: optim may not include sharding'
fails_with sharding/group.h '#include "optim/adamw.h"\n' 'sharding/group.h:1: sharding may not include optim'
fails_with data/streams/loader.h '#include "comm/communicator.h"\n' 'data/streams/loader.h:1: data/streams may not include comm'
fails_with data/text/ids.h '#include "data/samples/dataset.h"\n' 'data/text/ids.h:1: data/text may not include data/samples'
fails_with data/import/tables/csv.h '#include "data/streams/loader.h"\n' 'data/import/tables/csv.h:1: data/import may not include data/streams'
fails_with data/read.h '#include "core/base/error.h"\n' 'data/read is no folder of the include table'
fails_with comm/mesh.h '#include "tests/data/support.h"\n' 'comm/mesh.h:1: comm may not include tests'
fails_with launch/world/ranks.h '#include "launch/training/own.h"\n' 'launch/world/ranks.h:1: launch/world may not include launch/training'
fails_with core/new/thing.h '#include "core/base/error.h"\n' 'core/new is no folder of the include table'
fails_with data/samples/read.cpp '#include <hdf5.h>\n' 'data/samples/read.cpp:1: <hdf5.h> has one door: core/io/hdf5/hdf5_file.cpp'
fails_with core/state/state.cpp '#include "core/io/hdf5/hdf5_handles.h"\n' 'core/state/state.cpp:1: <core/io/hdf5/hdf5_handles.h> has one door'
fails_with core/io/hdf5/hdf5_file.h '#include "hdf5.h"\n' 'core/io/hdf5/hdf5_file.h:1: <hdf5.h> has one door'
fails_with sharding/layout.cpp '#include <mpi.h>\n' '<mpi.h> has one door: comm/'
fails_with launch/config/config.cpp '#include <yaml-cpp/yaml.h>\n' '<yaml-cpp/yaml.h> has one door: launch/config/config_tree.cpp'
fails_with core/ops/fast.cpp '#include <immintrin.h>\n' '<immintrin.h> has one door'
fails_with core/base/hash.h '#include <boost/crc.hpp>\n' '<boost/crc.hpp> has one door: core/base/hash.cpp'
fails_with core/device/stream.h '#include <cuda_runtime_api.h>\n' '<cuda_runtime_api.h> has one door: core/device/cuda/'
fails_with comm/nccl/nccl_comm.cpp '#include <nccl.h>\n' '<nccl.h> has one door: comm/nccl/'
fails_with comm/gpu.cpp '#include "core/device/cuda/runtime/queue.h"\n' 'comm/gpu.cpp:1: <core/device/cuda/runtime/queue.h> has one door'
fails_with core/ops/solve.cpp '#include <Eigen/Dense>\n' '<Eigen/Dense> has no door'
fails_with core/ops/gone.cpp '#include "core/ops/gone.h"\n' '"core/ops/gone.h" does not exist'
fails_with data/import/import.h '#include "import.cpp"\n' '"import.cpp" does not exist'
fails_with comm/work.cpp '#include <core/base/error.h>\n' 'included with quotes'
fails_with core/base/error.h '#include "core/base/error.h"\n' 'a cycle of includes: core/base/error.h -> core/base/error.h'
fails_with launch/training/own.h '#include "launch/main.cpp"\n#include "launch/training/two.h"\n' '"launch/training/two.h" does not exist'

# A cycle of three files that begins below its entrance.
new_tree
echo '#include "data/samples/b.h"' >"$tree/data/samples/a.h"
printf '%s\n' '' '#include "data/samples/c.h"' >"$tree/data/samples/b.h"
echo '#include "data/samples/b.h"' >"$tree/data/samples/c.h"
said=$("$check" "$tree") && failed=1
grep -qF 'data/samples/c.h:1: a cycle of includes: data/samples/b.h -> data/samples/c.h -> data/samples/b.h' <<<"$said" || { echo "FAILED: cycle: $said"; failed=1; }
exit "$failed"
