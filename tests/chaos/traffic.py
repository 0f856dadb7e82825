"""The traffic of all four flows during a storm, and the accounts of those who made and got it."""

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from demo.notify.traffic import Accepted, publish_all
from demo.sink_process import SinkProcess
from tests.chaos.platform import ChaosPlatform
from tests.flows import feed_town
from tests.flows.crm_account import TwoCrms, two_crms
from tests.flows.crm_traffic import Ledger, Writer
from tests.flows.feed_town import Inhabitants
from tests.flows.sms_account import Account, come_to
from tests.flows.sms_business import Business, business
from tests.flows.sms_traffic import OPERATORS
from tests.flows.traffic import SINKS, SYSTEMS, assert_marked, cast, duplicates, missing

# The whole traffic.
_EVENTS_A_SECOND = 40
_SMS, _SMS_SHARE = 500, 20  # at least so many; so many of one system at a time
_SMS_PAUSE = 0.2  # seconds between two leaves to send a share
_LEADS, _LEAD_WRITERS, _LEAD_PAUSE = 300, 2, 0.1  # seconds between two changes of a writer


@dataclass
class Traffic:
    """`start` … `stop`, then one check for each flow; each says what there is to say. `share` is
    how much of the whole traffic there is in a second."""

    platform: ChaosPlatform
    tokens: Mapping[str, str]
    sinks: dict[str, SinkProcess]
    systems: Business
    crms: TwoCrms
    people: Inhabitants
    share: float
    ledger: Ledger = field(default_factory=Ledger)
    accepted: list[Accepted] = field(default_factory=list)
    ended_at: float = 0.0  # unix seconds of the last publish
    _over: threading.Event = field(default_factory=threading.Event)
    _errors: list[BaseException] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._threads = [
            threading.Thread(target=self._run, args=[work]) for work in (self._publish, self._send)
        ]
        self._writers = [
            Writer(self.platform, self.crms.token, self.ledger, number)
            for number in range(_LEAD_WRITERS)
        ]
        for writer in self._writers:
            writer.wanted = round(_LEADS * self.share) // _LEAD_WRITERS
            writer.pause = _LEAD_PAUSE / self.share
        self.people.pause /= self.share

    def start(self) -> None:
        self.people.settle()
        self.people.start()
        for thread in [*self._threads, *self._writers]:
            thread.start()

    def stop(self) -> None:
        """Raises what a client could not get over."""
        self._over.set()
        self.people.over.set()
        for thread in self._threads:
            thread.join()
        self.ended_at = time.time()
        for writer in self._writers:
            writer.finish()
        self.people.finish()
        self.systems.finish()
        if self._errors:
            raise self._errors[0]

    # -- what became of it -----------------------------------------------------------------------
    def check_notify(self, may_repeat: int) -> tuple[float, str]:
        """With the longest time without a delivery to a consumer that is always well, in seconds,
        while messages were published."""
        assert len({message.id for message in self.accepted}) == len(self.accepted)
        self.platform.wait_until(
            lambda: not missing(self.accepted, self.sinks), "every delivery to arrive"
        )
        assert_marked(self.platform)
        times = [at for at in self.sinks["one"].times() if at <= self.ended_at]
        longest, begun = max((after - before, before) for before, after in pairwise(times))
        repeated = duplicates(self.sinks)
        assert repeated <= may_repeat
        return longest, (
            f"{len(self.accepted)} messages; longest gap {longest:.1f} s from "
            f"{time.strftime('%H:%M:%S', time.localtime(begun))}; "
            f"duplicates {repeated} of at most {may_repeat}"
        )

    def check_sms(self) -> str:
        account = Account(self.platform, self.systems, [])
        come_to(self.platform, account.unheard, "endings that nobody heard", 600)
        come_to(self.platform, account.unanswered, "gateways that wait for answers", 600)
        come_to(self.platform, account.left_in_redis, "keys that stay in Redis", 600)
        count = account.check_what_was_accepted()
        account.check_what_was_heard()
        parts, reports = account.check_gateways(), account.check_archive()
        endings = Counter(
            ending
            for ear in self.systems.ears.values()
            for told in ear.reports.values()
            for ending in told
        )
        return f"{count} short messages in {parts} parts, {reports} Reports; {dict(endings)}"

    def check_crm_sync(self) -> str:
        return self.crms.check(self.ledger)

    def check_feed(self) -> str:
        return self.people.check()

    # -- threads ---------------------------------------------------------------------------------
    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            self._errors.append(error)
            raise

    def _publish(self) -> None:
        def goes_on() -> bool:
            return not self._over.wait(1 / (_EVENTS_A_SECOND * self.share))

        self.accepted += publish_all(self.platform.base_url, dict(self.tokens), 0, has_more=goes_on)

    def _send(self) -> None:
        while not self._over.wait(_SMS_PAUSE / self.share):
            self.systems.more()


@contextlib.contextmanager
def traffic(platform: ChaosPlatform, share: float) -> Iterator[Traffic]:
    """Rows, consumers, gateways, CRMs and people; nothing is sent yet."""
    text = ["--answer-text", str(platform.answer_text)]
    consumers = {**SINKS, "two": [*SINKS["two"], *text]}
    with (
        business(platform, round(_SMS * share), _SMS_SHARE) as systems,
        cast(platform, consumers, SYSTEMS) as (tokens, sinks),
        two_crms(platform) as crms,
    ):
        for gateway in OPERATORS:
            platform.start(gateway)
        people = Inhabitants(platform, platform.script(feed_town.SET_UP), threads=2)
        yield Traffic(platform, tokens, sinks, systems, crms, people, share)
