#!/usr/bin/env bash
# Every test. Units, programs and integration on SQLite run beside integration on MariaDB and the
# browser, which are mostly computing; then the flows as real processes, and some chaos, which wait for
# something most of their time. How tests are spread over processes is in tests/spreading.py.
#
# Integration runs whole on MariaDB. On SQLite run the files whose statements can differ there; pages
# and the API, which are the same code above them, do so under the full load only, and
# tests/programs/platform/test_walks.py visits every page on SQLite.
#
# `test.sh scale` runs the tests of clusters instead, which have the machine to themselves: each strike
# SCALE_RUNS times (2), or with SCALE_SHARE=yes the short share once. The last line has the figures.
set -euo pipefail
cd "$(dirname "$0")/.."

logs=$(mktemp -d)
trap 'rm -rf "$logs"; kill $(jobs -p) 2>/dev/null || true' EXIT
unset PYTHONDONTWRITEBYTECODE  # hundreds of processes would compile everything anew

pytest=(.venv/bin/python -m pytest --durations=15 --durations-min=5)
if [[ ${1:-} == scale ]]; then
  TEST_DATABASE=sqlite "${pytest[@]}" -n 0 -s tests/scale
  exit
fi
# Under their full load the flows have the machine to themselves, one after another.
flows=4
[[ -z ${MSGPLATFORM_FULL_LOAD:-} ]] || flows=0

above_sql='admin|api|conformance|console|cors|figures|first_user|getting_started|hardening|header|login|management'
above_sql+='|metrics|navigation|null|official|overview|page|planted|preferences|probing|refusals|roles|schema|server'
above_sql+='|static|statistics|web_requests|wizard|fast_intake'
integration=(tests/integration)
[[ -n ${MSGPLATFORM_FULL_LOAD:-} ]] ||
  mapfile -t integration < <(printf '%s\n' tests/integration/*/test_*.py | grep -vE "/test_[a-z_]*($above_sql)")

TEST_DATABASE=sqlite "${pytest[@]}" -n 3 tests/unit tests/programs "${integration[@]}" >"$logs/sqlite" 2>&1 &
sqlite=$!
export TEST_DATABASE=mariadb
failed=0
# A browser's tests have an event loop, in whose process Django asks no database.
{ "${pytest[@]}" -n 3 tests/integration && "${pytest[@]}" -n 3 tests/browser; } || failed=$?
wait "$sqlite" || failed=$?
cat "$logs/sqlite"
[[ $failed == 0 ]] || exit "$failed"
"${pytest[@]}" -n "$flows" tests/flows tests/chaos
