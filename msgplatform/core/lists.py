"""Several words in one line, as the reader's language writes them."""

from __future__ import annotations

from collections.abc import Iterable

from django.utils.translation import pgettext


def joined(words: Iterable[object]) -> str:
    """`2 delivered, 1 exhausted`; Chinese has a comma of its own."""
    return pgettext("between words of a list", ", ").join(map(str, words))
