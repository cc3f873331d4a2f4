#!/usr/bin/env bash
# What other programs read: Prometheus's format from `status` and from a launcher's port; CSV.
# Usage: scrape_test.sh LOCKSTEP [MPIRUN]
# shellcheck source=tests/launch/run/common.sh
. "$(dirname "$0")/common.sh" "$@"
make_inputs
# Every line is a comment or NAME{LABELS} VALUE; the lines of a name stand together, after its HELP and TYPE.
well_formed() {
  awk '/^# HELP [a-zA-Z_][a-zA-Z0-9_]* ./ { help[$3]++; if (help[$3] > 1) exit 1; next }
       /^# TYPE [a-zA-Z_][a-zA-Z0-9_]* gauge$/ { if (!help[$3]) exit 1; name = $3; next }
       { if ($0 !~ "^" name "\\{([a-z]+=\"([^\"\\\\]|\\\\.)*\",?)+\\} (NaN|[+-]Inf|-?[0-9.]+(e[+-]?[0-9]+)?)$") { print "odd line: " $0; exit 1 } }' "$1"
}
if command -v promtool >/dev/null; then well() { well_formed "$1" && promtool check metrics <"$1"; }; else well() { well_formed "$1"; }; fi

succeeds "a run" lockstep train text.yaml train.steps=6 train.eval_every=3 run.dir=a
succeeds "on two ranks" lockstep train text.yaml train.steps=6 run.dir=b --ranks 2
odd='x"\
{y}'
cp -r a "$odd"
succeeds "status" lockstep status a b "$odd" --prometheus
cp out status.prom
expect "the format" well status.prom
expect "a step of each" grep -qx 'lockstep_step{run="b"} 6' status.prom
expect "seconds" grep -qE '^lockstep_step_seconds\{run="a"\} 0?\.?[0-9.e-]+$' status.prom
expect "not running" grep -qx 'lockstep_up{run="a"} 0' status.prom
expect "a name with odd characters" grep -qxF 'lockstep_step{run="x\"\\\n{y}"} 6' status.prom

succeeds "CSV" lockstep report a b --csv metrics.csv --force
same "its lines" 13 "$(wc -l <metrics.csv)"
expect "its head" grep -qE '^run,step,loss,lr,grad_norm,' <(head -1 metrics.csv)
expect "lists in quotes" grep -qE ',"\[[0-9.]+,[0-9.]+\]",' metrics.csv
succeeds "CSV of one" lockstep report a --csv metrics.csv --force
expect "as many cells in each line" awk -F, 'NR == 1 { n = NF } NF != n { exit 1 }' metrics.csv
refuses "CSV of nothing" 66 'none: there is no such run directory' lockstep report none --csv metrics.csv --force

if with_mpi && command -v curl >/dev/null; then
  "$binary" launch -n 2 --mpirun "$mpirun_program" --metrics-port 0 -- train text.yaml batch.micro=1 train.steps=100000000 run.dir=live checkpoint.every=0 >/dev/null 2>live.log &
  job=$!
  await "a launched run: its ranks" test -s live/ranks.jsonl
  await "a launched run: its metrics" test -s live/metrics.jsonl
  url=$(grep -oE 'http://127.0.0.1:[0-9]+/metrics' live.log)
  succeeds "scraped" curl -sf --max-time 120 "$url"
  cp out live.prom
  expect "the format" well live.prom
  expect "it runs" grep -qx 'lockstep_up{run="live"} 1' live.prom
  expect "its ranks" grep -qE '^lockstep_rank_step\{run="live",rank="1",host="[^"]+"\} [0-9]+$' live.prom
  same "another path" 404 "$(curl -s -o /dev/null -w '%{http_code}' "${url%metrics}")"
  same "another method" 405 "$(curl -s -o /dev/null -w '%{http_code}' -X POST "$url")"
  # Who connects and says nothing, or very much, holds it up for two seconds at most.
  port=${url#*127.0.0.1:}
  (exec 3<>"/dev/tcp/127.0.0.1/${port%/*}" && exec sleep 1000) &
  silent=$!
  await "a silent client" test -e "/proc/$silent/fd/3"
  begun=$(seconds)
  succeeds "beside a silent client" curl -sf --max-time 120 "$url"
  within 4 "beside a silent client" "$(since "$begun")"
  kill "$silent"
  run curl -s --max-time 120 -H "X: $(head -c 20000 /dev/zero | tr '\0' x)" "$url"
  succeeds "after a long request" curl -sf --max-time 120 "$url"
  kill -TERM $job
  wait $job || true
  expect "it has ended" test "$(curl -s -o /dev/null --max-time 120 "$url"; echo $?)" -eq 7
  refuses "no port" 64 '--metrics-port xy: must be a port' lockstep launch -n 1 --metrics-port xy -- train text.yaml
  refuses "another's address" 64 '--metrics-port 192.0.2.1:9: cannot listen there' lockstep launch -n 1 --metrics-port 192.0.2.1:9 -- train text.yaml
fi
exit "$failed"
