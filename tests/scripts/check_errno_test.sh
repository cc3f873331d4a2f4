#!/usr/bin/env bash
# errno among the arguments of require() and check() is found, in whatever line; elsewhere it is no break of the rule. Usage: check_errno_test.sh REPOSITORY
set -euo pipefail
check=$1/scripts/check_errno
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
mkdir -p "$tree/core/base"
failed=0
# says CODE TEXT LINES: with LINES in a file the check exits with CODE and says TEXT
says() {
  printf '%b' "$3" >"$tree/core/base/a.cpp"
  local said code=0
  said=$("$check" "$tree" 2>&1) || code=$?
  if [ "$code" -eq "$1" ] && grep -qF -- "$2" <<<"$said"; then return; fi
  printf 'FAILED:\n%b  exit %s, said:\n%s\n  expected: exit %s, %s\n' "$3" "$code" "$said" "$1" "$2"
  failed=1
}

says 1 'core/base/a.cpp:1: errno' 'require(::rename(a, b) == 0, code, path, ": ", std::strerror(errno));\n'
says 1 'core/base/a.cpp:3: errno among the arguments of the call that begins in line 2' \
  'void f() {\n  require(file && write_all(file, text(")")), code,\n          name, ": ", std::strerror(errno));\n}\n'
says 1 'core/base/a.cpp:2: errno' 'f();\nif (x) check(g() == 0 || errno == EINVAL, path);\n'
says 1 'core/base/a.cpp:1: errno' "require(c == '(', code, h(errno));\n"
says 0 'in 1 files' 'require_done(::rename(a, b) == 0 || errno == EXDEV, code, path);\n'
says 0 'in 1 files' 'require(good, code, "errno (", path); const int error = errno;\n'
says 0 'in 1 files' '// require(f(), strerror(errno))\nfail_write(path, errno);\nmy_require(errno); o.check(errno);\n'
says 0 'in 1 files' 'const int error = errno;\nrequire(done, code, path, ": ", std::strerror(error));\nif (errno) f();\n'
exit $failed
