#!/usr/bin/env bash
# `lockstep report`: pages of runs, of a sweep, of a run that goes on, of damaged, empty and foreign directories, and of texts that would be markup.
# Usage: report_test.sh LOCKSTEP [MPIRUN]
# shellcheck source=tests/launch/run/common.sh
. "$(dirname "$0")/common.sh" "$@"
make_inputs
# The JSON of the page, on one line.
data_of() { sed -n 's/^<script id="data" type="application\/json">\(.*\)<\/script>$/\1/p' "$1"; }
has() { expect "$1" grep -qE -- "$2" <(data_of page.html); } # what regexp

succeeds "a run" lockstep train text.yaml train.steps=6 train.eval_every=3 checkpoint.every=3 run.dir=a
succeeds "another on two ranks" lockstep train text.yaml train.steps=6 optim.lr=0.0123 run.dir=b --ranks 2
succeeds "a page" lockstep report a b --force -o page.html
expect "it says what it wrote" grep -qE '^wrote page.html, 2 runs, [0-9]+ bytes$' out
expect "one data element" test "$(data_of page.html | wc -l)" -eq 1
has "curves" '"val_loss":\{"n":2,"m":[0-9.]+,"s":\[3,3\],"v":\['
has "all of both runs' configurations" '"optim.lr":"0.0123"'
has "the model's parameters, once" '"models":\[\[\{"name":"wte.weight","shape":\[[0-9,]+\]'
has "floating-point operations of modules" '"module_flops":\{.*"blocks.0.qkv":[0-9]'
has "memory by use" '"memory":\{"peak":[0-9]+,"activations":[0-9]+'
has "checkpoints" '"checkpoints":\[\{"step":6,"path":"a/checkpoints/step-00000006"'
has "rank times" '"ranks":\{"s":\['
expect "nothing from a network" test "$(grep -cE 'src=.?http|href=.?http|@import' page.html)" -eq 0

# A resumed run: its attempts and goodput.
succeeds "resume" lockstep train text.yaml train.steps=9 checkpoint.every=3 run.dir=a --resume resume.allow=[schedule.steps]
succeeds "its page" lockstep report a --force -o page.html
has "two attempts" '"attempts":\[\{"begun":[0-9.]+,"step":0,"ranks":1\},\{"begun":[0-9.]+,"step":6,"ranks":1\}\]'

# A sweep: its points, the best first.
succeeds "a sweep" lockstep sweep text.yaml optim.lr=0.01,0.001 train.steps=3 --dir sweep
succeeds "its page" lockstep report sweep --force -o page.html
has "its keys" '"sweep":\{"dir":"sweep","keys":\["optim.lr"\]'
has "its points' curves" '"dir":"sweep/001"'

# Files beside.
printf 'label,a,b\na,3,1\nb,0,"4,5"\n' >confusion.csv
printf 'To be </script><script>alert(1)</script>' >sample.txt
printf '\x89PNG\r\n\x1a\nrest' >image.png
succeeds "files beside" lockstep report a --attach confusion.csv --attach sample.txt --attach image.png --force -o page.html
has "a table" '"rows":\[\["label","a","b"\],\["a","3","1"\],\["b","0","4,5"\]\]'
has "an image" '"image":"data:image/png;base64,iVBORw0KGgpyZXN0"'
refuses "a file that is not there" 66 '--attach nothing.txt: there is no such file' lockstep report a --attach nothing.txt

# Texts that would be markup stay text: nothing in the data ends its element.
hostile='</script><img src=x onerror=alert(1)>'
mkdir -p "$(dirname "x$hostile")" && cp -r a "x$hostile"
printf '{"step":10,"loss":1,"<script>alert(2)</script>":3}\n' >>"x$hostile/metrics.jsonl"
printf '{"exit_code":70,"rank":0,"step":3,"message":"</script><b>LOCKSTEP_SCRIPT"}\n' >"x$hostile/failure.json"
succeeds "hostile texts" lockstep report "x$hostile" --force -o page.html
expect "two script elements, as before" test "$(grep -o '<script' page.html | wc -l)" -eq 2
expect "both are closed once" test "$(grep -o '</script' page.html | wc -l)" -eq 2
has "the key is data" '\\u003cscript>alert\(2\)'

# Directories with which something is wrong: a line on the page, and the rest of it.
cp -r a damaged
printf 'nonsense\n{"step":2,"loss":1}\n{"step":12,"loss":null,"lr":1e999}\n{"step":13' >>damaged/metrics.jsonl
printf 'x: [' >damaged/config.yaml
printf '{' >damaged/about.json
succeeds "a damaged run" lockstep report damaged b --force -o page.html
has "damaged lines" 'damaged/metrics.jsonl: [34] lines are no metrics or not in order; they are left out'
has "a damaged configuration" 'damaged/config.yaml:1: '
has "damaged about.json" 'damaged/about.json: is no JSON object'
mkdir unfinished && cp a/config.yaml unfinished/
succeeds "a run without a step" lockstep report unfinished --force -o page.html
has "says so" 'unfinished/metrics.jsonl: holds no step yet'
for kind in fifo zero; do
  rm -rf odd && cp -r a odd && rm odd/metrics.jsonl
  case $kind in
    fifo) mkfifo odd/metrics.jsonl ;;
    zero) ln -s /dev/zero odd/metrics.jsonl ;;
  esac
  refuses "$kind as metrics" 65 'odd/metrics.jsonl: is not a file' timeout 120 "$binary" report odd
done
rm -rf odd && cp -r a odd && rm odd/attempts.jsonl odd/log.txt && mkfifo odd/attempts.jsonl && ln -s /dev/zero odd/log.txt
succeeds "other files that are none" timeout 120 "$binary" report odd --force -o page.html
has "each is named" 'odd/attempts.jsonl: is not a file.*odd/log.txt: is not a file|odd/log.txt: is not a file.*odd/attempts.jsonl: is not a file'
mkdir empty
refuses "an empty directory" 66 'empty: this directory holds no run' lockstep report empty
refuses "none" 66 'none: there is no such run directory' lockstep report none
succeeds "an empty one beside a run" lockstep report a empty --force -o page.html
expect "is named" grep -q '^left out: empty: this directory holds no run' out
refuses "an output that cannot be written" 73 'cannot write|.*no/page.html' lockstep report a -o no/page.html
refuses "a full disk" 74 "cannot write /dev/full: .*; free space or choose another place" lockstep report a -o /dev/full

# What an output replaces: nothing that was not asked for.
echo precious >real && ln -s real link
for form in "report a -o" "report a --csv"; do
  # shellcheck disable=SC2086  # words
  {
    refuses "$form: a file" 73 'real: is already there' lockstep $form real
    refuses "$form: a link" 73 'link: is already there' lockstep $form link
    same "$form: what was there" "precious link" "$(cat real) $(basename "$(find link -type l)")"
    succeeds "$form: a pipe's name" bash -c "'$binary' $form /dev/stdout | cat >piped"
    expect "$form: is written into" test "$(wc -c <piped)" -gt 100
    succeeds "$form: --force" lockstep $form link --force
    expect "$form: --force replaces the link, not what it points to" test "$(cat real)" = precious -a -f link -a ! -L link
    rm link && ln -s real link
  }
done
mkfifo pipe
cat pipe >piped &
succeeds "a pipe" lockstep report a --csv pipe
wait $!
expect "a pipe is written into" bash -c '[ -p pipe ] && grep -q ^run,step piped'
if mknod null c 1 3 2>/dev/null && { : >null; } 2>/dev/null; then
  succeeds "a device" lockstep report a -o null
  expect "a device stays one" test -c null
  refuses "a device for what is no text" 73 'null: is a device, pipe or socket' lockstep data import csv confusion.csv null --label a --force
fi
succeeds "the default name" lockstep report a
succeeds "the default name, again" lockstep report a
expect "the default name is replaced, and that is said" grep -q 'replacing report.html' err

# Ten long runs are one page of less than 5 MB.
awk 'BEGIN { srand(1); for (i = 1; i <= 20000; ++i) {
  printf "{\"step\":%d,\"loss\":%.15f,\"lr\":%.15f,\"grad_norm\":%.15f,\"tokens_per_s\":%.9f,\"step_ms\":%.6f,\"data_ms\":%.6f,\"forward_ms\":%.6f,", i, rand(), rand(), rand(), 1e5 * rand(), rand(), rand(), rand();
  printf "\"backward_ms\":%.6f,\"comm_ms\":%.6f,\"optimizer_ms\":%.6f,\"memory_mb\":%.2f,\"time\":%.3f,\"rank_ms\":[%.3f,%.3f,%.3f,%.3f]}\n", rand(), rand(), rand(), rand(), 1.7e9 + i, rand(), rand(), rand(), rand() } }' >long.jsonl
runs=()
for i in 0 1 2 3 4 5 6 7 8 9; do
  mkdir "long$i" && ln long.jsonl "long$i/metrics.jsonl" && cp a/config.yaml a/about.json "long$i/"
  runs+=("long$i")
done
succeeds "ten long runs" lockstep report "${runs[@]}" --force -o page.html
expect "less than 5 MB" test "$(stat -c %s page.html)" -lt 5000000
expect "more than a tenth of it" test "$(stat -c %s page.html)" -gt 500000
# Histograms of many steps and tensors: the first and the last step stay, and what is left out is named.
succeeds "watched" lockstep train text.yaml train.steps=2 run.dir=spread train.watch='[wte]' train.watch_every=1
for step in $(seq 20); do echo "{\"step\":$step,\"wte\":[[0,$step]]}"; done >spread/histograms.jsonl
succeeds "its page" lockstep report spread --force -o page.html
has "the first and the last step" '"histograms":\[\{"step":1,"wte":\[\[0,1\]\]\}.*\{"step":20,"wte":\[\[0,20\]\]\}\]'
awk 'BEGIN { printf "{\"step\":1"; for (i = 0; i < 900; i++) { printf ",\"t%d\":[[0,1]", i; for (j = 1; j < 80; j++) printf ",[%d,%d]", j, j; printf "]" } print "}" }' >spread/histograms.jsonl
succeeds "of 900 tensors" lockstep report spread --force -o page.html
expect "at most a megabyte" test "$(stat -c %s page.html)" -lt 1000000
has "what is left out is named" 'histograms of [0-9]+ of 900 tensors are not on this page'
printf '{"step":1,"wte":"no"}\nno line\n[1]\n' >spread/histograms.jsonl
echo '{"modules":0,"peak":{"shares":3},"memory":"x","confusion":{"counts":"abc"}}' >spread/about.json
succeeds "damaged ones" lockstep report spread one --force -o page.html
exit "$failed"
