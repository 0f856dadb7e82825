#!/usr/bin/env bash
# Packages of npm that tests need, beside the virtual environment: those of scripts/npm, with the
# hashes of its lock file. Usage: npm_packages.sh FOLDER, or npm_packages.sh --lock to resolve them.
set -euo pipefail

here=$(realpath "$(dirname "$0")")/npm
# Node brings authorities of its own; trust what the system trusts, too.
authorities=/etc/ssl/certs/ca-certificates.crt
[[ ! -e $authorities ]] || export NODE_EXTRA_CA_CERTS=${NODE_EXTRA_CA_CERTS:-$authorities}
quiet=(--ignore-scripts --no-audit --no-fund --loglevel=error)
if [[ $1 == --lock ]]; then
  npm install --prefix "$here" --package-lock-only --omit-lockfile-registry-resolved "${quiet[@]}" >&2
  exit
fi
folder=$1/npm
# npm writes the hidden file when everything is there.
[[ ! -e $folder/node_modules/.package-lock.json ]] ||
  ! cmp -s "$here/package-lock.json" "$folder/package-lock.json" || exit 0
mkdir -p "$folder"
cp "$here/package.json" "$here/package-lock.json" "$folder"
npm ci --prefix "$folder" --fetch-retries=2 --fetch-timeout=30000 "${quiet[@]}" >&2
