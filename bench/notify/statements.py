"""Every statement on a message's way through Notify, recorded by `bench.harness.plans`."""

from datetime import timedelta

from django.utils import timezone

from bench.harness import plans
from bench.harness.programs import messages
from bench.harness.volume import Heavy
from msgplatform.core.archive.walk import PAGE
from msgplatform.core.connections import work_redis
from msgplatform.core.data import ids
from msgplatform.core.flows.messages import MAX_ID, Values
from msgplatform.core.queues import jobs
from msgplatform.messages import engine
from notify import orders
from notify.archive import due as walk, stores
from notify.archive.archiver import move
from notify.intake import intake
from notify.maker.maker import Maker
from notify.marker.marker import Marker
from notify.messages.index import MESSAGES
from notify.messages.records import records
from notify.models import ReceiveMsg
from notify.monitor import metrics
from notify.orders import Result

_EVENTS = 200
INTRODUCTION = """\
# Query plans

Written by `manage.py bench notify-at-scale`. The
platform's own code ran beside tables of {small:,} and of {large:,} rows each (hot and archived);
every statement that it sent to MariaDB was explained just before, and the rows that it read were
counted by the server (the sum of `Handler_read_*`, over all times that the statement ran).
200 messages went through intake, split, queue, a failed and a successful mark.

The cost is flat where both numbers of rows read are alike, whatever the plan's `rows` (an estimate)
says. Counts of `/metrics` and of a search by status stop at a bound, which the smaller tables do
not always reach.
"""


def record(heavy: Heavy) -> plans.Recorder:
    """Run every step once on the connected database, with the work Redis empty."""
    work_redis().flushall()
    seen, begun = plans.Recorder(), timezone.now() - timedelta(seconds=1)
    names = [messages.scattered_key(f"plan-{timezone.now()}", n) for n in range(_EVENTS)]
    events = [
        intake.Event(heavy.biz.pk, messages.EVENT_TYPE, messages.payload(name), name)
        for name in names
    ]
    verdicts = seen.step("Intake of new events", lambda: intake.publish_many(events))
    seen.step("Intake of the same events again", lambda: intake.publish_many(events))
    maker, marker = Maker(), Marker()
    maker.subscriptions.refresh(at_once=True)
    seen.step("Maker: settle, due, split and queue", maker.turn)
    _put_results(heavy, "failed")
    seen.step("Marker: all failed, to be tried again", marker.turn)
    # What failed is due now, not when its schedule says.
    newest = ReceiveMsg.objects.filter(send_times=1, status=ReceiveMsg.Status.PENDING)
    young = ids.first_id_at(begun)
    newest.filter(id__gte=young).update(next_at=timezone.now() - timedelta(seconds=1))
    seen.step("Maker: queue what is due again", maker.turn)
    _put_results(heavy, "delivered")
    seen.step("Marker: all delivered", marker.turn)
    seen.step("Maker: an idle turn", maker.turn)
    _reading(seen, heavy, verdicts[0].id)
    # The archiver moves the oldest hot messages, as if all whose deliveries ended well were old
    # enough.
    page = seen.step("Archiver: a page", lambda: list(walk.candidates(0, 2**62)[:PAGE]))
    due = walk.Due(2**62, 0)
    able = seen.step("Archiver: which may move", lambda: due.read_movable(page))
    seen.step("Archiver: cut into chunks", lambda: list(walk.bounded_chunks(able, stores.hot())))
    seen.step("Archiver: move a chunk", lambda: move(able, due))
    return seen


def _api_page(biz_id: int, values: Values, before: int) -> None:
    ids, _following = engine.find_ids(MESSAGES, {"biz": biz_id, **values}, before, 50)
    records(biz_id, ids)


def _put_results(heavy: Heavy, outcome: str) -> None:
    """Queue results for everything that is queued, as a sender would."""
    name = orders.queue_name(heavy.biz.pk, heavy.subscription.receive_id)
    while order := jobs.claim(name, 60.0):
        jobs.remove_orders([order])
        status = 200 if outcome == "delivered" else 503
        results = [
            Result(
                item[0], heavy.subscription.pk, order.data["claim"], item[2], outcome, status,  # type: ignore[arg-type]
                at=timezone.now().timestamp(), seconds=0.01,
            )
            for item in order.data["items"]
        ]  # fmt: skip
        jobs.put(orders.MARKER_QUEUE, [results], ttl=None)


def _reading(seen: plans.Recorder, heavy: Heavy, message_id: int) -> None:
    biz, subscription = str(heavy.biz.pk), str(heavy.subscription.pk)
    for name, given in (
        ("by event type", {"event_type": "order.shipped"}),
        ("by system", {"biz": biz}),
        ("by system and event type", {"biz": biz, "event_type": "customer.changed"}),
        ("by subscription", {"subscription": subscription}),
        ("by status", {"status": "exhausted"}),
        ("by system and status", {"biz": biz, "status": "held"}),
        ("by idempotency key", {"key": "no-such-key"}),
        ("by id", {"id": str(message_id)}),
        ("by text", {"biz": biz, "text": "no such text"}),
    ):
        seen.step(f"Search {name}", lambda given=given: engine.find(MESSAGES, given, "", 20))  # type: ignore[misc]
    middle = ids.first_id_at(timezone.now() - timedelta(days=3))
    for name, given in (
        ("by event type", {"event_type": "order.shipped"}),
        ("by system", {"biz": biz}),
    ):
        seen.step(
            f"Search {name}, a page in the middle",
            lambda given=given: engine.find(MESSAGES, given, str(middle), 20),  # type: ignore[misc]
        )
    seen.step("Page of one message", lambda: MESSAGES.page(str(message_id)))
    for name, values, before in (
        ("first page of a system's messages", {}, MAX_ID),
        ("a page in the middle", {}, middle),
        ("events of one type, a page in the middle", {"event_type": "order.shipped"}, middle),
    ):
        seen.step(f"API: {name}", lambda of=(values, before): _api_page(heavy.biz.pk, *of))  # type: ignore[misc]
    seen.step("Metrics", lambda: list(metrics.samples()))
