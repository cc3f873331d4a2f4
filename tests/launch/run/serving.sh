# What the tests of `lockstep serve` share: a server in the background, and a client in a few lines.
# Sourced behind common.sh.
# shellcheck shell=bash disable=SC2154
shopt -s lastpipe # raw() at the end of a pipe sets variables of this shell
server=""
trap 'if [ -n "$server" ]; then kill -9 "$server" 2>/dev/null; fi; rm -rf "$work"' EXIT

# serve RUN options...: $port and $server are then its own.
serve() {
  : >served.log
  "$binary" serve "$@" --listen 127.0.0.1:0 >served.out 2>served.log &
  server=$!
  until grep -q '^serving ' served.log || ! kill -0 "$server" 2>/dev/null; do sleep 0.02; done
  port=$(sed -nE 's#.* at http://127.0.0.1:([0-9]+)$#\1#p' served.log)
  if [ -z "$port" ]; then problem "serve $*: does not begin" && cat served.log; fi
}
# ends CODE: by SIGTERM
ends() {
  kill -TERM "$server"
  code=0
  wait "$server" || code=$?
  server=""
  same "the server's exit code" "$1" "$code"
}
# raw: sends standard input as it is; the reply, until the server closes, is in ./reply, its status in $status, its body in ./out.
raw() {
  status=""
  exec 3<>"/dev/tcp/127.0.0.1/$port"
  cat >&3
  timeout 60 cat <&3 >reply || problem "a reply that does not end"
  exec 3>&-
  status=$(head -n 1 reply | cut -d ' ' -f 2)
  sed '1,/^\r$/d' reply >out
  : >err
}
# ask PATH [BODY]: POST with a body, else GET; by HTTP/1.0, so that streams come as they are.
ask() {
  local path=$1 body=${2:-}
  if [ -n "$body" ]; then
    printf 'POST %s HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s' "$path" "${#body}" "$body" | raw
  else
    printf 'GET %s HTTP/1.0\r\n\r\n' "$path" | raw
  fi
}
texts() { grep -oE '"(text|content)":"([^"\\]|\\.)*"' "${1:-out}" | sed -E 's/^"(text|content)":"(.*)"$/\2/' | tr -d '\n' | sed 's/\\n/\n/g'; }
rejects() { # WHAT STATUS REGEXP: of the last reply
  if [ "$status" != "$2" ] || ! grep -qE "\"message\":\"[^\"]*$3" out; then problem "$1: $2 was due, and a message like: $3" && head -c 600 reply; fi
}
metric() { ask /metrics && sed -n "s/^lockstep_serve_$1 //p" out; }
