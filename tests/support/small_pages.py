"""Bulk actions that read little at once, so that a test needs few rows to see several pages."""

import pytest

from msgplatform.messages import engine


def set_page_size(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """A page of a bulk action looks at no more than so many rows."""
    monkeypatch.setattr(engine, "BATCH", size)
    monkeypatch.setattr(engine, "MAX_SELECTED_FROM", size)
