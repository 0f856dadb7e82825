#!/usr/bin/env bash
# Packages of npm, beside the virtual environment: those that tests need (scripts/npm), and those of
# which the TypeScript client is made (clients/typescript), with the hashes of their lock files.
# A bench installs those of bench/references/bullmq itself; here they are only locked.
# Usage: npm_packages.sh FOLDER, or npm_packages.sh --lock to resolve them.
set -euo pipefail

here=$(realpath "$(dirname "$0")")
# Node brings authorities of its own; trust what the system trusts, too.
authorities=/etc/ssl/certs/ca-certificates.crt
[[ ! -e $authorities ]] || export NODE_EXTRA_CA_CERTS=${NODE_EXTRA_CA_CERTS:-$authorities}
quiet=(--ignore-scripts --no-audit --no-fund --loglevel=error)

lock() {
  npm install --prefix "$1" --package-lock-only --omit-lockfile-registry-resolved "${quiet[@]}" >&2
}

install() {  # SOURCE FOLDER, a path without symbolic links: npm takes a link for a package
  # npm writes the hidden file when everything is there.
  [[ ! -e $2/node_modules/.package-lock.json ]] ||
    ! cmp -s "$1/package-lock.json" "$2/package-lock.json" || return 0
  mkdir -p "$2"
  cp "$1/package.json" "$1/package-lock.json" "$2"
  npm ci --prefix "$2" --fetch-retries=2 --fetch-timeout=30000 "${quiet[@]}" >&2
}

if [[ $1 == --lock ]]; then
  lock "$here/npm"
  lock "$here/../clients/typescript"
  lock "$here/../bench/references/bullmq"
else
  mkdir -p "$1"
  folder=$(realpath "$1")
  install "$here/npm" "$folder/npm"
  install "$here/../clients/typescript" "$folder/npm-client"
fi
