"""Code that verifies a delivery, in the languages that consumers are written in.

The files are complete and need the standard library only. `docs/integrate.md` shows the same ones.
"""

from __future__ import annotations

from functools import lru_cache

from django.conf import settings

from msgplatform.core.flows import Snippet

FILES = (
    ("python", "Python", "verify.py"),
    ("node", "Node.js", "verify.mjs"),
    ("go", "Go", "verify.go"),
    ("java", "Java", "Webhook.java"),
    ("php", "PHP", "verify.php"),
)


@lru_cache(maxsize=1)
def snippets() -> tuple[Snippet, ...]:
    """One for each language, in the order in which they are shown."""
    folder = settings.BASE_DIR / "templates" / "notify" / "verify"
    return tuple(
        Snippet(name, language, (folder / file).read_text(encoding="utf-8").rstrip())
        for name, language, file in FILES
    )
