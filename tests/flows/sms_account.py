"""The account of an SMS crash run: what became of every message, by those who saw it."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from gateway import sgip
from tests.flows.sms_business import Business
from tests.flows.sms_cluster import SmsCluster
from tests.flows.sms_traffic import SYSTEMS, Call, operator_of, parts_of

ARCHIVE = """
import json
from gateway.models import SgipMo, SgipMt, SgipReport
from msgplatform.models import Biz
names = dict(Biz.objects.values_list("id", "name"))
print(json.dumps({
    "mt": list(SgipMt.objects.values_list("id", "user_number", "final", "text", "parts")),
    "reports": list(SgipReport.objects.values_list(
        "mt_id", "node", "ts", "seqno", "user_number", "state")),
    "mo": [(names.get(biz, ""), *rest) for biz, *rest in SgipMo.objects.values_list(
        "biz_id", "user_number", "sp_number", "text", "missing")],
}))
"""
_STATES = {"delivered": sgip.State.DELIVERED, "failed": sgip.State.FAILED}
_COUNTERS = {b"{sms}:mt-GID", b"{sms}:mo-GID", b"{sms}:mt-minutes", b"{sms}:seqno"}


@dataclass
class Account:
    """`mos`: (whose, user, SP number, text) of what users sent."""

    cluster: SmsCluster
    business: Business
    mos: list[tuple[str, str, str, str]]
    accepted: dict[str, dict[str, str]] = field(default_factory=dict)  # system → id → recipient
    calls: dict[str, list[Call]] = field(default_factory=dict)  # system → what it asked for

    def __post_init__(self) -> None:
        for name in SYSTEMS:
            self.accepted[name] = dict(self.business.accepted(name))
            self.calls[name] = self.business.calls(name)

    # -- what must come --------------------------------------------------------------------------
    def unheard(self) -> list[tuple[str, str]]:
        """Messages and MOs of which their system's endpoint has not heard the ending, the text."""
        self.business.listen()
        missing = []
        for name, ear in self.business.ears.items():
            missing += [
                (id, number)
                for id, number in self.accepted[name].items()
                if operator_of(number).endings[-1] not in ear.reports.get(id, ())
            ]
            missing += [mo[1::2] for mo in self.mos if mo[0] == name and mo[3] not in ear.mos]
        return missing

    def unanswered(self) -> list[str]:
        """Gateways that still wait for answers to Reports and MOs: they send them again."""
        return [name for name, books in self.cluster.books.items() if books.owed()]

    def left_in_redis(self) -> list[bytes]:
        """Keys that are neither counters nor gone by themselves some day."""
        sms = self.cluster.sms
        names = [name for name in sms.scan_iter(count=1000) if name not in _COUNTERS]
        with sms.pipeline(transaction=False) as questions:
            for name in names:
                questions.ttl(name)
            seconds_left = questions.execute()
        return [name for name, seconds in zip(names, seconds_left, strict=True) if seconds < 0]

    # -- what must be true -----------------------------------------------------------------------
    def check_what_was_accepted(self) -> int:
        """Every message that was asked for got one id, whatever was repeated; their number."""
        for name, calls in self.calls.items():
            asked = Counter(number for call in calls for number in call.numbers)
            assert Counter(self.accepted[name].values()) == asked
        return sum(map(len, self.accepted.values()))

    def check_what_was_heard(self) -> None:
        """Each ending once as an event of its own; no endings of strangers."""
        for name, ear in self.business.ears.items():
            assert ear.reports.keys() == self.accepted[name].keys()
            for id, number in self.accepted[name].items():
                told = Counter(ear.reports[id])
                assert max(told.values()) == 1, f"{id}: {told}"
                assert told.keys() - {"unknown"} == {operator_of(number).endings[-1]}
            assert Counter(ear.mos) == Counter(mo[3] for mo in self.mos if mo[0] == name)

    def check_gateways(self) -> int:
        """No (part, user) got Result 0 under two sequences, and none is missing; their number."""
        parts = {
            (f"86{number}", f"{part}/{parts_of(call.text)}")
            for calls in self.calls.values()
            for call in calls
            for number in call.numbers
            for part in range(1, parts_of(call.text) + 1)
        }
        taken: dict[tuple[str, str], set[str]] = {}
        for books in self.cluster.books.values():
            for what, sequences in books.accepted().items():
                taken.setdefault(what, set()).update(sequences)
        twice = {what: sequences for what, sequences in taken.items() if len(sequences) > 1}
        assert not twice, f"accepted under two sequences: {twice}"
        assert taken.keys() == parts
        return len(taken)

    def check_archive(self) -> int:
        """Each message once with its last ending, each Report that was answered with its message,
        each MO once; how many Reports."""
        found = self.cluster.script(ARCHIVE)
        wanted = {id: number for ids in self.accepted.values() for id, number in ids.items()}
        texts = {
            f"86{number}": call.text
            for calls in self.calls.values()
            for call in calls
            for number in call.numbers
        }
        assert Counter((str(id), number) for id, number, *_ in found["mt"]) == Counter(
            (id, f"86{number}") for id, number in wanted.items()
        )
        for _id, number, final, text, parts in found["mt"]:
            ending = operator_of(number).endings[-1]
            assert (final, text, parts) == (ending, texts[number], parts_of(text))
        assert Counter(map(tuple, found["mo"])) == Counter((*mo, 0) for mo in self.mos)
        return self._check_reports(found["reports"], wanted)

    def _check_reports(self, rows: list[list[Any]], wanted: dict[str, str]) -> int:
        unmatched = [row for row in rows if str(row[0]) not in wanted]
        assert not unmatched, f"Reports without a message: {unmatched}"
        assert all(f"86{wanted[str(mt)]}" == number for mt, _, _, _, number, _ in rows)
        archived = {(node, ts, seqno, number, state) for _, node, ts, seqno, number, state in rows}
        told = set()
        for books in self.cluster.books.values():
            # In this order: one that is written down meanwhile may be answered meanwhile.
            reports = [r for r in books.put() if isinstance(r, sgip.Report)]
            answered = books.answered()
            open_ones = [r for r in reports if r.sequence not in answered]
            assert not open_ones, f"Reports that were not answered with 0: {open_ones[:5]}"
            told |= {(*r.submit_sequence, r.user_number, r.state) for r in reports}
        lost, made_up = sorted(told - archived)[:5], sorted(archived - told)[:5]
        assert not lost, f"Reports that were answered and are not archived: {lost}"
        assert not made_up, f"Reports in the archive that no gateway wrote down: {made_up}"
        for *_, number, state in archived:
            assert state == _STATES[operator_of(number).endings[-1]]
        return len(told)


def come_to(
    cluster: SmsCluster, left: Callable[[], Sequence[object]], what: str, seconds: float
) -> None:
    """Until nothing is left."""
    try:
        cluster.wait_until(lambda: not left(), "nothing to be left", seconds)
    except AssertionError as error:
        raise AssertionError(f"{len(left())} {what}: {left()[:10]}") from error
