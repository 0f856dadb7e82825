"""The Chinese texts: whatever a catalogue has is translated, and compiled as it stands.

That a catalogue has every text of the code is what `deploy/messages.sh --check` says.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from django.conf import settings
from django.template import engines
from django.utils import translation

PACKAGES = ("msgplatform", "notify", "gateway", "crmsync")
_RENAMED = re.compile(r"\bn?p?gettext(?:_lazy|_noop)? as (\w+)")
CATALOGUES = [Path(folder) / "zh_Hans/LC_MESSAGES/django.po" for folder in settings.LOCALE_PATHS]


@pytest.mark.parametrize("source", CATALOGUES, ids=lambda path: path.parts[-4])
def test_a_catalogue_is_complete_and_compiled(source: Path, tmp_path: Path) -> None:
    compiled = tmp_path / "django.mo"
    command = ["msgfmt", "--check-format", "--statistics", f"--output-file={compiled}", str(source)]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stderr
    assert "translated message" in said
    assert "fuzzy" not in said, said
    assert "untranslated" not in said, said
    assert compiled.read_bytes() == source.with_suffix(".mo").read_bytes(), "run deploy/messages.sh"


def test_texts_of_the_theme_and_of_django_are_chinese() -> None:
    source = "{% load i18n %}{% translate 'Welcome back to' %} {% translate 'Log in' %}"
    with translation.override("zh-hans"):
        assert engines["django"].from_string(source).render() == "欢迎回到 登录"


def test_texts_are_marked_by_names_that_makemessages_knows() -> None:
    """Under another name a text stays out of the catalogues, and nobody translates it."""
    sources = [path for name in PACKAGES for path in (settings.BASE_DIR / name).rglob("*.py")]
    names = {path.name: set(_RENAMED.findall(path.read_text())) - {"_"} for path in sources}
    assert len(names) > 200
    assert {path: found for path, found in names.items() if found} == {}
