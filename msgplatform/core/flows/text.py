"""A text for people."""

from __future__ import annotations

from django.utils.functional import Promise

Text = str | Promise  # a string, or one that is translated when it is shown
