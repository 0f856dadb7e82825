"""`docs/data-model.md`: every table, its keys, and how tables refer to each other."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from django.apps import apps
from django.conf import settings
from django.db.models import Field, Model

_HEAD = """# The data model

For whoever reads the database, writes a report or changes a model: every table with its keys and
references, written from the models by `make docs`. How the tables are used:
[architecture.md](architecture.md). `DESCRIBE <table>` shows the other columns.

- Ids of messages, deliveries, posts, leads and whatever else there is much of are made by the
  platform: 63-bit integers that sort by time. Everywhere outside of the database they are strings.
- **Bold** columns are the primary key, *U* marks a unique one. `→` is a reference, `⇢` one without
  a constraint: between tables of which one is emptied into the archive, or that take many rows.
- Times are UTC. Payloads are the exact bytes that were accepted.
"""


def page() -> str:
    """The whole page, in Markdown."""
    return "\n".join([_HEAD, *map(_section, _apps())])


def _apps() -> Iterator[Any]:
    """The platform, then its flows."""
    for config in apps.get_app_configs():
        if config.name in ("msgplatform", *settings.FLOWS):
            yield config


def _section(config: Any) -> str:
    table = [
        "| table | a row is | keys and references |",
        "|---|---|---|",
        *map(_row, config.get_models()),
    ]
    title = config.verbose_name if config.name != "msgplatform" else "The platform"
    return f"## {title}\n\n" + "\n".join(table) + "\n"


def _key(model: type[Model], field: Field[Any, Any]) -> str:
    """A column of a key or with a reference; '' for any other."""
    other: Any = field.related_model or _referred_model(model, field.name)
    reference = ""
    if other and other is not model:
        arrow = "→" if getattr(field, "db_constraint", False) else "⇢"
        reference = f" {arrow} {other._meta.db_table}"
    if field in model._meta.pk_fields:
        return f"**{field.column}**{reference}"
    unique = " *U*" if field.unique else ""
    return f"{field.column}{unique}{reference}" if unique or reference else ""


def _referred_model(model: type[Model], column: str) -> type[Model] | None:
    """The model that an integer such as `policy_id` refers to: the one of its app, or of the
    platform, whose name ends so."""
    what = column.removesuffix("_id").replace("_", "")
    own = apps.get_app_config(model._meta.app_label).get_models()
    models = {*own, apps.get_model("msgplatform", "Biz")}
    matches = [
        one for one in models if one._meta.model_name and one._meta.model_name.endswith(what)
    ]
    return matches[0] if column.endswith("_id") and len(matches) == 1 else None


def _row(model: type[Model]) -> str:
    text = inspect.cleandoc(model.__doc__ or "").split("\n\n")[0].replace("\n", " ")
    fields = [field for field in model._meta.concrete_fields if field.column]
    keys = ", ".join(filter(None, (_key(model, field) for field in fields)))
    return f"| `{model._meta.db_table}` | {text} | {keys} |"
