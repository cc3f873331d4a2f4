#!/usr/bin/env bash
# Runs a tutorial from its own text, in a folder of its own, and compares what the commands print with what the page shows.
#   tutorial_test.sh LOCKSTEP REPOSITORY TOOLS PAGE            compares; exit 77 where the page needs a file that this system lacks
#   tutorial_test.sh LOCKSTEP REPOSITORY TOOLS PAGE --write    writes what the commands print into the page
# In a ```console block a line that begins with "$ " is a command (lines that begin with "> " go on with it), and the lines below are what it
# prints, in which "..." stands for anything, over line ends too. ```LANGUAGE FILE blocks are files. <!-- run: COMMAND --> is run and not shown;
# <!-- needs: FILE --> says what the system must have.
set -uo pipefail
lockstep=$(realpath "$1") repository=$(realpath "$2") tools=$(realpath "$3") page=$(realpath "$4") write=${5:-}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
mkdir bin
ln -s "$lockstep" bin/lockstep
ln -s "$repository/configs" configs
export LOCKSTEP_BUILD=${lockstep%/bin/lockstep} LOCKSTEP_SOURCE=$repository PATH=$work/bin:$tools:$PATH LC_ALL=C.UTF-8 HOME=$work
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1 \
  OMPI_MCA_hwloc_base_binding_policy=none
failed=0 number=0 state=text command="" expected="" new=""

# What changes from run to run: times, rates, process numbers, and how far a progress line came.
settled() {
  sed -E -e 's/[0-9.]+[kMG]? ?(tokens|samples|rows|bytes|images|steps)\/s/... \1\/s/g' -e 's/\b[0-9]+:[0-9]{2}(:[0-9]{2})?( left)?/.../g' \
    -e 's/\b[0-9.]+ (s|ms|us|MiB|GiB|GB)\b/... \1/g' -e "s#$work/##g" -e "s#$lockstep#lockstep#g" \
      -e 's/([0-9]\.[0-9]{6})  [0-9]+\.[0-9]+/\1  .../' -e 's/ +[0-9]+\.[0-9]( +[0-9]+)$/ ...\1/' -e 's/"seconds":[0-9.]+/"seconds":.../' \
      -e 's/, [0-9]+ at a time/, ... at a time/' -e 's/^(starting [0-9]+ ranks: ).*/\1.../' |
    sed -E -e 's/\b(avx512_bf16|avx512|avx2|amx|generic)\b/.../' -e 's/[0-9]+ (compute threads|threads each|cores)\b/... \1/g' \
      -e 's/[0-9]+% of the time/...% of the time/' -e 's/(lockstep|HDF5) [0-9.]+[0-9]/\1 .../g' -e 's/Open MPI v[0-9.]+/... MPI .../' |
    sed -E -e '/^(rank 0: )?waited for other ranks/d' -e '/^(rank 0: )?(train|import|write|check|eval|predict|generate|read|fit|learn|prove) [0-9]+\/[0-9]+ /d'
}

# The pattern of [[ ]] that the expected lines are: "..." is anything, all else is itself.
pattern_of() { sed -E 's/[^A-Za-z0-9 ]/\\&/g; s/\\\.\\\.\\\./*/g' <<<"$1"; }

finish_command() {
  local said code=0 name
  if [ -z "$command" ]; then return; fi
  number=$((number + 1))
  said=$(timeout 600 bash -c "$command" </dev/null 2>&1) || code=$?
  said=$(settled <<<"$said")
  if [ -n "$write" ]; then
    if [ -n "$said" ]; then new+=$said$'\n'; fi
  else
    new+=$expected
    name="${page##*/}, command $number: $command"
    # shellcheck disable=SC2053  # a pattern is meant
    if [[ $said != $(pattern_of "${expected%$'\n'}") ]]; then
      printf 'FAILED: %s\n--- the page shows:\n%s--- it printed (exit %s):\n%s\n' "$name" "$expected" "$code" "$said"
      failed=1
    fi
  fi
  if [ "$code" -ne 0 ] && [[ $expected != *"error: "* ]]; then
    printf 'FAILED: %s: exit %s\n%s\n' "$command" "$code" "$said"
    failed=1
  fi
  command="" expected=""
}

while IFS= read -r line; do
  case $state in
    text)
      new+=$line$'\n'
      case $line in
        '```console') state=console ;;
        '```'*' '*) state=file file=${line#* } && mkdir -p "$(dirname "$file")" && : >"$file" ;;
        '```'?*) state=other ;;
        '```') state=other ;;
        '<!-- run: '*' -->')
          hidden=${line#'<!-- run: '}
          if ! bash -c "${hidden%' -->'}" >hidden.log 2>&1; then echo "FAILED: $line" && cat hidden.log && failed=1; fi
          rm -f hidden.log ;;
        '<!-- needs: '*' -->')
          needed=${line#'<!-- needs: '} needed=${needed%' -->'}
          if ! [ -e "$needed" ] && ! command -v "$needed" >/dev/null; then echo "skipped: there is no $needed" && exit 77; fi ;;
      esac ;;
    console)
      case $line in
        '$ '*) finish_command; command=${line#'$ '}; new+=$line$'\n' ;;
        '> '*) command+=$'\n'${line#'> '}; new+=$line$'\n' ;;
        '```') finish_command; state=text; new+=$line$'\n' ;;
        *) expected+=$line$'\n' ;;
      esac ;;
    file)
      new+=$line$'\n'
      if [ "$line" = '```' ]; then state=text; else printf '%s\n' "$line" >>"$file"; fi ;;
    other)
      new+=$line$'\n'
      if [ "$line" = '```' ]; then state=text; fi ;;
  esac
done <"$page"
if [ "$state" != text ]; then echo "FAILED: a block of $page has no end" && failed=1; fi
if [ "$number" -eq 0 ]; then echo "FAILED: $page has no command" && failed=1; fi
if [ -n "$write" ] && [ "$failed" -eq 0 ]; then printf '%s' "$new" >"$page"; fi
echo "$number commands of ${page##*/}"
exit "$failed"
