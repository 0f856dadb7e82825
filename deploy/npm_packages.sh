#!/usr/bin/env bash
# What tests need from npm, beside the virtual environment: the packages of deploy/npm, with the
# hashes of its lock file. Usage: npm_packages.sh FOLDER
set -euo pipefail

here=$(realpath "$(dirname "$0")")/npm
folder=$1/npm
# npm writes the hidden file when everything is there.
[[ ! -e $folder/node_modules/.package-lock.json ]] ||
  ! cmp -s "$here/package-lock.json" "$folder/package-lock.json" || exit 0
mkdir -p "$folder"
cp "$here/package.json" "$here/package-lock.json" "$folder"
# Node brings authorities of its own; trust what the system trusts, too.
authorities=/etc/ssl/certs/ca-certificates.crt
[[ ! -e $authorities ]] || export NODE_EXTRA_CA_CERTS=${NODE_EXTRA_CA_CERTS:-$authorities}
npm ci --prefix "$folder" --ignore-scripts --no-audit --no-fund \
  --fetch-retries=2 --fetch-timeout=30000 --loglevel=error >&2
