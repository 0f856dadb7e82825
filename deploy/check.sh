#!/usr/bin/env bash
# Style, types, who imports whom, and that no migration is missing.
set -euo pipefail
cd "$(dirname "$0")/.."

state=$(mktemp -d)
trap 'rm -rf "$state"' EXIT
export STATE_DIR=$state SECRET_KEY=only-for-checks LOG_LEVEL=WARNING

python=.venv/bin/python
"$python" deploy/secret_key.py 2>/dev/null  # the encryption key
"$python" -m ruff check .
"$python" -m ruff format --check .
"$python" -m mypy msgplatform notify gateway crmsync tests bench
.venv/bin/lint-imports
"$python" manage.py makemigrations --check --dry-run
