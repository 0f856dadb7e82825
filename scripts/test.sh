#!/usr/bin/env bash
# Every test, in three runs side by side: most tests wait for something most of their time.
#   1. units, programs, and integration on SQLite
#   2. integration on MariaDB, then the browser
#   3. the flows as real processes, and some chaos; then the share of the tests of clusters: each
#      engine is killed once, under a small load
# Tests that need the machine for themselves (the mark `alone`) come when the three have ended. How
# tests are spread over processes is in tests/spreading.py.
#
# Integration runs whole on MariaDB. On SQLite run the files whose statements can differ there; pages
# and the API, which are the same code above them, do so under the full load only, and
# tests/programs/platform/test_walks.py visits every page on SQLite.
#
# `test.sh scale` runs the tests of clusters instead, which have the machine to themselves: each strike
# SCALE_RUNS times (2), or with SCALE_SHARE=yes the share only. The last line has the figures.
set -euo pipefail
cd "$(dirname "$0")/.."

logs=$(mktemp -d)
trap 'rm -rf "$logs"; kill $(jobs -p) 2>/dev/null || true' EXIT
unset PYTHONDONTWRITEBYTECODE  # hundreds of processes would compile everything anew

pytest=(.venv/bin/python -m pytest --durations=15 --durations-min=5)
# A test that is missing here is an error of pytest. The share judges what is lost or comes twice; on
# a machine that does other things it prints how long a failover took (tests/scale/strikes.py).
share=(
  'tests/scale/test_galera.py::test_the_writer_is_killed[1]'
  'tests/scale/test_redis.py::test_each_master[1-kill]'
  'tests/scale/test_cells.py::test_a_database_away[1-killed]'
  'tests/scale/test_machines.py::test_systemd_accepts_every_unit'
)
on_clusters() { TEST_DATABASE=sqlite "${pytest[@]}" -s "$@"; }
share_on_clusters() { SCALE_SHARE=yes on_clusters -n 2 "${share[@]}"; }
if [[ ${1:-} == scale ]]; then
  if [[ ${SCALE_SHARE:-} == yes ]]; then share_on_clusters; else on_clusters -n 0 tests/scale; fi
  exit
fi

above_sql='admin|alerts_out|api|conformance|console|cors|fast_intake|figures|first_user|getting_started|hardening|header'
above_sql+='|limited|login|management|metrics|navigation|null|official|overview|page|planted|preferences|probing|reference'
above_sql+='|refusals|roles|sandbox|schema|second_factor|server|sessions|sign_in|static|statistics|web_requests|wizard'
integration=(tests/integration)
[[ -n ${MSGPLATFORM_FULL_LOAD:-} ]] ||
  mapfile -t integration < <(printf '%s\n' tests/integration/*/test_*.py | grep -vE "/test_[a-z_]*($above_sql)")

# The first run has most to do, and most of it waits: it is given most processes.
on_sqlite() {
  TEST_DATABASE=sqlite "${pytest[@]}" -n 4 -m 'not alone' tests/unit tests/programs "${integration[@]}"
}
# A browser's tests have an event loop, in whose process Django asks no database.
on_mariadb() {
  local failed=0
  TEST_DATABASE=mariadb "${pytest[@]}" -n 2 tests/integration || failed=$?
  TEST_DATABASE=mariadb "${pytest[@]}" -n 2 tests/browser || failed=$?
  return "$failed"
}
flows() { TEST_DATABASE=mariadb "${pytest[@]}" "$@" tests/flows tests/chaos; }
alone() {
  local files
  mapfile -t files < <(grep -rlE '^ *(@|pytestmark = )?pytest\.mark\.alone' tests/programs tests/flows tests/integration)
  TEST_DATABASE=mariadb "${pytest[@]}" -n 0 -m alone "${files[@]}"
}

failed=0
on_sqlite >"$logs/sqlite" 2>&1 &
sqlite=$!
on_mariadb >"$logs/mariadb" 2>&1 &
mariadb=$!
if [[ -z ${MSGPLATFORM_FULL_LOAD:-} ]]; then
  flows -n 2 -m 'not alone' 2>&1 | tee "$logs/flows" || failed=$?
fi
share_on_clusters 2>&1 | tee "$logs/share" || failed=$?
wait "$mariadb" || failed=$?
cat "$logs/mariadb"
wait "$sqlite" || failed=$?
cat "$logs/sqlite"
# Under their full load all flows have the machine to themselves.
if [[ -n ${MSGPLATFORM_FULL_LOAD:-} ]]; then
  flows -n 0 -m 'not alone' 2>&1 | tee "$logs/flows" || failed=$?
fi
alone 2>&1 | tee "$logs/alone" || failed=$?
# Every failure once more, in few lines: the whole is too long to be read.
if ((failed)); then
  grep -hE '^(_{3,} .* _{3,}|E  .*|FAILED .*|ERROR .*|[^ ]+\.py:[0-9]+: .*)$' "$logs"/* | cut -c1-300 || true
fi
exit "$failed"
