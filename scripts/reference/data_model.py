"""`docs/data-model.md`: the tables of every app and how they refer to each other, as Mermaid."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from django.apps import apps
from django.conf import settings
from django.db.models import Field, ForeignKey, Model

_HEAD = """# The data model

For whoever reads the database, writes a report or changes a model: every table, written from the
models by `make docs`; do not edit. How the tables are used: [architecture.md](architecture.md).

- Ids of messages, deliveries, posts, leads and whatever else there is much of are made by the
  platform: 63-bit integers that sort by time. Everywhere outside of the database they are strings.
- The pictures show keys and references. A broken line is a reference without a constraint in the
  database: between tables of which one is emptied into the archive, or that take many rows.
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
    models = list(config.get_models())
    entities = [line for model in models for line in _entity(model)]
    relations = [line for model in models for line in _relations(model)]
    picture = "\n".join(["```mermaid", "erDiagram", *relations, *entities, "```"])
    table = ["| table | a row is | columns |", "|---|---|---|", *map(_row, models)]
    title = config.verbose_name if config.name != "msgplatform" else "The platform"
    return f"## {title}\n\n{picture}\n\n" + "\n".join(table) + "\n"


def _columns(model: type[Model]) -> list[Field[Any, Any]]:
    return [field for field in model._meta.concrete_fields if field.column]


def _entity(model: type[Model]) -> list[str]:
    """The table with its keys: what it is found by and what it refers to."""
    keys = {field.name: "PK" for field in model._meta.pk_fields}
    for field in _columns(model):
        if field.is_relation:
            keys[field.name] = f"{keys[field.name]}, FK" if field.name in keys else "FK"
        elif field.unique:
            keys.setdefault(field.name, "UK")
    key_columns = [field for field in _columns(model) if field.name in keys]
    lines = [f"        {_type(field)} {field.column} {keys[field.name]}" for field in key_columns]
    return [f"    {model._meta.db_table} {{", *lines, "    }"]


def _type(field: Field[Any, Any]) -> str:
    target = field.target_field if isinstance(field, ForeignKey) else field
    return str(target.get_internal_type()).removesuffix("Field").lower()


def _relations(model: type[Model]) -> Iterator[str]:
    for field in _columns(model):
        other: Any = field.related_model or _referred_model(model, field.name)
        if other and other is not model:
            line = "--" if getattr(field, "db_constraint", False) else ".."
            ends = f"||{line}o{{" if not field.unique else f"||{line}o|"
            yield f"    {other._meta.db_table} {ends} {model._meta.db_table} : {field.name}"


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
    columns = ", ".join(f"`{field.column}`" for field in _columns(model))
    return f"| `{model._meta.db_table}` | {text.replace('|', '|')} | {columns} |"
