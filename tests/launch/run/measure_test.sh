#!/usr/bin/env bash
# What a model is measured on, and how results are told: vocabularies, parts of the data, runs without targets, JSON.
# Usage: measure_test.sh LOCKSTEP [MPIRUN]
# shellcheck source=tests/launch/run/common.sh
. "$(dirname "$0")/common.sh"
make_inputs
run lockstep train text.yaml run.dir=run train.steps=6
if [ "$code" -ne 0 ]; then problem "the run to measure" && show; fi

# Another vocabulary of the same size: the ids would mean other characters.
tr 'ew' 'EW' <text.txt >other.txt
succeeds "import of another vocabulary" lockstep data import text other.txt other.h5
refuses "eval with another vocabulary" 65 ".*run/checkpoints/step-00000006: was trained with another vocabulary than the data's: token 3 is 'a' \(U\+0061\) there and 'E' \(U\+0045\) here" \
  lockstep eval run data.path=other.h5
refuses "init.from with another vocabulary" 65 '.*another vocabulary.*--vocabulary .*run' lockstep train text.yaml data.path=other.h5 run.dir=tuned init.from=run
# Part of the characters, and the run's ids.
tr -d 'yb' <text.txt >part.txt
succeeds "import of fewer characters" lockstep data import text part.txt fewer.h5
run lockstep eval run data.path=fewer.h5
expect "eval with fewer characters: exit 65" test "$code" -eq 65
for from in run run/checkpoints/step-00000006 text.h5 text.txt; do
  succeeds "import with the vocabulary of $from" lockstep data import text part.txt part.h5 --vocabulary $from --force
  succeeds "eval with the vocabulary of $from" lockstep eval run data.path=part.h5
done
refuses "a character that is not in the vocabulary" 65 ".*other.txt: the character 'E' \(U\+0045\) at byte [0-9]+ is not in the given vocabulary of" \
  lockstep data import text other.txt part.h5 --vocabulary run --force
refuses "a vocabulary of another level" 64 '--level byte: the vocabulary of run is of level char' lockstep data import text part.txt part.h5 --vocabulary run --level byte --force
refuses "a vocabulary that is not there" 66 'nope: ' lockstep data import text part.txt part.h5 --vocabulary nope --force
finish
