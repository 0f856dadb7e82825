"""A platform file that is applied, or only tried, beside others that write."""

from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from django.db import connection, connections

from msgplatform.core.data import engines
from msgplatform.core.errors import NotNow
from msgplatform.models import Biz
from msgplatform.setup.platform_file import applying, reading
from msgplatform.setup.platform_file.outcome import FileFaults, Outcome

pytestmark = [pytest.mark.both_databases, pytest.mark.django_db(transaction=True)]
HEAD = "msgplatform: 1\nsystems:\n"


def trial(count: int) -> Outcome:
    text = HEAD + "".join(f"  s{n}: {{title: t}}\n" for n in range(count))
    description = reading.read_sent(reading.parse_sent(text.encode(), len(text)))
    try:
        return applying.apply(description, applying.Options("anna", is_trial=True))
    finally:
        connections.close_all()


def large_trial(count: int) -> Outcome:
    while True:
        try:
            return trial(count)
        except NotNow:  # a small one had the turn at that moment
            continue


def until_refused(large: Future[Outcome]) -> str:
    while not large.done():
        try:
            trial(1)
        except NotNow as error:
            return str(error)
    return ""


def test_others_wait_for_a_short_time() -> None:
    """SQLite has one writer, which a trial is, too; servers lock what is written."""
    is_server = engines.of_connection(connection).is_server
    with ThreadPoolExecutor(1) as pool:
        large = pool.submit(large_trial, 50 if is_server else 6_000)
        if is_server:
            assert len(large.result().changes) == 50
        else:
            assert (
                until_refused(large) == "Another platform file is being applied: repeat it later."
            )
            with pytest.raises(FileFaults, match="divide the file"):
                large.result()
    assert len(trial(1).changes) == 1
    assert Biz.objects.count() == 0
