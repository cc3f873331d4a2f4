#!/usr/bin/env bash
# The archive and the wheel of scripts/package run in an empty environment with the loader and the libraries that they hold, start themselves
# again, and train to the digest of the ordinary build. Usage: archive_test.sh REPOSITORY LOCKSTEP
set -euo pipefail
repository=$1 lockstep=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
expect() { # what condition-command...
  local what=$1
  shift
  if ! "$@"; then echo "FAILED: $what"; failed=1; fi
}
same_bits() { # what program: trains and compares with the ordinary build
  rm -rf run
  env -i "$2" train "$repository/configs/quickstart.yaml" data.path=text.h5 run.dir=run train.steps=4 --ranks 2 >log 2>&1 || cat log
  expect "$1: digest" test "$(env -i "$2" checkpoint digest run 2>/dev/null)" = "$wanted"
}

(cd "$repository" && scripts/package archive wheel) | tee "$work/made"
archive=$repository/$(grep '\.tar\.gz$' "$work/made") wheel=$repository/$(grep '\.whl$' "$work/made" | tail -n 1)
cd "$work"
"$lockstep" data import text "$repository/README.md" text.h5 >/dev/null 2>&1
"$lockstep" train "$repository/configs/quickstart.yaml" data.path=text.h5 run.dir=usual train.steps=4 >/dev/null 2>&1
wanted=$("$lockstep" checkpoint digest usual 2>/dev/null)

tar xf "$archive"
mv lockstep-*/ "a folder of another name"
ln -s "$PWD/a folder of another name/bin/lockstep" link
same_bits "archive, by a link" "$work/link"
foreign() { (cd "a folder of another name/lib/lockstep" && env -i ./ld-lockstep --library-path . --list ./lockstep | grep '=>' | grep -v '=> \./'); }
expect "archive: libraries of its own alone" test -z "$(foreign)"
env -i PATH="$PATH" ./link sweep "$repository/configs/quickstart.yaml" data.path=text.h5 run.dir=run train.steps=1 optim.lr=1e-3,2e-3 --dir sweep >log 2>&1 || { cat log; failed=1; }

if python3 -m venv venv 2>/dev/null; then
  venv/bin/pip install -q --no-index "$wheel" || failed=1
  same_bits "wheel" "$work/venv/bin/lockstep"
  expect "wheel: what pip lists is there" venv/bin/pip check
  venv/bin/pip uninstall -q -y lockstep
  expect "wheel: nothing is left" test ! -e venv/lib/lockstep
else
  echo "skipped: the wheel, because python3 -m venv does not work here"
fi
exit "$failed"
