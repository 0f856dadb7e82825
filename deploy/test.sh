#!/usr/bin/env bash
# Every test. Units, and integration on SQLite, run beside integration on MariaDB; then, with the
# machine to themselves, the flows as real processes and the browser.
set -euo pipefail
cd "$(dirname "$0")/.."

python=.venv/bin/python
logs=$(mktemp -d)
trap 'rm -rf "$logs"; kill $(jobs -p) 2>/dev/null || true' EXIT

TEST_DATABASE=sqlite "$python" -m pytest tests/unit tests/integration >"$logs/sqlite" 2>&1 &
sqlite=$!
failed=0
TEST_DATABASE=mariadb "$python" -m pytest tests/integration || failed=$?
wait "$sqlite" || failed=$?
cat "$logs/sqlite"
[[ $failed == 0 ]] || exit "$failed"
TEST_DATABASE=mariadb "$python" -m pytest tests/flows tests/browser
