"""`docs/bulk-actions.md`: every action of a bulk job with the fields of its filter."""

from collections.abc import Iterator

from msgplatform.core import flows
from msgplatform.core.flows.actions import BulkAction
from msgplatform.core.flows.contract import Flow
from msgplatform.core.flows.messages import FilterField

_HEAD = """\
# Bulk actions

For whoever starts bulk jobs by [the management API](management-api.md): which `action` each `flow`
has, and which fields its `filter` takes. In the console they are on *Bulk jobs*. Every value is a
text; ids are separated by commas or spaces. Times are ISO 8601 with their zone; without one they
are of `TIME_ZONE`. An id does instead of the name of a system, subscription, CRM or
policy. A job reads the names in its filter for each page: it fails when an object was renamed,
unless another one has the name by then, and when the name has passed from an object of one system
to that of another. Written by `make docs` from the code.
"""
_NAMES = {
    "subscription": "Its system and consumer: `orders/warehouse`",
    "policy": "Its source and CRM: `hive/sales`",
    "event_type": "Exact, such as `order.paid`",
}


def page() -> str:
    """The whole page."""
    able = [flow for flow in flows.all() if flow.actions]
    return "\n".join([_HEAD, *(line for flow in able for line in _section(flow))])


def _section(flow: Flow) -> Iterator[str]:
    yield f"## {flow.title}\n"
    for name, action in flow.actions.items():
        yield f"### {action.title}\n"
        yield f'`"flow": "{flow.name}", "action": "{name}"`\n'
        yield f"{action.help}\n"
        yield from _table(action)
        yield ""


def _table(action: BulkAction) -> Iterator[str]:
    yield "| field | meaning |"
    yield "|---|---|"
    for name, field in action.fields.items():
        # The console offers names while one types; a script has to know them.
        is_name = field.kind == "name"
        parts = [_NAMES.get(name, "Its name") if is_name else str(field.help), *_values(field)]
        if name in action.required:
            parts.insert(0, "**Required**")
        yield f"| `{name}` | {'. '.join(part for part in parts if part)} |"


def _values(field: FilterField) -> Iterator[str]:
    if field.choices:
        yield ", ".join(f"`{value}`" for value, _label in field.choices if value)
        yield f"Left out: {field.nothing or 'any'}"
