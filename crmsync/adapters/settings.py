"""Settings and credentials of adapters, and how they are read from what was stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

import msgspec
from django.utils.translation import gettext as _

from msgplatform.core.errors import InvalidInput

S = TypeVar("S", bound=msgspec.Struct)


class AdapterSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What every adapter can be set to; an adapter's own settings are added in a subclass.

    `batch_size` 0 is the adapter's own, `per_second` and `per_day` 0 mean the adapter's own too.
    """

    batch_size: Annotated[int, msgspec.Meta(ge=0)] = 0
    per_second: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    per_day: Annotated[int, msgspec.Meta(ge=0)] = 0


class AdapterCredentials(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Secrets. They never appear in a repr."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(…)"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return []


def read_settings(kind: type[S], given: Mapping[str, Any]) -> S:
    """The settings as an instance of `kind`. Raises InvalidInput with the setting's name, and
    without its value, which may be a secret."""
    for name in kind.__struct_fields__:
        if name not in given and _is_required(kind, name):
            raise InvalidInput(_("The setting %s is missing.") % name, name)
    for name in given:
        if name not in kind.__struct_fields__:
            raise InvalidInput(_("There is no setting %s.") % name, name)
    try:
        return msgspec.convert(dict(given), kind)
    except msgspec.ValidationError as error:
        # "Expected `int`, got `str` - at `$.batch_size`"
        problem, path = str(error).partition(" - at ")[::2]
        name = path.strip("`").removeprefix("$.")
        expected = problem.partition(", got")[0].partition(": ")[0].lower()
        raise InvalidInput(
            _("The setting %(name)s cannot be used: %(expected)s.")
            % {"name": name, "expected": expected},
            name,
        ) from None


def _is_required(kind: type[msgspec.Struct], name: str) -> bool:
    return any(f.name == name and f.required for f in msgspec.structs.fields(kind))
