"""The load of SMS, CRM sync and Feed at once, and what the books of each say afterwards."""

import contextlib
import http.client
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from demo.feed.traffic import Client
from tests.cluster import Cluster
from tests.flows import feed_town
from tests.flows.crm_account import TwoCrms, two_crms
from tests.flows.crm_traffic import Ledger, Writer
from tests.flows.sms_account import Account
from tests.flows.sms_business import Business, business
from tests.flows.sms_cluster import SmsCluster
from tests.flows.sms_fire import Fire
from tests.flows.sms_traffic import OPERATORS
from tests.scale.conftest import Figures

SMGS = {name: operator.manners for name, operator in OPERATORS.items()}
SETTINGS = {**feed_town.SETTINGS, "CRM_LEASE_SECONDS": "12", "CRM_BREAKER_SECONDS": "2"}
# Less than a busy machine with all programs carries: nothing piles up for long.
_MESSAGES, _SHARE, _MAX_IN_REDIS = 200, 3, 30
_MORE_SECONDS, _CHANGE_SECONDS, _STEP_SECONDS = 1.0, 0.2, 1.0
_SETTLE_SECONDS = 240.0
_WRITERS = 2
# Events that are not handled, and when everything of them is.
_WAITING = """
import json
from notify.feed.models import EventQueue
rows = EventQueue.objects.exclude(status=EventQueue.Status.HANDLED)
print(json.dumps(list(rows.values_list("pk", flat=True))))
"""


class PatientWriter(Writer):
    """A lead that is not there yet, because another server of the database was asked, is asked for
    again; `late` counts these answers."""

    late = 0

    def _once(self, method: str, path: str, body: Any) -> tuple[int, bytes]:
        status, data = super()._once(method, path, body)
        if status == http.client.NOT_FOUND:
            self.late += 1
            return 503, data
        return status, data


class PatientClient(Client):
    """As PatientWriter, for posts; `late` is a list with a line for each such answer."""

    late: list[str] = []

    def call(self, method: str, path: str, body: Any = None) -> Any:
        while True:
            try:
                return super().call(method, path, body)
            except RuntimeError as error:
                if "HTTP 404" not in str(error):
                    raise
                self.late.append(f"{method} {path}")
                time.sleep(0.1)


class PatientInhabitants(feed_town.Inhabitants):
    """`disagreements` are changes of relations that were decided by what another server knew."""

    client_class = PatientClient

    def __init__(self, cluster: Cluster, token: str, pause: float) -> None:
        super().__init__(cluster, token)
        self.pause = pause
        self.disagreements: list[str] = []

    def change(self, client: Client, action: str, uid: str, other: str) -> None:
        done = client.change((action, uid, other))
        if done != self.town.change(action, uid, other):
            self.disagreements.append(f"{action} {uid} {other}: {done}")


@dataclass
class Loads:
    """`faults` are what the books of a flow complain of, by flow."""

    cluster: SmsCluster
    fire: Fire
    crms: TwoCrms
    people: PatientInhabitants
    haste: float
    ledger: Ledger = field(default_factory=Ledger)
    faults: dict[str, list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._over = threading.Event()
        self._errors: list[BaseException] = []
        self.writers = [
            PatientWriter(self.cluster, self.crms.token, self.ledger, n) for n in range(_WRITERS)
        ]
        self._texts = threading.Thread(target=self._send_texts, daemon=True)

    def start(self) -> None:
        self.people.settle()
        self.people.start()
        for writer in self.writers:
            writer.wanted, writer.pause = 50, _CHANGE_SECONDS / self.haste
            writer.start()
        self._texts.start()

    def accepted(self) -> dict[str, Callable[[], bool]]:
        """Flow → True once all that was accepted until now has been delivered."""
        account = Account(self.cluster, self.fire.business, list(self.fire.mos))
        bay = OPERATORS["bay"].prefix  # tells nothing until the end of the test
        for ids in account.accepted.values():
            for id in [id for id, number in ids.items() if number.startswith(bay)]:
                del ids[id]
        leads = set(self.ledger.expected())
        events = set(self.cluster.script(_WAITING))
        return {
            "SMS": lambda: not account.unheard(),
            "CRM sync": lambda: leads <= set(self.crms.books.made),
            "Feed": lambda: not events & set(self.cluster.script(_WAITING)),
        }

    def finish(self) -> None:
        """No new work begins; what is under way has an answer. Late Reports come."""
        self._over.set()
        self._texts.join(120)
        assert not self._errors, self._errors
        self.cluster.manners["bay"] = []
        self.cluster.restart("bay")
        for writer in self.writers:
            writer.finish()
        self.people.finish()
        self.fire.business.finish()

    def check(self, figures: Figures) -> None:
        """Print what each flow's books say, and keep what they complain of."""
        figures.add(f"SMS: {self._sms()}; faults {self.faults.get('SMS')}")
        figures.add(f"CRM sync: {self._crm()}; faults {self.faults.get('CRM sync')}")
        figures.add(f"Feed: {self._feed()}; faults {self.faults.get('Feed')}")

    # -- the flows -------------------------------------------------------------------------------
    def _send_texts(self) -> None:
        try:
            while not self._over.wait(_MORE_SECONDS / self.haste):
                self.fire.more()
        except BaseException as error:
            self._errors.append(error)

    def _try(self, flow: str, check: Callable[[], object]) -> object:
        try:
            return check()
        except AssertionError as error:
            self.faults.setdefault(flow, []).append(str(error)[:1000])
            return None

    def _sms(self) -> str:
        account = Account(self.cluster, self.fire.business, self.fire.mos)
        for left, what in (
            (account.unheard, "endings that nobody heard"),
            (account.unanswered, "gateways that wait for answers"),
            (account.left_in_redis, "keys that stay in Redis"),
        ):
            with contextlib.suppress(AssertionError):
                self.cluster.wait_until(lambda left=left: not left(), what, _SETTLE_SECONDS)  # type: ignore[misc]
            if some := left():
                self.faults.setdefault("SMS", []).append(f"{len(some)} {what}: {some[:5]}")
        accepted = self._try("SMS", account.check_what_was_accepted)
        self._try("SMS", account.check_what_was_heard)
        parts = self._try("SMS", account.check_gateways)
        reports = self._try("SMS", account.check_archive)
        repeated = sum(ear.repeated for ear in self.fire.business.ears.values())
        return (
            f"{accepted} messages in {parts} parts, {len(self.fire.mos)} MOs, {reports} Reports, "
            f"{self.fire.business.unknown()} requests repeated, {repeated} events heard again"
        )

    def _crm(self) -> str:
        text = self._try("CRM sync", lambda: self.crms.check(self.ledger))
        late = sum(writer.late for writer in self.writers)
        return f"{text or f'{len(self.ledger.leads)} leads'}, {late} answers too early"

    def _feed(self) -> str:
        people, cluster = self.people, self.cluster
        self._try(
            "Feed",
            lambda: cluster.wait_until(
                lambda: feed_town.left(cluster) == 0, "events", _SETTLE_SECONDS
            ),
        )
        differences = people.differences()
        written, unwritten = cluster.script(feed_town.UNWRITTEN)
        for what, some in (
            ("entries are not written", unwritten),
            ("readers were shown a post twice", people.twice),
            ("timelines differ", differences.receivers and differences),
        ):
            if some:
                self.faults.setdefault("Feed", []).append(f"{what}: {some}"[:2000])
        return (
            f"{len(people.town.posts)} posts, {written} entries that must be written, "
            f"{len(PatientClient.late)} answers too early, relations that were decided otherwise: "
            f"{people.disagreements}"
        )


@contextlib.contextmanager
def every_flow(cluster: SmsCluster, haste: float = 1.0) -> Iterator[Loads]:
    """Clients, gateways, CRMs and people of three flows, at work; `haste` 2 is twice as fast."""
    with ExitStack() as stack:
        crms = stack.enter_context(two_crms(cluster))
        systems: Business = stack.enter_context(business(cluster, _MESSAGES, _SHARE))
        token = cluster.script(feed_town.SET_UP)
        people = PatientInhabitants(cluster, token, _STEP_SECONDS / haste)
        for name in OPERATORS:
            cluster.start(name)
        loads = Loads(cluster, Fire(cluster, systems, _MAX_IN_REDIS), crms, people, haste)
        loads.start()
        yield loads
