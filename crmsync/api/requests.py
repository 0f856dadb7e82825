"""The bodies of the requests about leads, as msgspec decodes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

# Room for the longest fields, also where each character is written as \uXXXX.
MAX_LEAD_BYTES = 256 * 1024

Extra = dict[str, str | int | float | bool | None]


class Columns(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The fields of a lead; its landing page says which extra fields there are."""

    uid: str | UnsetType | None = UNSET
    name: str | UnsetType | None = UNSET
    phone: str | UnsetType | None = UNSET
    extra: Extra | UnsetType | None = UNSET

    @property
    def columns(self) -> Mapping[str, Any]:
        """The columns that were sent."""
        columns = {"name": self.name, "phone": self.phone}
        return {name: value for name, value in columns.items() if value is not UNSET}

    @property
    def extra_fields(self) -> Mapping[str, Any]:
        """The extra fields that were sent; null is as good as none."""
        return {} if self.extra is UNSET else self.extra or {}

    @property
    def extra_change(self) -> Mapping[str, Any] | None:
        """The extra fields that were sent; None where null takes all of them away."""
        return None if self.extra is None else self.extra_fields

    @property
    def uid_text(self) -> str | None:
        """The caller's id of the person; None when it was not sent."""
        return None if self.uid is UNSET else self.uid or ""


class NewLeadBody(Columns, forbid_unknown_fields=True, kw_only=True):
    """A new lead."""

    appkey: str
    idempotency_key: str | None = None


class LeadBody(Columns, forbid_unknown_fields=True, kw_only=True):
    """A change. A lead keeps its APPKEY; one that is sent must be the same."""

    appkey: str | None = None
