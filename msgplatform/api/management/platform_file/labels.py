"""Which objects files keep, and where the files come from: a label such as a commit."""

from __future__ import annotations

from typing import Any

from django.utils import timezone

from msgplatform.api.management.platform_file import kinds
from msgplatform.api.management.resource import Resource
from msgplatform.models import KeptObject

MAX_LABEL = 100


def of_section(section: str) -> dict[str, KeptObject]:
    """The objects of a section that files keep, by name."""
    return {row.name: row for row in KeptObject.objects.filter(section=section)}


def of_row(row: Any) -> KeptObject | None:
    """The entry of a stored row, or None when no file keeps it."""
    for kind in kinds.kinds():
        if kind.model is type(row) and kind.all_rows().filter(pk=row.pk).exists():
            name = kinds.name_of(kinds.address_of(kind, row))
            rows = KeptObject.objects.filter(section=kinds.section_of(kind), name=name)
            return rows.first()
    return None


def keep(resource: Resource, row: Any, kept: KeptObject | None, label: str) -> None:
    """Remember that the row is as a file says. Without a label nothing new is remembered; an
    object that is kept already keeps its label."""
    if kept is None and not label:
        return
    version = resource.version(row)
    label = label or (kept.label if kept else "")
    if kept is not None and (kept.label, kept.version) == (label, version):
        return
    KeptObject.objects.update_or_create(
        section=kinds.section_of(type(resource)),
        name=kinds.name_of(resource.address),
        defaults={
            "label": label, "version": version, "applied_at": timezone.now(),
            "applied_by": resource.actor[:150],
        },
    )  # fmt: skip


def drop(section: str, name: str) -> None:
    """Forget an object that was removed."""
    KeptObject.objects.filter(section=section, name=name).delete()
