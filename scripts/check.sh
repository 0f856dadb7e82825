#!/usr/bin/env bash
# Style, types, the ceilings of the code's figures, translations, who imports whom, files of deploy/ by the schemas of
# Compose and Kubernetes, the documentation site, that no migration is missing, what breaks clients, and that every test
# can be collected.
set -euo pipefail
cd "$(dirname "$0")/.."

state=$(mktemp -d)
trap 'rm -rf "$state"; kill $(jobs -p) 2>/dev/null || true' EXIT
export STATE_DIR=$state SECRET_KEY=only-for-checks LOG_LEVEL=WARNING
unset PYTHONDONTWRITEBYTECODE  # what is compiled here, the tests need not compile again

python=.venv/bin/python
"$python" manage.py make_keys 2>/dev/null  # the encryption key
"$python" -m ruff check .
"$python" -m ruff format --check .
"$python" -m mypy msgplatform notify gateway crmsync demo bench tests >"$state/types" 2>&1 &
types=$!
"$python" scripts/shape.py --check
scripts/messages.sh --check
.venv/bin/lint-imports
.venv/bin/check-jsonschema --quiet --builtin-schema vendor.compose-spec deploy/compose*.yaml
.venv/bin/check-jsonschema --quiet --builtin-schema vendor.github-workflows .github/workflows/*.yml
if command -v kubectl >/dev/null; then  # Debian 12 has none
  for overlay in small cluster; do
    kubectl kustomize "deploy/kubernetes/$overlay" >"$state/$overlay.yaml"
    .venv/bin/kubernetes-validate --quiet --strict "$state/$overlay.yaml"
  done
fi
scripts/site.sh "$state/site"
"$python" manage.py makemigrations --check --dry-run
if [[ -e docs/openapi.json ]]; then  # of the last release: scripts/release.sh
  LOG_LEVEL=ERROR "$python" manage.py spectacular --format openapi-json --file "$state/openapi.json"
  "$python" scripts/api_changes.py docs/openapi.json "$state/openapi.json" || awk '/^## \[/{n++} n==1' CHANGELOG.md |
    grep -q '\*Breaking\*' || { echo "These changes break clients: say so under *Breaking* in CHANGELOG.md." >&2; exit 1; }
fi
# The counts of tests hold here as they do in CI, so that nobody learns of a wrong one only there.
CI=true "$python" -m pytest --collect-only -q -m "not full" tests >"$state/tests" || { cat "$state/tests"; exit 1; }
failed=0
wait "$types" || failed=$?
cat "$state/types"
exit "$failed"
