#!/usr/bin/env bash
# Every test. Units, programs and integration on SQLite run beside integration on MariaDB and the
# browser, which are mostly computing; then the flows as real processes, and some chaos, which wait for
# something most of their time. How tests are spread over processes is in tests/spreading.py.
set -euo pipefail
cd "$(dirname "$0")/.."

logs=$(mktemp -d)
trap 'rm -rf "$logs"; kill $(jobs -p) 2>/dev/null || true' EXIT
unset PYTHONDONTWRITEBYTECODE  # hundreds of processes would compile everything anew

pytest=(.venv/bin/python -m pytest --durations=15 --durations-min=5)
# Under their full load the flows have the machine to themselves, one after another.
flows=4
[[ -z ${MSGPLATFORM_FULL_LOAD:-} ]] || flows=0

TEST_DATABASE=sqlite "${pytest[@]}" -n 3 tests/unit tests/programs tests/integration >"$logs/sqlite" 2>&1 &
sqlite=$!
export TEST_DATABASE=mariadb
failed=0
# A browser's tests have an event loop, in whose process Django asks no database.
{ "${pytest[@]}" -n 3 tests/integration && "${pytest[@]}" -n 3 tests/browser; } || failed=$?
wait "$sqlite" || failed=$?
cat "$logs/sqlite"
[[ $failed == 0 ]] || exit "$failed"
"${pytest[@]}" -n "$flows" tests/flows tests/chaos
