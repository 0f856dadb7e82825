"""The lines of archived messages in a search result."""

from __future__ import annotations

from collections.abc import Sequence

from django.utils.translation import gettext as _

from gateway.messages.in_flight import systems, title
from gateway.models import SgipMt
from msgplatform.core import personal
from msgplatform.core.flows import Hit


def archived(ids: Sequence[int]) -> dict[int, Hit]:
    """Newest first; two queries, however many they are."""
    rows = list(SgipMt.objects.filter(id__in=ids).order_by("-id"))
    names = systems({row.biz_id for row in rows})
    return {
        row.pk: Hit(
            id=str(row.pk),
            title=title(row.user_number, row.text),
            masked_title=personal.masked(row.user_number),
            state=_("%s (archived)") % row.get_final_display(),
            at=row.accepted_at,
            biz=names.get(row.biz_id, str(row.biz_id)),
        )
        for row in rows
    }
