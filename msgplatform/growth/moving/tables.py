"""The tables and the stores of keys that move with a business system."""

from __future__ import annotations

from typing import Any

from msgplatform.core import flows
from msgplatform.core.flows.moving import KeyStore, MovedTable
from msgplatform.models import ApiKey, Biz


def _switch_off(row: Any) -> bool:
    # Until its keys are there: a repeated request would be stored a second time.
    row.enabled = False
    return True


SYSTEM = MovedTable(
    model=Biz, rows=lambda biz: Biz.objects.filter(pk=biz), identity=("name",), hold=_switch_off
)
_API_KEYS = MovedTable(
    model=ApiKey,
    rows=lambda biz: ApiKey.objects.filter(biz_id=biz).order_by("id"),
    identity=("prefix",),
    left_out=frozenset({"last_used_at"}),
    proxy_name=("mp_", "prefix"),
)


def all_tables() -> list[MovedTable]:
    """Every table, each after those that it refers to."""
    return [SYSTEM, _API_KEYS, *(table for flow in flows.all() for table in flow.moving.tables)]


def key_stores() -> list[KeyStore]:
    return [store for flow in flows.all() for store in flow.moving.keys]
