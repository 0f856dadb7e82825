#!/usr/bin/env bash
# Resolve the requirement files into lock files: every package that they lead to, with the hashes of
# all files of its release, for each platform and for Python 3.11 and later. A version that is locked
# stays while the requirements allow it. Usage: lock.sh [--upgrade | --upgrade-package NAME]
set -euo pipefail
cd "$(dirname "$0")/.."

unfinished=$(mktemp -d)
trap 'rm -rf "$unfinished"' EXIT

# resolve SOURCE LOCK [OPTION…]: the lock of SOURCE, with the versions of LOCK where they fit.
resolve() {
  local source=$1 target=${1%.txt}.lock versions=$2
  shift 2
  rm -f "$unfinished/lock"
  [[ ! -e $versions ]] || cp "$versions" "$unfinished/lock"
  .venv/bin/python -m uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
    --system-certs --no-header --emit-build-options "$@" --output-file "$unfinished/lock" "$source"
  # For pip the last word about a package counts, so the one about all goes first.
  {
    echo "# Made from $source by: make lock"
    grep -- "^--only-binary :all:" "$unfinished/lock" || true
    grep -v -- "^--only-binary :all:" "$unfinished/lock"
  } >"$unfinished/whole"
  cp "$unfinished/whole" "$target"
}

resolve requirements-dev.txt requirements-dev.lock "$@"
resolve requirements.txt requirements-dev.lock
resolve requirements-base.txt requirements-dev.lock
resolve requirements-tryton.txt requirements-tryton.lock "$@"
resolve bench/references/requirements-dlt.txt bench/references/requirements-dlt.lock "$@"

authorities=/etc/ssl/certs/ca-certificates.crt
[[ ! -e $authorities ]] || export NODE_EXTRA_CA_CERTS=${NODE_EXTRA_CA_CERTS:-$authorities}
npm install --prefix deploy/npm --package-lock-only --omit-lockfile-registry-resolved \
  --ignore-scripts --no-audit --no-fund --loglevel=error >&2
