"""Gateways and accounts, cached: nothing between a call and the archive waits for the database."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field
from ipaddress import ip_network

import msgspec
from django.utils.translation import gettext_noop as _

from gateway import sgip
from gateway.models import SmsAccount, SmsGateway
from msgplatform.core.characters import fold
from msgplatform.core.daemons.snapshot import REFRESH_SECONDS, Rows, Snapshot
from msgplatform.core.errors import Undecryptable
from msgplatform.core.http.addresses import Network

GATEWAY_KIND, ACCOUNT_KIND = "sms.gateway_settings", "sms.account_settings"
_UNUSABLE = _("%(error)s. Correct it in the console. Its messages wait, or its calls are refused.")
_MOBILE = re.compile(r"1[3-9]")


@dataclass(frozen=True, slots=True)
class Gateway:
    """A row of sms_gateway, ready for use. If its password cannot be decrypted, the password is
    None and `problem` has the reason."""

    row: SmsGateway
    id: int
    node_id: int
    prefixes: tuple[str, ...]
    login_password: str | None = field(repr=False)
    smg_login_password: str | None = field(repr=False)
    problem: str = ""
    networks: tuple[Network, ...] = ()  # networks from which the SMG connects; none: only its host

    @classmethod
    def of_row(cls, row: SmsGateway) -> Gateway:
        """Raises ValueError for an unusable row, such as one with a wrong area code."""
        problems: list[str] = []

        def password(name: str) -> str | None:
            try:
                return str(getattr(row, name))
            except Undecryptable as error:
                # The gateway stays in the directory: its other login may still work.
                problems.append(str(error))
                return None

        return cls(
            row=row,
            id=row.pk,
            node_id=row.sp_node_id(),
            prefixes=tuple(_prefix(str(prefix)) for prefix in row.prefixes),
            login_password=password("login_password"),
            smg_login_password=password("smg_login_password"),
            problem="; ".join(problems),
            networks=tuple(ip_network(network) for network in row.networks),
        )

    @property
    def name(self) -> str:
        return str(self.row.name)


class Account(msgspec.Struct, frozen=True):
    """A row of sms_account. `gateway_ids`: the gateways that it may use; empty: any."""

    row: SmsAccount
    id: int
    biz_id: int
    gateway_ids: frozenset[int]
    keywords: tuple[str, ...]

    @classmethod
    def of_row(cls, row: SmsAccount) -> Account:
        return cls(
            row=row,
            id=row.pk,
            biz_id=row.biz_id,
            gateway_ids=frozenset(gateway.pk for gateway in row.gateways.all()),
            keywords=tuple(str(keyword) for keyword in row.keywords),
        )


class Known(msgspec.Struct, frozen=True):
    """The enabled gateways and accounts by id, and facts that are needed about the others."""

    gateways: dict[int, Gateway] = msgspec.field(default_factory=dict)
    # The gateways that may connect to us; also those that are switched off, because their Reports
    # and MOs still come.
    receiving: dict[int, Gateway] = msgspec.field(default_factory=dict)
    accounts: dict[int, Account] = msgspec.field(default_factory=dict)
    # The accounts that own MOs: also those that are switched off, or whose system is. Otherwise
    # answers to their texts would go to another system with a shorter or the same number.
    owners: dict[int, Account] = msgspec.field(default_factory=dict)
    account_names: dict[int, str] = msgspec.field(default_factory=dict)  # also of disabled accounts
    # The accounts whose Reports travel in batches; also disabled accounts.
    batching_ids: frozenset[int] = frozenset()
    closed_ids: frozenset[int] = frozenset()  # gateways that are switched off, or cannot be used
    # The operators of gateways that name one.
    operators: dict[int, str] = msgspec.field(default_factory=dict)


class Directory(Snapshot[Known]):
    """All enabled gateways and accounts, without rows that cannot be used: these have alerts."""

    def __init__(self, refresh_seconds: float = REFRESH_SECONDS) -> None:
        super().__init__(Known(), refresh_seconds)
        title = _("The gateway %(name)s cannot be used")
        self._gateways = Rows(
            Gateway.of_row, GATEWAY_KIND, title, _UNUSABLE, lambda row: not row.enabled
        )
        title = _("The account %(name)s cannot be used")
        self._accounts = Rows(
            Account.of_row, ACCOUNT_KIND, title, _UNUSABLE,
            lambda row: not (row.enabled and row.biz.enabled),
        )  # fmt: skip

    def load(self) -> Known:
        gateways = list(SmsGateway.objects.all())
        accounts = list(SmsAccount.objects.select_related("biz").prefetch_related("gateways"))
        receiving, owners = self._gateways.usable(gateways), self._accounts.usable(accounts)
        usable = {pk: gateway for pk, gateway in receiving.items() if gateway.row.enabled}
        enabled_accounts = {
            pk: account
            for pk, account in owners.items()
            if account.row.enabled and account.row.biz.enabled
        }
        return Known(
            usable,
            usable | receiving,  # gateways in use come first
            enabled_accounts,
            enabled_accounts | owners,
            {row.pk: row.name for row in accounts},
            frozenset(row.pk for row in accounts if row.report_batches),
            frozenset(row.pk for row in gateways if row.pk not in usable),
            {row.pk: row.operator for row in gateways if row.operator},
        )

    def reports_on(self, gateway_id: int) -> list[int]:
        """The gateways on whose messages this one may report: itself and its operator's others."""
        operators = self.known.operators
        operator = operators.get(gateway_id)
        others = [id for id, name in operators.items() if operator and name == operator]
        return others or [gateway_id]

    def served_gateways(self, names: Collection[str]) -> dict[int, Gateway]:
        """The gateways that a sender serves, by id: those with these names, or without names all
        enabled gateways without a process of their own."""
        return {
            gateway.id: gateway
            for gateway in self.known.gateways.values()
            if (gateway.name in names if names else not gateway.row.own_process)
        }

    def account(self, biz_id: int, name: str) -> Account | None:
        """The system's account of this name; without a name its default or its only account."""
        accounts = [account for account in self.known.accounts.values() if account.biz_id == biz_id]
        if name:
            return next((account for account in accounts if account.row.name == name), None)
        defaults = [account for account in accounts if account.row.is_default]
        return next(iter(defaults or (accounts if len(accounts) == 1 else [])), None)

    def owner_of(self, sp_number: str, text: str) -> Account | None:
        """The account that owns an MO: by the longest SP number that begins the MO's number, then
        by a keyword. It may be switched off."""
        accounts = self.known.accounts
        owners = self.known.owners.values()
        candidates = [owner for owner in owners if sp_number.startswith(owner.row.sp_number)]
        if not candidates:
            return None
        longest = max(len(account.row.sp_number) for account in candidates)
        best = [account for account in candidates if len(account.row.sp_number) == longest]
        # An account that is switched off gives way to another one of its own system.
        enabled_systems = {a.biz_id for a in best if a.id in accounts}
        best = [a for a in best if a.id in accounts or a.biz_id not in enabled_systems]
        # On a number that several accounts share, the keyword decides, then an account without
        # keywords, which takes all other MOs.
        match_text = fold(text)
        # Nothing is left of a keyword of invisible characters: every text begins with it.
        by_keyword = [
            account
            for account in best
            if any(match_text.startswith(k) for k in map(fold, account.keywords) if k)
        ]
        fallbacks = [a for a in best if not a.keywords] or [a for a in best if a.row.is_default]
        return next(iter(by_keyword or fallbacks or (best if len(best) == 1 else [])), None)


def _prefix(prefix: str) -> str:
    """A prefix in the form of recipients' numbers. A mobile number's prefix may lack its 86."""
    digits = sgip.international(prefix)
    is_mobile = digits == prefix and _MOBILE.match(digits)  # 0013 is a prefix of North America
    return f"86{digits}" if is_mobile else digits
