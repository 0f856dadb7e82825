"""The meaning of the counters of SMS, for the overview and the statistics (see `counters`)."""

from collections.abc import Collection, Mapping
from datetime import UTC, datetime

from django.db.models import Q
from django.utils.translation import gettext, gettext_lazy as _, pgettext_lazy

from gateway import codes
from gateway.connections import sms_redis
from gateway.lifecycle import keys
from gateway.models import SgipMt, SmsAccount
from gateway.monitor.counters import ERROR, FLOW, MO, SEGMENTS
from gateway.monitor.failures import GATEWAY
from msgplatform.core.connections import numbers_of
from msgplatform.core.flows.activity import Activity, Counts, Dimension, Group, Key, Measure
from msgplatform.monitor.subjects import BySubject, BySystem, Subject

_Final = SgipMt.Final
_ACCEPTED = "accepted by us"  # no counter in the database
_ACCOUNT = Subject("account", _("account"), lambda: SmsAccount.objects.order_by("name"))


class _ByAccount(BySubject):
    """Messages that an account sent and received. 0 has the MOs to numbers without an account."""

    def keys_of(self, counter_keys: Collection[Key]) -> Mapping[Key, str]:
        return {counter: str(counter.subject) for counter in counter_keys if counter.subject >= 0}

    def named(self, keys: Collection[str]) -> Mapping[str, Group]:
        no_account = {"0": Group("0", gettext("nobody's"))} if "0" in keys else {}
        return {**super().named(keys), **no_account}


class _BySpNumber(Dimension):
    """The present SP number of an account; accounts that share a number count together."""

    name = "sp_number"
    title = _("SP number")
    names_subjects = True

    def keys_of(self, counter_keys: Collection[Key]) -> Mapping[Key, str]:
        accounts = {counter.subject for counter in counter_keys if counter.subject > 0}
        rows = SmsAccount.objects.filter(pk__in=accounts)
        numbers = dict(rows.values_list("pk", "sp_number"))
        return {
            counter: numbers[counter.subject]
            for counter in counter_keys
            if counter.subject in numbers
        }

    def named(self, keys: Collection[str]) -> Mapping[str, Group]:
        return {key: Group(key, key) for key in keys}

    def narrow(self, key: str) -> Q:
        accounts = SmsAccount.objects.filter(sp_number=key)
        return Q(subject__in=list(accounts.values_list("pk", flat=True)))

    def choices(self) -> list[tuple[str, str]]:
        numbers = SmsAccount.objects.order_by("sp_number").values_list("sp_number", flat=True)
        return [(number, number) for number in numbers.distinct()]


def _answer(name: str) -> str:
    """An error's code with its meaning. The platform's own reasons are already words."""
    if not name.startswith(ERROR):
        return ""
    code = name.removeprefix(ERROR)
    return f"{code}: {codes.meaning_of_result(int(code))}" if code.isdecimal() else code


def _count_accepted(since: datetime, until: datetime) -> Mapping[datetime, Counts]:
    """Accepted messages by minute, of the last day. Raises RedisError."""
    rows: dict[bytes, bytes] = sms_redis().hgetall(keys.MT_MINUTES)  # type: ignore[assignment]
    counts = {
        datetime.fromtimestamp(int(minute) * 60, UTC): int(value)
        for minute, value in numbers_of(rows).items()
        if minute.isdecimal()
    }
    return {at: {_ACCEPTED: value} for at, value in counts.items() if since <= at <= until}


ACTIVITY = Activity(
    counters=FLOW,
    measures=(
        Measure("accepted", _("accepted"), (_ACCEPTED,), "accepted", is_live=True),
        Measure("sent", _("sent and ended"), tuple(_Final.values)),
        Measure("segments", _("segments"), (SEGMENTS,)),
        Measure("delivered", _("delivered"), (_Final.DELIVERED,), "good"),
        Measure(
            "undelivered", _("undeliverable or expired"), (_Final.FAILED, _Final.EXPIRED), "lost"
        ),
        Measure("unknown", _("ending unknown"), (_Final.UNKNOWN,)),
        Measure("unreported", _("without a Report"), (_Final.ACCEPTED,)),
        Measure("received", pgettext_lazy("a number", "received"), (MO,)),
    ),
    dimensions=(
        BySubject(GATEWAY, sign=-1, is_apart=True),
        _ByAccount(_ACCOUNT),
        BySystem("gateway.SmsAccount.biz"),
        _BySpNumber(),
    ),
    answer=_answer,
    live=_count_accepted,
    note=_(
        "A message counts once it is archived, at that time; one whose ending turns out later is "
        "counted anew. Segments: the short messages that the operator bills, each part of a long "
        "text one, without those that it refused. Without a Report: accepted by the gateway, and "
        "nobody wanted to know more."
    ),
)  # fmt: skip
