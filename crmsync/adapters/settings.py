"""Settings and credentials of adapters, and how the stored JSON is checked and read."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, TypeVar

import msgspec
from django.utils.translation import gettext as _

from msgplatform.core.errors import InvalidInput
from msgplatform.core.http import destinations

# Names of settings in which other packages' adapters may hold an address that is not a URL.
_ADDRESS_SETTINGS = frozenset({"host", "hostname", "server", "domain", "instance", "port"})

S = TypeVar("S", bound=msgspec.Struct)


class AdapterSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The settings that every adapter has; a subclass adds more.

    0 in `batch_size`, `per_second` or `per_day` stands for the adapter's own value.
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


def read_settings(kind: type[S], values: Mapping[str, Any]) -> S:
    """Read settings as an instance of `kind`. Raises InvalidInput with the name of the setting but
    not its value, which may be a secret."""
    for field in msgspec.structs.fields(kind):
        if field.required and field.name not in values:
            raise InvalidInput(_("The setting %s is missing.") % field.name, field.name)
    for name in values:
        if name not in kind.__struct_fields__:
            raise InvalidInput(_("There is no setting %s.") % name, name)
    try:
        return msgspec.convert(dict(values), kind)
    except msgspec.ValidationError as error:
        # "Expected `int`, got `str` - at `$.batch_size`"
        problem, path = str(error).partition(" - at ")[::2]
        name = _path_as_written(kind, values, path.strip("`").removeprefix("$."))
        expectation = problem.partition(", got")[0].partition(": ")[0].lower()
        words = _("The setting %(name)s cannot be used: %(expected)s.")
        raise InvalidInput(words % {"name": name, "expected": expectation}, name) from None


def addresses_in(value: Any, name: str = "") -> Iterator[str]:
    """Scheme, host and port of every URL in settings, and the values of settings that hold another
    kind of address."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from addresses_in(inner, str(key))
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from addresses_in(inner, name)
    elif isinstance(value, str) and "://" in value:
        yield destinations.origin(value)
    elif name.lower() in _ADDRESS_SETTINGS and value not in (None, ""):
        yield f"{name} {value}"


def _path_as_written(kind: type[msgspec.Struct], settings: Mapping[str, Any], path: str) -> str:
    """The path with the name that a person wrote: `headers[...]` becomes `headers.Accept`."""
    name, ellipsis, suffix = path.partition("[...]")
    values = settings.get(name)
    if not ellipsis or not isinstance(values, Mapping):
        return path
    for key, value in values.items():
        try:
            msgspec.convert({**settings, name: {key: value}}, kind)
        except msgspec.ValidationError:
            return f"{name}.{key}{suffix}"
    return path
