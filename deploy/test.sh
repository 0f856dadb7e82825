#!/usr/bin/env bash
# Every test. Units, programs and integration on SQLite run beside integration on MariaDB; then the
# flows as real processes, some chaos, and the browser. Most tests wait for something most of their time, so a
# core does several at once; how they are spread over processes is in tests/spreading.py.
set -euo pipefail
cd "$(dirname "$0")/.."

logs=$(mktemp -d)
trap 'rm -rf "$logs"; kill $(jobs -p) 2>/dev/null || true' EXIT

pytest=(.venv/bin/python -m pytest --durations=15 --durations-min=5)
# Under their full load the flows have the machine to themselves, one after another.
flows=3
[[ -z ${MSGPLATFORM_FULL_LOAD:-} ]] || flows=0

TEST_DATABASE=sqlite "${pytest[@]}" -n 3 tests/unit tests/programs tests/integration >"$logs/sqlite" 2>&1 &
sqlite=$!
failed=0
TEST_DATABASE=mariadb "${pytest[@]}" -n 3 tests/integration || failed=$?
wait "$sqlite" || failed=$?
cat "$logs/sqlite"
[[ $failed == 0 ]] || exit "$failed"
TEST_DATABASE=mariadb "${pytest[@]}" -n "$flows" tests/flows tests/chaos tests/browser
