"""Business systems, consumers as processes, and the account of what became of their messages."""

import contextlib
from collections.abc import Iterator
from typing import Any

from demo.notify.traffic import Accepted
from demo.sink_process import SinkProcess
from tests.cluster import Cluster

CAST = """
import json
from msgplatform.doors.api.access import keys
from msgplatform.models import Biz
from notify.models import BizReceive, Receive
tokens = {{}}
for biz_name, urls in {cast!r}.items():
    biz = Biz.objects.create(name=biz_name)
    tokens[biz_name] = keys.create(biz, "test", ["events:write", "events:read"])[1]
    for name, url in urls.items():
        receive, _ = Receive.objects.get_or_create(name=name, defaults={{"url": url}})
        BizReceive.objects.create(biz=biz, receive=receive, schedule={schedule!r})
print(json.dumps(tokens))
"""
OPEN = """
import json
from collections import Counter
from notify.models import BizMsg, ReceiveMsg
open = Counter(ReceiveMsg.objects.exclude(status=ReceiveMsg.Status.DELIVERED)
    .values_list("status", flat=True))
print(json.dumps({"copies": dict(open), "messages": BizMsg.objects.filter(state=0).count()}))
"""
# Seconds. A copy is given up when it, and its subscription's failing, are older than all of them
# together: on a busy machine that must not come before the second attempt.
SCHEDULE = [1, 1, 1, 2, 2, 2, 2, 600]
DONE: dict[str, Any] = {"copies": {}, "messages": 0}


@contextlib.contextmanager
def cast(
    cluster: Cluster, sinks: dict[str, list[str]], systems: dict[str, list[str]]
) -> Iterator[tuple[dict[str, str], dict[str, SinkProcess]]]:
    """Consumers as processes, and the rows that connect business systems to them."""
    with contextlib.ExitStack() as stack:
        running = {
            name: stack.enter_context(SinkProcess(cluster.folder / f"{name}.seen", arguments))
            for name, arguments in sinks.items()
        }
        wanted = {
            biz: {name: running[name].url for name in names} for biz, names in systems.items()
        }
        tokens = cluster.script(CAST.format(cast=wanted, schedule=SCHEDULE))
        yield tokens, running


SYSTEMS = {"orders": ["one", "two"], "stock": ["two", "three"], "users": ["three"]}
SINKS = {"one": [], "two": ["--delay", "0.01"], "three": ["--fail-every", "25"]}


def missing(accepted: list[Accepted], sinks: dict[str, SinkProcess]) -> dict[str, set[str]]:
    """Copies that a consumer should have and has not written down."""
    expected: dict[str, set[str]] = {name: set() for name in sinks}
    for message in accepted:
        for name in SYSTEMS[message.system]:
            expected[name].add(message.id)
    return {n: ids - sinks[n].ids() for n, ids in expected.items() if ids - sinks[n].ids()}


def duplicates(sinks: dict[str, SinkProcess]) -> int:
    return sum(len(sink.lines()) - len(sink.ids()) for sink in sinks.values())


def assert_marked(cluster: Cluster) -> None:
    """Everything that arrived is written back, too."""
    try:
        cluster.wait_until(lambda: cluster.script(OPEN) == DONE, "every copy to be marked")
    except AssertionError as error:
        raise AssertionError(f"not marked, by status: {cluster.script(OPEN)}") from error
