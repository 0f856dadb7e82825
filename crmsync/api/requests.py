"""Request bodies."""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, UnsetType

from crmsync.lead_fields import MAX_UID, TYPES
from crmsync.models import Policy
from crmsync.models.leads import MAX_APPKEY
from msgplatform.doors.api.bodies import IdempotencyKey, choice, field, items, text

# Room for the longest fields, also where each character is written as \uXXXX.
MAX_LEAD_BYTES = 256 * 1024

Extra = dict[str, str | int | float | bool | None]


class Columns(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The fields of a lead; its landing page says which extra fields there are."""

    uid: Annotated[str | UnsetType | None, text("Your own id of the person", MAX_UID)] = UNSET
    name: Annotated[str | UnsetType | None, text(max_length=TYPES["name"].max_length)] = UNSET
    phone: Annotated[
        str | UnsetType | None,
        text("13800000000 or +442079460000", TYPES["phone"].max_length),
    ] = UNSET
    extra: Annotated[
        Extra | UnsetType | None,
        field("Every other field of the landing page: texts, numbers, true or false"),
    ] = UNSET

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
    """A new lead. Its landing page says what is required; null means the same as leaving a field
    out."""

    appkey: Annotated[str, text(max_length=MAX_APPKEY)]
    idempotency_key: IdempotencyKey = None


class NewLeadsBody(msgspec.Struct, forbid_unknown_fields=True):
    """New leads."""

    leads: Annotated[list[NewLeadBody], items("1 to 1000 leads, 16 MiB in all")]


class LeadChangeBody(Columns, forbid_unknown_fields=True, kw_only=True):
    """The fields of a lead; its landing page says which extra fields there are."""

    appkey: Annotated[
        str | None,
        text("A lead keeps its APPKEY: when it is sent, it must be the same", MAX_APPKEY),
    ] = None


class NewRunBody(msgspec.Struct, forbid_unknown_fields=True):
    """A run that is asked for."""

    kind: Annotated[
        str,
        choice(
            Policy.Kind.choices,
            "changes: look for changes now; full: read everything from the beginning; "
            "sweep: compare the version of every row with what was sent",
        ),
    ]
