#!/usr/bin/env bash
# A release: checks, packages, notes and a tag. Nothing is pushed.
#
#     scripts/release.sh VERSION
#
# CHANGELOG.md has a section [VERSION]. What a client cannot work with any more fails, unless that
# section says *Breaking*; the OpenAPI document is kept for the next release in docs/openapi.json.
# Afterwards dist/ has the wheel, the sdist, the client packages, a bill of materials (CycloneDX), the
# notes, and hashes of all.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { echo "release: $*" >&2; exit 1; }
version=${1:-}
[[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+$ ]] || fail "name a version: scripts/release.sh 1.2.3"
[[ -z $(git status --porcelain) ]] || fail "there are changes that are not committed"
if git rev-parse --quiet --verify "refs/tags/v$version" >/dev/null; then fail "v$version is there"; fi
grep -q "^## \[$version\]" CHANGELOG.md || fail "CHANGELOG.md has no section [$version]"

# One number for the platform and its clients.
sed -i "s/^version = \"[^\"]*\"/version = \"$version\"/" pyproject.toml clients/python/pyproject.toml
sed -i "s/^__version__ = .*/__version__ = \"$version\"/" msgplatform/__init__.py
npm version --prefix clients/typescript --no-git-tag-version --allow-same-version "$version" >/dev/null
sed -i "s/^## \[$version\] - Unreleased/## [$version] - $(date -u +%F)/" CHANGELOG.md

${RELEASE_CHECKS:-.ci/run}

rm -rf dist clients/dist
scripts/clients.sh
mkdir dist
sed -n "/^## \[$version\]/,/^## \[/{/^## \[/d;p}" CHANGELOG.md >dist/NOTES.md
state=$(mktemp -d)
trap 'rm -rf "$state"' EXIT
export STATE_DIR=$state SECRET_KEY=only-for-the-document LOG_LEVEL=ERROR
.venv/bin/python manage.py make_keys 2>/dev/null
.venv/bin/python manage.py spectacular --format openapi-json --file dist/openapi.json
if [[ -e docs/openapi.json ]] && ! .venv/bin/python scripts/api_changes.py docs/openapi.json dist/openapi.json; then
  grep -q '\*Breaking\*' dist/NOTES.md || fail "these changes break clients: say so under *Breaking* in CHANGELOG.md"
fi
cp dist/openapi.json docs/openapi.json

# Reproducible: the time of the commit that is released, and the same bytes twice.
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
.venv/bin/python -m hatchling build -d dist >&2
.venv/bin/python -m hatchling build -d "$state/again" >&2
for package in "$state"/again/*; do cmp "$package" "dist/${package##*/}"; done
cp clients/dist/* requirements.txt dist

# Tools in an environment of their own: what is in the packages, and whether their metadata is right.
.venv/bin/python -m venv --without-pip "$state/tools"
.venv/bin/python deploy/bootstrap.py --print release >"$state/tools.txt"
.venv/bin/python -m pip --python "$state/tools/bin/python" install -qq --no-deps --require-hashes -r "$state/tools.txt"
"$state/tools/bin/python" -m cyclonedx_py requirements requirements.txt --pyproject pyproject.toml \
  --output-reproducible --output-file dist/sbom.cdx.json
"$state/tools/bin/python" -m twine check --strict dist/*.whl "dist/msgplatform-$version.tar.gz" >&2
(cd dist && sha256sum -- * >"$state/sums" && mv "$state/sums" SHA256SUMS)

git add -A
git commit --quiet --allow-empty -m "Release $version"
git tag -a -F dist/NOTES.md "v$version"
echo "release: v$version is tagged; dist/ has its packages. Push the tag, and sign SHA256SUMS." >&2
