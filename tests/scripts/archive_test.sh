#!/usr/bin/env bash
# The archive and the wheel of scripts/package run in an empty environment with the loader and the libraries that they hold, start themselves
# again, and train to the digest of the ordinary build. Usage: archive_test.sh REPOSITORY LOCKSTEP
repository=$(cd "$1" && pwd)
# shellcheck source=tests/launch/run/common.sh
. "$repository/tests/launch/run/common.sh" "$2"
small=("$repository/configs/quickstart.yaml" data.path=text.h5)

same_bits() { # what program: trains and compares with the ordinary build
  rm -rf run
  succeeds "$1 trains" env -i "$2" train "${small[@]}" run.dir=run train.steps=4 --ranks 2
  same "$1: digest" "$wanted" "$(digest run)"
  same "$1: digest by its own word" "$wanted" "$(env -i "$2" checkpoint digest run 2>/dev/null | tail -n 1)"
}

succeeds "scripts/package" bash -c 'cd "$0" && scripts/package archive wheel' "$repository"
archive=$repository/$(grep '\.tar\.gz$' out) wheel=$repository/$(grep '\.whl$' out | tail -n 1)
succeeds "import" lockstep data import text "$repository/README.md" text.h5
succeeds "the ordinary build" lockstep train "${small[@]}" run.dir=usual train.steps=4
wanted=$(digest usual)

tar xf "$archive"
mv lockstep-*/ "a folder of another name"
ln -s "$PWD/a folder of another name/bin/lockstep" link
same_bits "archive, by a link" "$work/link"
foreign() { (cd "a folder of another name/lib/lockstep" && env -i ./ld-lockstep --library-path . --list ./lockstep | grep '=>' | grep -v '=> \./'); }
expect "archive: libraries of its own alone" test -z "$(foreign)"
succeeds "archive: starts itself again" env -i PATH="$PATH" ./link sweep "${small[@]}" run.dir=run train.steps=1 optim.lr=1e-3,2e-3 --dir sweep

if python3 -m venv venv 2>/dev/null; then
  succeeds "wheel: pip" venv/bin/pip install -q --no-index "$wheel"
  same_bits "wheel" "$work/venv/bin/lockstep"
  expect "wheel: what pip lists is there" venv/bin/pip check
  venv/bin/pip uninstall -q -y lockstep
  expect "wheel: nothing is left" test ! -e venv/lib/lockstep
else
  echo "skipped: the wheel, because python3 -m venv does not work here"
fi
finish
