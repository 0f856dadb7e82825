"""The introduction of the API document: what docs/integrate.md says of every request."""

from __future__ import annotations

import re
from typing import Any

from django.conf import settings

_PAGE = settings.BASE_DIR / "docs" / "integrate.md"
# From its first section to the one of a flow.
_SECTION = re.compile(r"^## What holds for every request\n(.*?)^## ", re.MULTILINE | re.DOTALL)
# Links to other pages of the documents, which are not served.
_LINK = re.compile(r"\[([^\]]+)\]\((?!https?:)[^)]*\)")


def introduce(result: dict[str, Any], **_context: Any) -> dict[str, Any]:
    """A hook of drf-spectacular: changes the document, and returns it."""
    summary = result["info"].get("description", "")
    result["info"]["description"] = "\n\n".join(filter(None, (summary, _introduction())))
    return result


def _introduction() -> str:
    """As Markdown; '' where the documents are not installed."""
    try:
        section = _SECTION.search(_PAGE.read_text(encoding="utf-8"))
    except OSError:
        return ""
    return _LINK.sub(r"\1", section[1]).strip() if section else ""
