#!/usr/bin/env bash
# Client libraries, made from the OpenAPI document; what is generated is in the packages only.
#
#     scripts/clients.sh [FOLDER [LANGUAGE…]]
#
# FOLDER is where the packages go, clients/dist by default. The languages are python (a wheel),
# typescript (a tarball of npm), and go, java and php (source, all of it generated).
set -euo pipefail
cd "$(dirname "$0")/.."

packages=$(realpath -m "${1:-clients/dist}")
languages=("${@:2}")
[[ $# -gt 1 ]] || languages=(python typescript go java php)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
PATH=$PWD/.venv/bin:$PATH  # the generator for Python formats its modules by ruff
version=$(sed -n 's/^version = "\([^"]*\)".*/\1/p' pyproject.toml)
document=$folder/openapi.json

python() {  # a wheel
  cp -R clients/python "$folder/python"
  openapi-python-client generate --path "$document" --meta none --fail-on-warning \
    --custom-template-path "$folder/python/templates" \
    --output-path "$folder/python/src/msgplatform_client/generated" >&2
  command python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir "$packages" \
    "$folder/python"
}

typescript() {  # a tarball, for npm install
  cp -R clients/typescript "$folder"
  cp LICENSE "$folder/typescript"
  cd "$folder/typescript"
  ln -s "$OLDPWD/.venv/npm-client/node_modules" node_modules
  node_modules/.bin/openapi-typescript "$document" --output src/generated/api.ts >&2
  node_modules/.bin/tsc --project .
  npm pack --silent --pack-destination "$packages" >&2
  cd "$OLDPWD"
}

go() {  # two constants of a package may not have the same name; a field of a newer platform is no error
  source_package go enumClassPrefix=true,packageName=msgplatform,disallowAdditionalPropertiesIfNotPresent=false
}

java() {  # java.util.function has a Consumer, too
  local package=msgplatform.client
  source_package java "useJakartaEe=true,openApiNullable=false,groupId=msgplatform,artifactId=$package,\
artifactVersion=$version,invokerPackage=$package,apiPackage=$package.api,modelPackage=$package.model" \
    --library native --model-name-mappings Consumer=EventConsumer
}

php() {
  source_package php "invokerPackage=Msgplatform\\Client,composerPackageName=msgplatform/client,\
artifactVersion=$version"
}

source_package() {  # LANGUAGE PROPERTIES [OPTION…]: an archive of what openapi-generator makes
  local name=msgplatform-client-$1-$version log=$folder/$1.log
  # The introduction is for readers of the whole document, not for a line in a package's index.
  command python -c 'import json, sys
document = json.load(sys.stdin)
document["info"]["description"] = document["info"]["description"].partition("\n")[0]
json.dump(document, sys.stdout)' <"$document" >"$folder/short.json"
  openapi-generator-cli generate --generator-name "$1" --input-spec "$folder/short.json" \
    --output "$folder/$name" \
    --additional-properties "hideGenerationTimestamp=true,licenseName=Apache-2.0,$2" \
    --global-property apiTests=false,modelTests=false \
    --git-host msgplatform.example --git-user-id client --git-repo-id "$1" "${@:3}" >"$log" 2>&1 ||
    { cat "$log" >&2; return 1; }
  # It says of every document that OpenAPI 3.1 is new to it, of every closed body that a schema
  # "null" has no name, and for Java that it uses no examples. All else is a fault of the document.
  local known='OpenAPI 3.1 support is still in beta|the schema name: null$|Ignoring complex example'
  if grep -E 'WARN|ERROR' "$log" | grep -vE "$known" >&2; then return 1; fi
  cp LICENSE "$folder/$name"
  tar -C "$folder" --sort=name --mtime="@${SOURCE_DATE_EPOCH:-$(date +%s)}" --owner=0 --group=0 --numeric-owner \
    --exclude=git_push.sh --exclude=.travis.yml --exclude=.gitlab-ci.yml --exclude=.github \
    --exclude=.openapi-generator --exclude=.openapi-generator-ignore \
    -czf "$packages/$name.tar.gz" "$name"
}

# The document needs no secret of an installation.
SECRET_KEY=${SECRET_KEY:-only-for-the-document} STATE_DIR=$folder/state \
  .venv/bin/python manage.py make_keys 2>/dev/null
SECRET_KEY=${SECRET_KEY:-only-for-the-document} STATE_DIR=$folder/state LOG_LEVEL=ERROR \
  .venv/bin/python manage.py spectacular --format openapi-json --file "$document"
mkdir -p "$packages"
for language in "${languages[@]}"; do
  case $language in
    python | typescript | go | java | php) "$language" ;;
    *) echo "clients: there is no client for $language" >&2; exit 2 ;;
  esac
done
