#!/usr/bin/env bash
# A Tryton for the tests of its adapter: the server in a virtual environment of its own, and a
# database with parties, to be copied. Usage: tryton.sh FOLDER, the folder of a virtual environment
set -euo pipefail

python=$(realpath --no-symlinks "$1")/bin/python
folder=$(realpath "$1")/tryton
cd "$(dirname "$0")/.."
requirements=$("$python" deploy/bootstrap.py --print tryton)
stamp=$({ echo "$requirements"; cat scripts/tryton.sh; } | sha256sum)
mkdir -p "$folder"
exec 9>"$folder/lock"  # several test runs may ask for it at once
flock 9
[[ ! -e $folder/stamp || $(<"$folder/stamp") != "$stamp" ]] || exit 0

echo "tryton: installing" >&2
rm -rf "$folder/stamp" "$folder/venv" "$folder/data"
echo "$requirements" >"$folder/requirements.txt"
"$python" -m venv --without-pip "$folder/venv"
"$python" -m pip --python "$folder/venv/bin/python" install -qq --progress-bar=off --no-deps \
  --require-hashes -r "$folder/requirements.txt" >&2

mkdir "$folder/data"
touch "$folder/data/crm.sqlite"
printf '[database]\nuri = sqlite://\npath = %s\n' "$folder/data" >"$folder/trytond.conf"
printf 'hush-hush-9' >"$folder/password"
export TRYTONPASSFILE=$folder/password
admin() {
  "$folder/venv/bin/python" "$folder/venv/bin/trytond-admin" -c "$folder/trytond.conf" -d crm \
    --email admin@example.com "$@" >&2
}
admin --all -l en
admin -u party --activate-dependencies
printf '%s' "$stamp" >"$folder/stamp"
