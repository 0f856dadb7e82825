"""Gateways and accounts, cached: nothing between a call and the archive waits for the database."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from gateway import sgip
from gateway.models import SmsAccount, SmsGateway
from msgplatform.core import logging
from msgplatform.core.daemons.daemon import AWAY

log = logging.get(__name__)

# How long a change in the console may take to reach a running process.
REFRESH_SECONDS = 2.0
_MOBILE = re.compile(r"1[3-9]")


@dataclass(frozen=True, slots=True)
class Gateway:
    """One row of sms_gateway, ready for use."""

    row: SmsGateway
    id: int
    node_id: int
    prefixes: tuple[str, ...]

    @property
    def name(self) -> str:
        return str(self.row.name)


@dataclass(frozen=True, slots=True)
class Account:
    """One row of sms_account; `gateways` are the ids it may use, none: any."""

    row: SmsAccount
    id: int
    biz_id: int
    gateways: frozenset[int]
    keywords: tuple[str, ...]


class Directory:
    """All gateways and accounts that are enabled. With the database away, what is known stays."""

    def __init__(self, refresh_seconds: float = REFRESH_SECONDS) -> None:
        self.gateways: dict[int, Gateway] = {}
        self.accounts: dict[int, Account] = {}
        self.account_names: dict[int, str] = {}  # also of those that are switched off
        self.closed: frozenset[int] = frozenset()  # gateways that are switched off
        self._refresh_seconds = refresh_seconds
        self._next = 0.0
        self._lock = threading.Lock()

    def refresh(self, at_once: bool = False) -> None:
        """Read again if it is time. Raises only when nothing is known yet."""
        with self._lock:
            now = time.monotonic()
            if now < self._next and not at_once:
                return
            self._next = now + self._refresh_seconds
            try:
                known = list(SmsGateway.objects.all())
                rows = list(SmsAccount.objects.select_related("biz").prefetch_related("gateways"))
            except AWAY as error:
                if not self.gateways:
                    raise
                log.warning("directory_not_refreshed", why=str(error)[:200])
                return
            self.gateways = {row.pk: _gateway(row) for row in known if row.enabled}
            self.closed = frozenset(row.pk for row in known if not row.enabled)
            self.accounts = {
                row.pk: _account(row) for row in rows if row.enabled and row.biz.enabled
            }
            self.account_names = {row.pk: row.name for row in rows}

    def served(self, only: Collection[str]) -> dict[int, Gateway]:
        """The gateways of these names by id; without names all that are enabled."""
        return {
            gateway.id: gateway
            for gateway in self.gateways.values()
            if not only or gateway.name in only
        }

    def account(self, biz_id: int, name: str) -> Account | None:
        """The business system's account of this name; without one, its default or its only one."""
        mine = [account for account in self.accounts.values() if account.biz_id == biz_id]
        if name:
            return next((account for account in mine if account.row.name == name), None)
        default = [account for account in mine if account.row.is_default]
        return _first(default or (mine if len(mine) == 1 else []))

    def owner_of(self, sp_number: str, text: str) -> Account | None:
        """Whose an MO is: the longest SP number that it begins with, then a keyword."""
        fitting = [a for a in self.accounts.values() if sp_number.startswith(a.row.sp_number)]
        if not fitting:
            return None
        longest = max(len(account.row.sp_number) for account in fitting)
        best = [account for account in fitting if len(account.row.sp_number) == longest]
        word = text.strip().casefold()
        named = [a for a in best if any(word.startswith(k.casefold()) for k in a.keywords)]
        silent = [a for a in best if not a.keywords] or [a for a in best if a.row.is_default]
        return _first(named or silent or (best if len(best) == 1 else []))


def _first(accounts: Sequence[Account]) -> Account | None:
    return accounts[0] if accounts else None


def _gateway(row: SmsGateway) -> Gateway:
    node = row.node_id
    return Gateway(
        row=row,
        id=row.pk,
        node_id=sgip.sp_node_id(row.area_code, row.corp_id) if node is None else node,
        prefixes=tuple(_prefix(str(prefix)) for prefix in row.prefixes),
    )


def _prefix(written: str) -> str:
    """As recipients are written: the beginning of a mobile number may stand without its 86."""
    digits = sgip.international(written)
    return f"86{digits}" if _MOBILE.match(digits) else digits


def _account(row: SmsAccount) -> Account:
    return Account(
        row=row,
        id=row.pk,
        biz_id=row.biz_id,
        gateways=frozenset(gateway.pk for gateway in row.gateways.all()),
        keywords=tuple(str(keyword) for keyword in row.keywords),
    )
