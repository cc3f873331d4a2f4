#!/usr/bin/env bash
# `lockstep launch` on several machines, all played by this one: a stand-in for ssh, behind which one of them sees other files (a mount of its
# own, which needs root). Real networks: tests/fault/network_test.sh. Usage: machines_test.sh LOCKSTEP MPIRUN
# shellcheck disable=SC2016,SC2317  # texts for other shells; functions that are called by name
# shellcheck source=tests/launch/run/common.sh
. "$(dirname "$0")/common.sh" "$@"
export ASAN_OPTIONS=$no_leak_check # of ranks that it launches
if ! with_mpi; then finish; fi
make_inputs
keys=(text.yaml train.steps=20 schedule.steps=20)
cat >shell_to <<SH
#!/bin/bash
while [[ \$1 == -* ]]; do shift; done
host=\$1
shift
mkdir -p $work/tmp.\$host # as on machines of their own: two daemons of Open MPI in one TMPDIR now and then end without a word
export TMPDIR=$work/tmp.\$host
if [ "\$host" = 127.0.0.3 ]; then exec $work/other_machine "\$@"; fi
exec bash -c "\$*"
SH
printf '#!/bin/bash\nexec bash -c "$*"\n' >other_machine
chmod +x shell_to other_machine
launch() { timeout 300 "$binary" launch --mpirun "$mpirun_program" --remote-shell "$work/shell_to" "$@"; }
two=(--hosts '127.0.0.2:1,127.0.0.3:1')
elsewhere() { # SHELL-COMMAND: what is done on 127.0.0.3 first, with mounts and a host name of its own
  printf '#!/bin/bash\nexec unshare --mount --uts bash -c '"'"'%s; exec bash -c "$*"'"'"' "$0" "$@"\n' "$1" >"$work/other_machine"
}

ends() { # WHAT CODE 'REGEXP' command...
  run "${@:4}"
  expect "$1: exit $2" test "$code" -eq "$2"
  expect "$1: $3" grep -qE -- "^error: $3" err
  expect "$1: one error" test "$(grep -c '^error: ' err)" -eq 1
}

succeeds "undisturbed" lockstep train "${keys[@]}" run.dir=plain
wanted=$(digest plain)
succeeds "two machines" launch "${two[@]}" -- train "${keys[@]}" run.dir=together
same "two machines: the digest" "$wanted" "$(digest together)"
parts() { find "$1/checkpoints" -name 'part-*' -printf '%f\n' | sort -u | tr '\n' ' '; } # RUN
same "two machines that are one: one file" "part-0000-of-0001.h5 " "$(parts together)"

# Users, ranges and addresses; and the environment of another machine, which inherits nothing.
cp other_machine other_before
printf '#!/bin/bash\nexec env -i PATH="$PATH" HOME="$HOME" bash -c "$*"\n' >other_machine
sed 's|^host=|echo "$1" >>asked_for; host=|' shell_to >shell_lists
chmod +x shell_lists
TAKEN=here HDF5_USE_FILE_LOCKING=FALSE OMPI_MCA_btl_tcp_links=1 "$binary" launch --mpirun "$mpirun_program" --remote-shell "$work/shell_lists" --hosts 'me@127.0.0.[2-3]:1' --env 'GIVEN=a b=c' --env TAKEN \
  -- train "${keys[@]}" train.steps=1000000 run.dir=named >out 2>err &
pid=$!
until_step named 2
there=$(for p in $(pgrep -f '^[^ ]*lockstep train text.yaml .*run.dir=named'); do
  if grep -qzx OMPI_COMM_WORLD_RANK=1 "/proc/$p/environ"; then tr '\0' '\n' <"/proc/$p/environ"; fi
done | grep -E '^(GIVEN|TAKEN|HDF5_USE_FILE_LOCKING|OMPI_MCA_btl_tcp_links)=' | sort -u | tr '\n' ';')
same "the environment there" 'GIVEN=a b=c;HDF5_USE_FILE_LOCKING=FALSE;OMPI_MCA_btl_tcp_links=1;TAKEN=here;' "$there"
kill -TERM "$pid"
ended
expect "users and ranges: exit 75" test "$code" -eq 75
same "what the remote shell was asked for" "me@127.0.0.2 me@127.0.0.3" "$(sort -u asked_for | tr '\n' ' ' | sed 's/ $//')"
if grep -q '^::1' /etc/hosts && [ -e /proc/net/if_inet6 ]; then
  succeeds "an IPv6 address" launch --hosts '[::1]:2' -- train "${keys[@]}" run.dir=six
  same "an IPv6 address: the digest" "$wanted" "$(digest six)"
fi
refuses "no such variable" 64 '--env NOWHERE: there is no such variable here' launch "${two[@]}" --env NOWHERE -- train "${keys[@]}"
mv other_before other_machine

if [ "$(id -u)" -eq 0 ] && unshare --mount true 2>/dev/null; then
  elsewhere 'hostname another'
  succeeds "machines with names of their own" launch "${two[@]}" -- train "${keys[@]}" run.dir=others
  same "machines with names of their own: the digest" "$wanted" "$(digest others)"
  same "machines with names of their own: a file of each" "part-0000-of-0002.h5 part-0001-of-0002.h5 " "$(parts others)"
  succeeds "their checkpoint, resumed on one machine" lockstep train "${keys[@]}" run.dir=others train.steps=22 --resume --ranks 3
  mkdir apart
  elsewhere "mount -t tmpfs none $work/apart"
  ends "a run directory of each machine" 73 "rank 1 on .*: run.dir: .* does not see the folder $work/apart/run of .*: there is none by this path" launch "${two[@]}" -- train "${keys[@]}" run.dir=apart/run
  expect "a run directory of each machine: before step 0" test ! -s apart/run/metrics.jsonl
  succeeds "doctor" launch "${two[@]}" -- doctor --dir apart
  expect "doctor: finds it" grep -q "^differs: .* does not see the folder $work/apart of .*: there is another one" out
  # Machines without a common file system: each has a run directory of its own, the other one's is in side.
  rm -rf apart/* && mkdir side
  elsewhere "hostname another; mount --bind $work/side $work/apart"
  own=(train "${keys[@]}" run.dir=apart/run run.per_machine=true checkpoint.every=5)
  run launch "${two[@]}" -- "${own[@]}" --until 12
  expect "folders of their own: exit 75" test "$code" -eq 75
  same "folders of their own: the end brings all to rank 0's machine" "part-0000-of-0002.h5 part-0001-of-0002.h5 " "$(parts apart/run)"
  same "folders of their own: the other machine's file" "part-0001-of-0002.h5 " "$(parts side/run)"
  cp -r apart/run first && cp -r side/run second && rm first/checkpoints/*/part-0001* # as before the end
  rm -rf apart/run && cp -r first apart/run
  succeeds "folders of their own: resumed" launch "${two[@]}" -- "${own[@]}" --resume
  expect "folders of their own: from the newest" grep -q 'resumed .*step-00000012' err
  same "folders of their own: the digest" "$wanted" "$(digest apart/run)"
  rm -rf apart/run && cp -r first apart/run && rm side/run/checkpoints/*/part-0001*
  ends "a part that is nowhere" 65 'rank 0 on .*: apart/run: the machines of this job together hold no whole checkpoint: that of step 20 lacks part 1 of 2; start on' launch "${two[@]}" -- "${own[@]}" --resume
  rm -rf apart/run
  ends "a run that is on the other machine" 73 'rank 1 on .*: run.dir apart/run already holds a run: add --resume' launch "${two[@]}" -- "${own[@]}"
  run lockstep train "${keys[@]}" run.dir=plain12 --until 12
  succeeds "collect" lockstep checkpoint collect both first second
  expect "collect: whole" test "$(grep -c '^whole ' out)" -eq 2
  same "collect: the digest" "$(digest plain12)" "$(digest both)"
  refuses "collect: too little" 65 'these directories have no checkpoint whole together: that of step 12 lacks part 1 of 2' lockstep checkpoint collect less second
  # And a mirror that both see.
  rm -rf apart/run side/run
  run launch "${two[@]}" -- "${own[@]}" checkpoint.mirror=mirror checkpoint.mirror_every=10 --until 12
  expect "a mirror: exit 75" test "$code" -eq 75
  same "a mirror: all files" "part-0000-of-0002.h5 part-0001-of-0002.h5 " "$(parts mirror)"
  same "a mirror: its steps" "step-00000010 step-00000012 " "$(find mirror/checkpoints -name 'step-*' -printf '%f\n' | sort | tr '\n' ' ')"
  rm -rf apart/run side/run
  succeeds "resumed from a mirror" launch "${two[@]}" -- "${own[@]}" checkpoint.mirror=mirror --resume
  same "resumed from a mirror: the digest" "$wanted" "$(digest apart/run)"
  same "resumed from a mirror: each step once" 20 "$(grep -c '"step"' apart/run/metrics.jsonl)"
  same "resumed from a mirror: what is there at the end" "$wanted" "$(digest mirror)"
  elsewhere "mount -t tmpfs none $work/mirror"
  ends "a mirror that one does not see" 73 "rank 1 on .*: checkpoint.mirror: .* does not see the folder $work/mirror of " launch "${two[@]}" -- train "${keys[@]}" run.dir=m checkpoint.mirror=mirror --resume

  make_text other.txt 2400
  lockstep data import text other.txt other.h5 >/dev/null 2>&1
  elsewhere "mount --bind $work/other.h5 $work/text.h5"
  ends "other data under the same path" 73 'rank 1 on .*: text.h5 on .* holds other data than on ' launch "${two[@]}" -- train "${keys[@]}" run.dir=other
  mkdir data yaml
  cp text.h5 data
  elsewhere "mount -t tmpfs none $work/data"
  mkdir places && cp text.h5 places
  succeeds "data at another place" launch "${two[@]}" -- train "${keys[@]}" data.path=data/text.h5 "data.folders=[$work/places]" run.dir=placed
  same "data at another place: the digest" "$wanted" "$(digest placed)"
  cp other.h5 places/text.h5
  ends "other data at another place" 73 'rank 1 on .*: data/text.h5 on .* holds other data than on ' launch "${two[@]}" -- train "${keys[@]}" data.path=data/text.h5 "data.folders=[$work/places]" run.dir=other
  ends "no data" 73 'rank 1 on .*: data/text.h5: No such file or directory; rank 0 has it' launch "${two[@]}" -- train "${keys[@]}" data.path=data/text.h5 run.dir=other
  cp text.yaml yaml
  elsewhere "mount -t tmpfs none $work/yaml"
  ends "no YAML file" 66 'rank 1 on 127.0.0.3 .*: cannot read the configuration yaml/text.yaml: No such file' launch "${two[@]}" -- train yaml/text.yaml run.dir=other
  mkdir -p there/folder
  cp text.yaml text.h5 there/folder
  elsewhere "mount -t tmpfs none $work/there; cd /"
  cd there/folder
  ends "no folder to run in" 66 "rank 1 on .*: the folder that the job runs in, $work/there/folder, cannot be entered" launch "${two[@]}" -- train text.yaml run.dir=other
  cd "$work"
else
  echo "skipped: machines that see other files: mount namespaces need root"
fi

# Machines that cannot be reached, in mpirun's and ssh's words.
printf '#!/bin/bash\necho "ssh: connect to host 127.0.0.3 port 22: Connection refused" >&2\nexit 255\n' >other_machine
ends "no sshd" 69 'mpirun ended with exit code [0-9]+ before all ranks were started: no answer from 127.0.0.3; ssh: connect to host 127.0.0.3 port 22: Connection refused' launch -v "${two[@]}" -- train "${keys[@]}" run.dir=other
ends "no such interface" 64 '--interface eth99: .* has no such network interface; it has .*lo' launch "${two[@]}" --interface eth99 -- train "${keys[@]}" run.dir=other
succeeds "check, of several machines" lockstep check "${keys[@]}" run.dir=new --ranks 2 --per-machine 1
if stat -f -c %T . | grep -qE '^(ext2/ext3|xfs|btrfs|tmpfs|zfs|overlayfs)$'; then
  expect "check: a local file system" grep -qE '^warning +run directory +new: .*of this machine: do the others see it' out
fi
finish
