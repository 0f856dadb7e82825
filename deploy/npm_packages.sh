#!/usr/bin/env bash
# What tests need from the npm registry, beside the virtual environment: the official verifier of
# Standard Webhooks in JavaScript. Usage: npm_packages.sh FOLDER
set -euo pipefail

folder=$1/npm
version=1.1.1
[[ -e $folder/node_modules/standardwebhooks/package.json ]] &&
  grep -q "\"version\": \"$version\"" "$folder/node_modules/standardwebhooks/package.json" && exit 0
mkdir -p "$folder"
# Node brings authorities of its own; trust what the system trusts, too.
authorities=/etc/ssl/certs/ca-certificates.crt
[[ ! -e $authorities ]] || export NODE_EXTRA_CA_CERTS=${NODE_EXTRA_CA_CERTS:-$authorities}
npm install --prefix "$folder" --no-save --no-package-lock --ignore-scripts --no-audit --no-fund \
  --fetch-retries=2 --fetch-timeout=30000 --loglevel=error "standardwebhooks@$version" >&2
