#!/usr/bin/env bash
# Renews the catalogues of translations, and compiles them. Needs gettext.
#
# locale/        the platform's own texts, of Python and of templates
# locale/theme/  the theme's, which brings no translations: those that Django does not have either
#
# Afterwards translate what is new (`msgattrib --untranslated`), then run it again. With --check the
# catalogues stay as they are, and it fails if one was not renewed, or a text has no translation.
set -euo pipefail
cd "$(dirname "$0")/.."

state=$(mktemp -d)
check=${1:-}
finish() {
  if [ "$check" = --check ]; then cp -r "$state/before/." locale; fi
  rm -rf "$state"
}
cp -r locale "$state/before"
trap finish EXIT
export STATE_DIR=$state SECRET_KEY=only-for-messages LOG_LEVEL=WARNING
python=$PWD/.venv/bin/python
"$python" manage.py make_keys 2>/dev/null # the encryption key
po=zh_Hans/LC_MESSAGES/django.po
options=(--locale zh_Hans --no-wrap --add-location file --no-obsolete)

mkdir -p locale/zh_Hans/LC_MESSAGES
# `lazy_message("…")` marks its text, as gettext_noop does.
DJANGO_SETTINGS_MODULE=msgplatform.settings "$python" -c 'import sys
from django.core.management import execute_from_command_line
from django.core.management.commands import makemessages
makemessages.Command.xgettext_options += ["--keyword=lazy_message"]
execute_from_command_line(sys.argv)' makemessages "${options[@]}" \
  --ignore '.venv*' --ignore tests --ignore bench --ignore demo --ignore node_modules --ignore deploy --ignore scripts
# A text that is merely similar to another one has no translation.
msgattrib --clear-fuzzy --empty --no-wrap --output-file="$state/own.po" locale/$po
mv "$state/own.po" locale/$po

theme=$("$python" -c 'import os, unfold; print(os.path.dirname(unfold.__file__))')
django=$("$python" -c 'import os, django; print(os.path.dirname(django.__file__))')
mkdir -p "$state/theme" "$(dirname "locale/theme/$po")"
cp -rL "$theme/." "$state/theme"
# What belongs to packages that the platform does not use.
rm -rf "$state"/theme/contrib/{constance,forms,guardian,import_export,location_field,simple_history}
mkdir -p "$state/theme/locale"
[ -f "locale/theme/$po" ] && cp -r locale/theme/zh_Hans "$state/theme/locale/"
(cd "$state/theme" && "$python" -m django makemessages "${options[@]}")
msgcat --use-first "$django"/conf/locale/$po "$django"/contrib/{admin,auth}/locale/$po \
  | msgattrib --translated --no-obsolete >"$state/django.po"
msgattrib --set-obsolete --only-file="$state/django.po" "$state/theme/locale/$po" \
  | msgattrib --no-obsolete --no-wrap >"locale/theme/$po"

# The date of each run would be the only change of most.
sed -i '/^"POT-Creation-Date:/d' locale/$po locale/theme/$po
for folder in locale locale/theme; do
  msgfmt --check-format --output-file="$folder/${po%.po}.mo" "$folder/$po"
done

if [ "$check" = --check ]; then
  for folder in locale locale/theme; do
    untranslated=$(msgattrib --untranslated --no-wrap "$folder/$po")
    [ -z "$untranslated" ] ||
      { printf '%s\n\ntranslate these texts in %s\n' "$untranslated" "$folder/$po" >&2; exit 1; }
  done
  diff -r -U 0 "$state/before" locale >&2 || { echo "run scripts/messages.sh and commit" >&2; exit 1; }
fi
