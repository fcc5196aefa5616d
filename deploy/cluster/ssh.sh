#!/usr/bin/env bash
# Makes a cluster of machines that are reached by ssh, and ends it again.
#   deploy/cluster/ssh.sh up   HEAD NODE...    HEAD and NODE: [user@]private-address
#   deploy/cluster/ssh.sh down HEAD NODE...
# Each machine has Docker, NVIDIA's container toolkit and a clone of this repository in DIRECTORY (recount), in which
# `docker compose build head node-broker sandbox` was run. The addresses are those of the network that only the machines share.
set -euo pipefail
directory=${DIRECTORY:-recount}
action=${1:?up or down}
shift
[ $# -ge 1 ] || { echo "which machines? the head comes first" >&2; exit 2; }
head=$1
address() { printf '%s' "${1##*@}"; }

# on MACHINE COMMAND: what it needs to know comes by its standard input, and is seen in no list of processes.
on() { ssh -o BatchMode=yes "$1" "cd $directory && set -a && . /dev/stdin && set +a && $2"; }

case $action in
  up)
    umask 077
    token_file=${TOKEN_FILE:-$HOME/.recount-cluster-token}
    [ -s "$token_file" ] || head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' > "$token_file"
    token=$(cat "$token_file")
    printf 'RAY_AUTH_TOKEN=%s\nRECOUNT_NODE_ADDRESS=%s\n' "$token" "$(address "$head")" |
      on "$head" 'docker compose up -d head'
    for machine in "${@:2}"; do
      printf 'RAY_AUTH_TOKEN=%s\nRECOUNT_NODE_ADDRESS=%s\nRAY_ADDRESS=%s:6379\n' \
        "$token" "$(address "$machine")" "$(address "$head")" |
        on "$machine" 'docker compose up -d node'
    done
    echo "evaluate with: ssh -t $head 'cd $directory && docker compose exec head recount-entry eval final4'"
    ;;
  down)
    for machine in "${@:2}" "$head"; do
      on "$machine" 'docker compose --profile cluster down' < /dev/null
    done
    ;;
  *)
    echo "up or down, not $action" >&2
    exit 2
    ;;
esac
