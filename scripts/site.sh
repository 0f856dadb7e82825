#!/usr/bin/env bash
# The documentation site, into site/ (or FOLDER), which the wheel and the image bring along: scripts/site.sh [FOLDER]
# A page that links to nothing, or that the contents of scripts/site/mkdocs.yml lack, is an error.
set -euo pipefail
cd "$(dirname "$0")/.."

folder=$(realpath -m "${1:-site}")
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)} NO_MKDOCS_2_WARNING=1 \
  .venv/bin/python -m mkdocs build --quiet --strict --config-file scripts/site/mkdocs.yml --site-dir "$folder"
find "$folder" -name '*.map' -delete
rm "$folder"/sitemap.xml*
