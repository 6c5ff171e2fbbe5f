#!/usr/bin/env bash
# Makes a base image out of Debian packages, for machines that reach a Debian mirror but no image
# registry. It stands in for the Python base of our images and for Redis alike.
#
# Usage, as root:  containers/base_image.sh [TAG]      (default: nitro-base:bookworm)
#   DOCKER           the docker command            (default: docker)
#   DEBIAN_MIRROR    where packages come from      (default: debootstrap's own)
set -euo pipefail

tag=${1:-nitro-base:bookworm}
docker=${DOCKER:-docker}
packages=ca-certificates,python3,python3-venv,redis-server

if "$docker" image inspect "$tag" >/dev/null 2>&1; then
  exit 0
fi
if ! command -v debootstrap >/dev/null; then
  echo "base_image.sh: debootstrap is missing: apt-get install debootstrap" >&2
  exit 2
fi

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
debootstrap --variant=minbase --include="$packages" bookworm "$folder/root" \
  ${DEBIAN_MIRROR:+"$DEBIAN_MIRROR"} >"$folder/log" 2>&1 || {
  tail -n 20 "$folder/log" "$folder/root/debootstrap/debootstrap.log" >&2 || true
  exit 1
}
# What an image never needs; the same that slim images leave out.
rm -rf "$folder"/root/var/cache/apt/* "$folder"/root/var/lib/apt/lists/* "$folder"/root/var/log/* \
  "$folder"/root/usr/share/{doc,info,locale,man}/*
tar --create --directory "$folder/root" --exclude=./dev/* --exclude=./proc/* --exclude=./sys/* . |
  "$docker" import --change 'CMD ["python3"]' - "$tag" >/dev/null
