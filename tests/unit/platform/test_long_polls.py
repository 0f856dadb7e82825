"""Long polls: a request waits in the event loop, is asked once more, and always ends."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from msgplatform.core.web.long_polls import HEADER, WAITING
from msgplatform.doors.web import bodies, long_polls
from msgplatform.doors.web.bodies import Answer
from msgplatform.doors.web.long_polls import LongPolls

TOPIC = "tests.long_polls:1"
SOON = 60.0


def empty(topic: str = TOPIC, system: int = 1) -> Answer:
    """The answer of a view that waits for the topic."""
    value = f"{topic} {system}".encode()
    return Answer(200, [(b"content-length", b"0"), (HEADER.lower().encode(), value)], b"")


DONE = Answer(200, [], b"something")


class Client:
    """Stays until it leaves."""

    def __init__(self) -> None:
        self.leaves = asyncio.Event()

    async def receive(self) -> dict[str, Any]:
        await self.leaves.wait()
        return {"type": "http.disconnect"}


class View:
    """Answers what it is told; `asked` are the questions."""

    def __init__(self, *answers: Answer) -> None:
        self.answers, self.asked = list(answers), list[bool]()

    async def ask(self, has_waited: bool) -> Answer | int:
        self.asked.append(has_waited)
        return self.answers.pop(0)


async def until_it_waits() -> None:
    async with asyncio.timeout(SOON):
        while not WAITING.topics(TOPIC):
            await asyncio.sleep(0)


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(test())
    assert not WAITING.topics(TOPIC)


def test_another_answer_goes_through() -> None:
    async def test() -> None:
        view = View(DONE)
        assert await LongPolls().answer(view.ask, Client().receive) == (DONE, 0.0)

    run(test)


def test_it_is_asked_again_when_something_comes() -> None:
    async def test() -> None:
        view = View(empty(), empty(), DONE)
        task = asyncio.create_task(LongPolls().answer(view.ask, Client().receive))
        for times in (1, 2):
            await until_it_waits()
            assert view.asked == [False, True][:times]
            WAITING.wake([TOPIC])
            async with asyncio.timeout(SOON):
                while len(view.asked) == times:
                    await asyncio.sleep(0)
        answer, seconds = await task
        assert answer is DONE
        assert seconds > 0
        assert view.asked == [False, True, True]

    run(test)


def test_without_an_event_it_gets_the_first_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_polls, "SECONDS", 0.01)

    async def test() -> None:
        view = View(empty())
        answer, seconds = await LongPolls().answer(view.ask, Client().receive)
        assert answer == Answer(200, [(b"content-length", b"0")], b"")
        assert seconds >= 0.01

    run(test)


def test_a_full_server_refuses_at_once() -> None:
    async def test() -> None:
        polls = LongPolls(max_waiting=1)
        first = asyncio.create_task(polls.answer(View(empty(), DONE).ask, Client().receive))
        await until_it_waits()
        answer, _ = await polls.answer(View(empty()).ask, Client().receive)
        assert isinstance(answer, Answer)
        assert answer.status == 503
        assert b"retry-after" in dict(answer.headers)
        WAITING.wake([TOPIC])
        assert (await first)[0] is DONE

    run(test)


def test_a_client_that_leaves_gives_its_place_back() -> None:
    async def test() -> None:
        polls, client = LongPolls(max_waiting=1), Client()
        task = asyncio.create_task(polls.answer(View(empty()).ask, client.receive))
        await until_it_waits()
        client.leaves.set()
        with pytest.raises(bodies.Disconnected):
            await task
        assert not WAITING.topics(TOPIC)
        other = asyncio.create_task(polls.answer(View(empty(), DONE).ask, Client().receive))
        await until_it_waits()
        WAITING.wake([TOPIC])
        assert (await other)[0] is DONE

    run(test)


def test_two_requests_of_one_listener_do_not_wake_each_other() -> None:
    """A laptop that changed its network asks anew; its earlier request is still there."""

    async def test() -> None:
        polls, client = LongPolls(), Client()
        first, second = View(empty(), empty()), View(empty(), DONE)
        earlier = asyncio.create_task(polls.answer(first.ask, client.receive))
        await until_it_waits()
        later = asyncio.create_task(polls.answer(second.ask, Client().receive))
        async with asyncio.timeout(SOON):
            while len(first.asked) < 2:
                await asyncio.sleep(0)
        for _ in range(100):
            await asyncio.sleep(0)
        assert (first.asked, second.asked) == ([False, True], [False])
        assert not earlier.done()
        WAITING.wake([TOPIC])
        assert (await later)[0] is DONE
        client.leaves.set()
        with pytest.raises(bodies.Disconnected):
            await earlier

    run(test)


def test_a_later_request_for_the_same_wakes_the_earlier() -> None:
    async def test() -> None:
        polls = LongPolls()
        earlier = asyncio.create_task(polls.answer(View(empty(), DONE).ask, Client().receive))
        await until_it_waits()
        later = asyncio.create_task(polls.answer(View(empty(), DONE).ask, Client().receive))
        async with asyncio.timeout(SOON):
            assert (await earlier)[0] is DONE
        assert not later.done()
        WAITING.wake([TOPIC])
        assert (await later)[0] is DONE

    run(test)


def test_requests_that_repeat_one_topic_take_two_places() -> None:
    """A client that repeats after a time limit of its own, and leaves its connections open."""

    async def test() -> None:
        polls = LongPolls(max_waiting=4)
        tasks = []
        for _ in range(30):
            view = View(empty(), empty(), empty())
            tasks.append(asyncio.create_task(polls.answer(view.ask, Client().receive)))
            await until_it_waits()
            for _ in range(20):
                await asyncio.sleep(0)
        waiting = [task for task in tasks if not task.done()]
        assert len(waiting) == 2
        answers = [task.result()[0] for task in tasks if task.done()]
        assert {answer.status for answer in answers if isinstance(answer, Answer)} == {200}
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

    run(test)


def test_one_system_with_many_consumers_leaves_places_to_others() -> None:
    async def test() -> None:
        polls, tasks = LongPolls(max_waiting=8, max_of_system=2), []
        for number in range(6):
            view = View(empty(f"{TOPIC}{number}", 1))
            tasks.append(asyncio.create_task(polls.answer(view.ask, Client().receive)))
        other = View(empty(f"{TOPIC}-other", 2), DONE)
        tasks.append(asyncio.create_task(polls.answer(other.ask, Client().receive)))
        async with asyncio.timeout(SOON):
            while sum(task.done() for task in tasks) + len(WAITING.topics(TOPIC)) < len(tasks):
                await asyncio.sleep(0)
        refused = [task.result()[0] for task in tasks if task.done()]
        assert [answer.status for answer in refused if isinstance(answer, Answer)] == [503] * 4
        WAITING.wake([f"{TOPIC}-other"])
        assert (await tasks.pop())[0] is DONE
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    run(test)
