#!/usr/bin/env bash
# A release: checks, packages, notes and a tag. Nothing is pushed.
#
#     scripts/release.sh VERSION
#
# CHANGELOG.md has a section [VERSION]. What a client cannot work with any more fails, unless that
# section says *Breaking*; the OpenAPI document is kept for the next release in docs/openapi.json.
# Afterwards dist/ has the wheel, the sdist, the client packages, the image and the Debian package (as root, where
# mmdebstrap and umoci are installed), a bill of materials (CycloneDX), the notes, and hashes of all. Who
# builds the tag again gets the same bytes, image and Debian package aside, which hold Debian's packages of the day.
# A release that fails: git reset --hard, with HEAD~ after its commit.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { echo "release: $*" >&2; exit 1; }
version=${1:-}
[[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+$ ]] || fail "name a version: scripts/release.sh 1.2.3"
[[ -z $(git status --porcelain) ]] || fail "there are changes that are not committed"
if git rev-parse --quiet --verify "refs/tags/v$version" >/dev/null; then fail "v$version is there"; fi
grep -q "^## \[$version\]" CHANGELOG.md || fail "CHANGELOG.md has no section [$version]"
python=.venv/bin/python
state=$(mktemp -d)
trap 'rm -rf "$state"' EXIT

# One number for the platform and its clients.
sed -i "s/^version = \"[^\"]*\"/version = \"$version\"/" pyproject.toml clients/python/pyproject.toml
sed -i "s/^__version__ = .*/__version__ = \"$version\"/" msgplatform/__init__.py
sed -i "s/\(newTag: \).*/\1$version}/" deploy/kubernetes/*/kustomization.yaml
npm version --prefix clients/typescript --no-git-tag-version --allow-same-version "$version" >/dev/null
sed -i "s/^## \[$version\] - Unreleased/## [$version] - $(date -u +%F)/" CHANGELOG.md

${RELEASE_CHECKS:-.ci/run}

sed -n "/^## \[$version\]/,/^## \[/{/^## \[/d;p}" CHANGELOG.md >"$state/NOTES.md"
export STATE_DIR=$state SECRET_KEY=only-for-the-document LOG_LEVEL=ERROR
"$python" manage.py make_keys 2>/dev/null
"$python" manage.py spectacular --format openapi-json --file "$state/openapi.json"
if [[ -e docs/openapi.json ]] && ! "$python" scripts/api_changes.py docs/openapi.json "$state/openapi.json"; then
  grep -q '\*Breaking\*' "$state/NOTES.md" || fail "these changes break clients: say so under *Breaking* in CHANGELOG.md"
fi
cp "$state/openapi.json" docs/openapi.json
git add -A
git commit --quiet --allow-empty -m "Release $version"

# Reproducible: the time of the commit that is released, and the same bytes twice.
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
rm -rf dist clients/dist site
scripts/clients.sh
scripts/site.sh
"$python" -m hatchling build -d dist >&2
"$python" -m hatchling build -d "$state/again" >&2
for package in "$state"/again/*; do cmp "$package" "dist/${package##*/}"; done
cp clients/dist/* requirements.txt "$state"/{NOTES.md,openapi.json} dist
if [[ $(id -u) == 0 ]] && command -v mmdebstrap >/dev/null && command -v umoci >/dev/null; then
  scripts/image.sh "$state/image"
  scripts/deb.sh "$state/image" dist
  tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 -C "$state/image" -cf "dist/msgplatform-$version.oci.tar" .
else
  echo "release: no image and no Debian package; they need root, mmdebstrap and umoci" >&2
fi

# Tools in an environment of their own: what is in the packages, and whether their metadata is right.
"$python" -m venv --without-pip "$state/tools"
"$python" deploy/bootstrap.py --print release >"$state/tools.txt"
"$python" -m pip --python "$state/tools/bin/python" install -qq --no-deps --require-hashes -r "$state/tools.txt"
"$state/tools/bin/python" -m cyclonedx_py requirements requirements.txt --pyproject pyproject.toml \
  --output-reproducible --output-file dist/sbom.cdx.json
"$state/tools/bin/python" -m twine check --strict dist/*.whl "dist/msgplatform-$version.tar.gz" >&2
(cd dist && sha256sum -- * >"$state/sums" && mv "$state/sums" SHA256SUMS)

git tag -a --cleanup=whitespace -F "$state/NOTES.md" "v$version"
echo "release: v$version is tagged; dist/ has its packages. Push the tag, and sign SHA256SUMS." >&2
