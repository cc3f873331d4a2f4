#!/usr/bin/env bash
# Files that earlier versions wrote (tests/launch/formats): every dataset, checkpoint and folder of weights opens, is measured and goes on with
# the numbers and bits of the version that wrote it. Usage: formats_test.sh LOCKSTEP
# shellcheck source=tests/launch/run/common.sh
. "$(dirname "$0")/common.sh" "$@"
formats=$(cd "$OLDPWD" && cd "$(dirname "$0")/../formats" && pwd)
# shellcheck source=tests/launch/formats/read.sh
. "$formats/read.sh"
versions=0
for archive in "$formats"/formats-*.tar.gz; do
  tar -xzf "$archive"
  name=$(basename "$archive" .tar.gz)
  (cd formats && read_all "$binary") >"$name.found"
  if ! diff "$formats/$name.txt" "$name.found" >differences; then
    problem "$name: these lines differ, first as written, then as read today:" && head -n 20 differences
  fi
  versions=$((versions + 1))
  rm -rf formats
done
expect "there are files of earlier versions" test "$versions" -ge 1
finish
