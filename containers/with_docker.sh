#!/usr/bin/env bash
# Runs a command with a Docker engine: the one that answers, else one started for as long.
#
# Usage:  containers/with_docker.sh [--or-skip] [--registry] COMMAND [ARGUMENT…]
#   --or-skip    when no engine can be had, say so loudly and end with 0 instead of 1
#   --registry   the command also needs the program docker-registry
#
# As root on Debian or Ubuntu it installs the engine, Compose, debootstrap and the registry when they
# are missing.
set -euo pipefail

or_skip=no
registry=no
while [ $# -gt 0 ]; do
  case $1 in
    --or-skip) or_skip=yes ;;
    --registry) registry=yes ;;
    *) break ;;
  esac
  shift
done
if [ $# -eq 0 ]; then
  echo "usage: containers/with_docker.sh [--or-skip] [--registry] COMMAND [ARGUMENT...]" >&2
  exit 2
fi

log=$(mktemp)
engine=
end() {
  if [ -n "$engine" ]; then
    kill "$engine" 2>/dev/null || true
    wait "$engine" 2>/dev/null || true
  fi
  rm -f "$log"
}
trap end EXIT

give_up() {
  {
    echo
    echo "######################################################################"
    echo "#  NO DOCKER ENGINE: $1"
    echo "#  not run: $command"
    echo "######################################################################"
    tail -n 20 "$log" | sed 's/^/#  /'
  } >&2
  if [ "$or_skip" = yes ]; then exit 0; else exit 1; fi
}
command=$*

has_registry() { [ "$registry" = no ] || command -v docker-registry >/dev/null; }

has_compose() { docker compose version >/dev/null 2>&1 || command -v docker-compose >/dev/null; }

install_missing() {
  local missing=()
  command -v docker >/dev/null && command -v dockerd >/dev/null || missing+=(docker.io)
  has_compose || missing+=(docker-compose)
  command -v debootstrap >/dev/null || missing+=(debootstrap)
  command -v iptables >/dev/null || missing+=(iptables)
  has_registry || missing+=(docker-registry)
  if [ ${#missing[@]} -eq 0 ]; then return 0; fi
  echo "with_docker.sh: installing ${missing[*]}" >&2
  command -v apt-get >/dev/null || return 1
  { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends \
    "${missing[@]}"; } >"$log" 2>&1
}

answers() { docker info >/dev/null 2>&1; }

if ! answers || ! has_compose || ! has_registry; then
  [ "$(id -u)" = 0 ] || give_up "it, Compose or the registry is missing, and only root may get them"
  install_missing || give_up "packages could not be installed"
fi
if ! answers; then
  dockerd >"$log" 2>&1 &
  engine=$!
  for _ in $(seq 120); do
    if answers; then break; fi
    kill -0 "$engine" 2>/dev/null || give_up "dockerd ended"
    sleep 0.5
  done
  answers || give_up "dockerd does not answer after a minute"
fi
"$@"
