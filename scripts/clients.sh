#!/usr/bin/env bash
# The client library: a wheel of clients/python, with the part that is generated from the OpenAPI
# document. The generated part is in the wheel only.
#
#     scripts/clients.sh [FOLDER]     where the wheel goes, clients/python/dist by default
set -euo pipefail
cd "$(dirname "$0")/.."

wheels=$(realpath -m "${1:-clients/python/dist}")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
PATH=$PWD/.venv/bin:$PATH  # the generator formats its modules by ruff

LOG_LEVEL=ERROR python manage.py spectacular --format openapi-json --file "$folder/openapi.json"
cp -R clients/python "$folder/package"
openapi-python-client generate --path "$folder/openapi.json" --meta none --fail-on-warning \
  --output-path "$folder/package/src/msgplatform_client/generated" >&2
mkdir -p "$wheels"
python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir "$wheels" "$folder/package"
