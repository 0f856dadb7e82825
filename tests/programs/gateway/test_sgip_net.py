"""SP and SMG over real sockets, with gateways that behave well and badly."""

import asyncio
import itertools
import json
import socket
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from msgspec.structs import replace

from gateway.net import Connection, Login, Server
from gateway.sgip import (
    Bind,
    CloseReason,
    Command,
    Event,
    FieldError,
    FrameStream,
    Idle,
    Limits,
    LoginType,
    Phase,
    Result,
    Session,
    Side,
    Submit,
    SubmitResp,
    Unbind,
    decode,
    split,
)
from gateway.simulator.smg import BEHAVIOURS, Behaviour, Simulator
from msgplatform.core.servers.private_server import free_port
from tests.support import threads
from tests.support.sgip_support import (
    LOGIN,
    NODE,
    WAIT,
    OwnTimeSmg,
    Sp,
    UnbindingSmg,
    logged,
)

VECTORS = {
    entry["name"]: bytes.fromhex(entry["hex"])
    for entry in json.loads(
        (Path(__file__).parents[2] / "vectors" / "sgip_vectors.json").read_text(encoding="utf-8")
    )
}
FAST = Limits(response_timeout=0.2, resends=1)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "accepted.log"


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(2 * WAIT):
            await scenario()

    asyncio.run(bounded())


async def sent_and_reported(
    log: Path, behaviour: Behaviour, count: int, sp: Sp, *, users: int = 1
) -> Simulator:
    """Sends Submits until every one has a response and all Reports for each user."""
    listener = ("127.0.0.1", sp.listener.port)
    async with Simulator(log, behaviour, listener=listener) as smg:
        sp.connect(smg.port)
        submits = sp.submit(count, users)
        await sp.until(lambda: len(sp.results) == count)
        wanted = {(submit.sequence, user) for submit in submits for user in submit.user_numbers}
        await sp.until(
            lambda: wanted <= {(found.submit_sequence, found.user_number) for found in sp.reports}
        )
        # The gateway takes what it has not sent yet with it.
        await sp.until(lambda: len(sp.reports) >= len(wanted) * behaviour.report_copies)
        assert set(sp.results.values()) == {0}
        lines = list(logged(log))
        assert Counter((sequence, user) for sequence, user, _, _ in lines) == Counter(wanted)
        return smg


@pytest.mark.parametrize(
    "name", ["happy", "slow", "dropping", "early-reports", "submit-link", "duplicating", "garbage"]
)
def test_nothing_is_lost_and_nothing_is_accepted_twice(name: str, log: Path) -> None:
    behaviour = BEHAVIOURS[name]
    if name == "early-reports":
        behaviour = replace(behaviour, response_delay=1.0)

    async def scenario() -> None:
        async with Sp() as sp:
            smg = await sent_and_reported(log, behaviour, 100, sp, users=3)
            assert smg.accepted == {0: 100}
            if name == "dropping":
                assert sp.reasons()[CloseReason.LOST] >= 2
            if name == "garbage":
                assert sp.reasons()[CloseReason.PROTOCOL] >= 1
            if name == "early-reports":
                first = dict(reversed([(sequence, kind) for kind, sequence in sp.order]))
                # Over two connections: on a busy machine some responses are read first.
                assert list(first.values()).count("report") > len(first) / 2
            if name == "duplicating":  # two Reports for each user, each of them written twice
                assert len(sp.reports) == 600
                assert len({found.sequence for found in sp.reports}) == 600

    run(scenario)


def test_many_messages_over_several_connections(log: Path) -> None:
    async def scenario() -> None:
        async with Sp(connections=3) as sp:
            smg = await sent_and_reported(log, BEHAVIOURS["happy"], 2000, sp)
            assert smg.accepted == {0: 2000}
            assert sp.most_waiting == 32
            assert set(sp.reasons()) <= {CloseReason.UNBOUND}  # when the gateway left

    run(scenario)


def test_a_gateway_is_reached_at_its_second_address_while_the_first_is_mute(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def addresses(_host: str, port: int, *_: object, **__: object) -> list[tuple[object, ...]]:
        hosts = "127.0.0.2", "127.0.0.1"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port)) for host in hosts]

    async def scenario() -> None:
        async with Sp() as sp, Simulator(log, BEHAVIOURS["happy"]) as smg:
            with ExitStack() as stack:
                place = "127.0.0.2", smg.port
                # With a full queue the system answers no further connection.
                stack.enter_context(socket.create_server(place, backlog=0))
                for _ in range(3):
                    caller = stack.enter_context(socket.socket())
                    caller.setblocking(False)
                    caller.connect_ex(place)
                monkeypatch.setattr(socket, "getaddrinfo", addresses)
                client = sp.connect(smg.port, host="smg.test")
                await sp.until(lambda: bool(client.bound))
                assert client.attempts == 1

    run(scenario)


def test_the_window_is_used_and_kept(log: Path) -> None:
    async def scenario() -> None:
        limits = Limits(window=8)
        async with Sp(limits) as sp:
            await sent_and_reported(log, replace(BEHAVIOURS["slow"], response_delay=0.05), 40, sp)
            assert sp.most_waiting == 8

    run(scenario)


def test_a_gateway_that_never_answers_is_asked_again_and_left(log: Path) -> None:
    async def scenario() -> None:
        async with Sp(FAST) as sp, Simulator(log, BEHAVIOURS["silent"]) as smg:
            sp.connect(smg.port)
            submits = sp.submit(50)
            await sp.until(lambda: sp.reasons()[CloseReason.SILENT] >= 2)
            assert sp.timed_out >= 32
            assert sp.results == {}
            # However often they came, over however many connections.
            found = Counter(sequence for sequence, _, _, _ in logged(log))
            assert set(found) <= {submit.sequence for submit in submits}
            assert set(found.values()) == {1}
            assert len(found) >= 32

    run(scenario)


def test_a_refusal_is_an_answer(log: Path) -> None:
    async def scenario() -> None:
        async with Sp() as sp, Simulator(log, BEHAVIOURS["refusing"]) as smg:
            sp.connect(smg.port)
            sp.submit(40)
            await sp.until(lambda: len(sp.results) == 40)
            assert set(sp.results.values()) == {Result.NO_ROUTE}
            assert sp.reports == []

    run(scenario)


def test_a_failed_message_has_a_report_with_its_code(log: Path) -> None:
    async def scenario() -> None:
        async with Sp() as sp:
            await sent_and_reported(log, BEHAVIOURS["failing"], 5, sp)
            assert {(found.state, found.error_code) for found in sp.reports} == {(2, 29)}

    run(scenario)


def test_throttled_commands_are_told_so(log: Path) -> None:
    async def scenario() -> None:
        behaviour = replace(BEHAVIOURS["throttling"], per_second=10)
        async with Sp() as sp, Simulator(log, behaviour) as smg:
            sp.connect(smg.port)
            sp.submit(200)
            await sp.until(lambda: len(sp.results) == 200)
            found = Counter(sp.results.values())
            assert set(found) == {0, 88}
            assert found == smg.accepted
            # The same sequence may come again after 88.
            throttled = next(s for s, result in sp.results.items() if result == 88)
            sp.results.clear()
            again = Submit(throttled, "10690001", "0" * 21, ("8613000000000",), "99999", "TEST")
            smg.behaviour = Behaviour()
            sp.queue.append(again.encode())
            sp.pump()
            await sp.until(lambda: sp.results)
            assert sp.results == {throttled: 0}

    run(scenario)


def test_a_host_for_whose_name_there_is_no_thread_is_tried_again(log: Path) -> None:
    async def scenario() -> None:
        async with Sp() as sp, Simulator(log, BEHAVIOURS["happy"]) as smg:
            with threads.refusing("asyncio"):
                client = sp.connect(smg.port, host="localhost")
                while client.attempts < 2:
                    await asyncio.sleep(0.01)
            sp.submit(1)
            await sp.until(lambda: sp.results)

    run(scenario)


def test_a_refused_login_is_tried_again_later_and_later(log: Path) -> None:
    async def scenario() -> None:
        async with Sp() as sp, Simulator(log, BEHAVIOURS["unwelcoming"]) as smg:
            client = sp.connect(smg.port)
            await sp.until(lambda: len(sp.refused) == 3)
            assert set(sp.refused) == {Result.LOGIN}
            assert client.attempts == 3
            assert client.bound == []
            smg.behaviour = BEHAVIOURS["happy"]
            await sp.until(lambda: client.bound)

    run(scenario)


@pytest.mark.parametrize("login", [Login("sp", "wrong"), Login("sp", "secret", 2)])
def test_a_wrong_login_is_refused(login: Login, log: Path) -> None:
    async def scenario() -> None:
        async with Sp() as sp, Simulator(log) as smg:
            sp.connect(smg.port, login)
            await sp.until(lambda: sp.refused)
            assert sp.refused[0] == (4 if login.login_type == LoginType.SMG_TO_SP else 1)
            assert sp.reasons()[CloseReason.REFUSED] >= 1

    run(scenario)


def test_a_login_that_does_not_fit_is_an_error_at_once() -> None:
    async def scenario() -> None:
        async with Sp() as sp:
            with pytest.raises(FieldError):
                sp.connect(1, Login("a name of 17 chars", "secret"))

    run(scenario)


def test_a_gateway_that_is_away_is_found_when_it_comes(log: Path) -> None:
    async def scenario() -> None:
        port = free_port()
        async with Sp() as sp:
            client = sp.connect(port)
            sp.submit(3)
            while client.attempts < 3:
                await asyncio.sleep(0)  # there is nothing to be awaited
            async with Simulator(log, port=port):
                await sp.until(lambda: len(sp.results) == 3)

    run(scenario)


def test_messages_of_users_arrive_whole(log: Path) -> None:
    async def scenario() -> None:
        async with Sp() as sp:
            listener = ("127.0.0.1", sp.listener.port)
            async with Simulator(log, listener=listener) as smg:
                texts = ["MO hello", "长短信测试内容" * 40, "a😀" * 100]
                sizes = [smg.deliver("8613012345678", "10690001", text) for text in texts]
                await sp.until(lambda: len(sp.texts) == 3)
                assert sp.texts == texts
                assert sizes[0] == 1
                assert min(sizes[1:]) > 1

    run(scenario)


def test_messages_of_users_arrive_over_the_connection_of_the_sp(log: Path) -> None:
    async def scenario() -> None:
        async with Sp() as sp, Simulator(log, BEHAVIOURS["submit-link"]) as smg:
            smg.deliver("8613012345678", "10690001", "early")  # before anybody is there
            sp.connect(smg.port)
            await sp.until(lambda: sp.texts == ["early"])

    run(scenario)


def test_a_report_that_the_sp_could_not_take_comes_again(log: Path) -> None:
    async def scenario() -> None:
        async with Sp() as sp:
            sp.report_result = Result.BUSY
            listener = ("127.0.0.1", sp.listener.port)
            async with Simulator(log, listener=listener) as smg:
                sp.connect(smg.port)
                (submit,) = sp.submit(1)
                await sp.until(lambda: smg.outbox.answers.get(Result.BUSY, 0) >= 2)
                sp.report_result = 0
                await sp.until(lambda: sp.reports)
                assert sp.reports[0].submit_sequence == submit.sequence

    run(scenario)


def test_reports_whose_responses_were_lost_come_again_and_are_taken_once(log: Path) -> None:
    async def scenario() -> None:
        async with Sp() as sp:
            sp.drop_next_reports = True
            async with Simulator(log, listener=("127.0.0.1", sp.listener.port)) as smg:
                smg.changed = sp.changed
                sp.connect(smg.port)
                submits = sp.submit(60)
                await sp.until(lambda: smg.outbox.answers.get(0) == 60)
                found = Counter(report.submit_sequence for report in sp.reports)
                assert found == {submit.sequence: 1 for submit in submits}
                assert sp.reasons()[CloseReason.LOST] == 1

    run(scenario)


def test_what_a_handler_fails_on_comes_again(log: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with Sp() as sp:
            sp.fail_on_reports = 2
            await sent_and_reported(log, BEHAVIOURS["happy"], 50, sp)
            assert sp.fail_on_reports == 0

    run(scenario)
    assert "planted" in caplog.text


def test_a_gateway_that_was_started_again_knows_what_it_accepted(log: Path) -> None:
    async def scenario() -> None:
        async with Sp() as sp:
            async with Simulator(log, port=free_port()) as smg:
                client = sp.connect(smg.port)
                submits = sp.submit(10)
                await sp.until(lambda: len(sp.reports) == 10)
            with log.open("a") as cut_short:
                cut_short.write("3010099999:11")
            sp.results.clear()
            async with Simulator(log, port=smg.port) as again:
                sp.queue.extend(submit.encode() for submit in submits)
                await sp.until(lambda: client.bound and len(sp.results) == 10)
                assert again.accepted == {}
            assert len(list(logged(log))) == 10
            await client.stop()

    run(scenario)


def test_processes_share_a_port() -> None:
    async def scenario() -> None:
        one, other = (Server(Side.SP, lambda _, bind: 0, Keeper()) for _ in range(2))
        await one.start("127.0.0.1", 0, reuse_port=True)
        await other.start("127.0.0.1", one.port, reuse_port=True)
        assert one.port == other.port
        await one.stop()
        await other.stop()

    run(scenario)


def test_a_long_message_has_a_line_for_each_part(log: Path) -> None:
    async def scenario() -> None:
        async with Sp() as sp, Simulator(log) as smg:
            sp.connect(smg.port)
            parts = split("长" * 100, 5)
            for content in parts.contents:
                submit = Submit(
                    sp.next(),
                    "10690001",
                    "0" * 21,
                    ("8613012345678",),
                    "99999",
                    "TEST",
                    tp_udhi=parts.tp_udhi,
                    message_coding=parts.message_coding,
                    message_content=content,
                )
                sp.queue.append(submit.encode())
            sp.pump()
            await sp.until(lambda: len(sp.results) == 2)
            assert [part for _, _, part, _ in logged(log)] == ["1/2", "2/2"]

    run(scenario)


def test_an_idle_connection_is_unbound_and_comes_again_when_it_is_wanted(log: Path) -> None:
    async def scenario() -> None:
        async with Sp(Limits(idle_timeout=0.05)) as sp, Simulator(log) as smg:
            client = sp.connect(smg.port)
            await sp.until(lambda: sp.ends)
            assert sp.reasons() == {CloseReason.UNBOUND: 1}
            assert client.attempts == 1
            sp.submit(1)
            assert client.bound == []
            client.wake()
            await sp.until(lambda: len(sp.results) == 1)
            assert client.attempts == 2

    run(scenario)


def test_a_login_under_way_ends_when_the_connections_become_fewer() -> None:
    async def scenario() -> None:
        logins = itertools.count(1)
        async with Sp(connections=3) as sp:

            def check(_connection: Connection, _bind: Bind) -> int:
                if next(logins) == 3:
                    client.resize(2)
                return 0

            server = Server(Side.SMG, check, Keeper())
            await server.start("127.0.0.1", 0)
            client = sp.connect(server.port)
            await sp.until(lambda: sp.ends)
            assert sp.reasons() == {CloseReason.UNBOUND: 1}
            assert len(client.bound) == 2
            await server.stop()

    run(scenario)


def test_a_gateway_may_answer_unbind_under_a_time_of_its_own() -> None:
    async def scenario() -> None:
        received: list[Command] = []
        server = await asyncio.get_running_loop().create_server(
            lambda: OwnTimeSmg(received), "127.0.0.1", 0
        )
        async with server, Sp(Limits(idle_timeout=0.05, response_timeout=10)) as sp:
            client = sp.connect(server.sockets[0].getsockname()[1])
            await sp.until(lambda: sp.ends)
            assert sp.reasons() == {CloseReason.UNBOUND: 1}
            sp.submit(1)
            client.wake()
            await sp.until(lambda: len(sp.results) == 1)
            assert client.attempts == 2
            await client.stop()
            assert sp.reasons() == {CloseReason.UNBOUND: 2}
            assert [type(command) for command in received] == [Bind, Unbind, Bind, Submit, Unbind]

    run(scenario)


def test_reports_come_after_a_quiet_time_and_after_an_unbind_of_the_peer(log: Path) -> None:
    async def scenario() -> None:
        async with Sp() as sp:
            listener = ("127.0.0.1", sp.listener.port)
            quiet = Limits(idle_timeout=0.05)
            async with Simulator(log, listener=listener, limits=quiet) as smg:
                await sp.until(lambda: sp.ends)  # the gateway unbound its connection
                assert sp.reasons() == {CloseReason.UNBOUND: 1}
                sp.connect(smg.port)
                sp.submit(5)
                await sp.until(lambda: len(sp.reports) == 5)

    run(scenario)


def test_what_the_peer_unbound_without_an_answer_is_sent_again(log: Path) -> None:
    async def scenario() -> None:
        async with Sp() as sp, Simulator(log, BEHAVIOURS["silent"]) as smg:
            client = sp.connect(smg.port)
            await sp.until(lambda: client.bound)
            sp.submit(5)
            while smg.accepted[0] < 5:
                await asyncio.sleep(0)  # there is nothing to be awaited
            smg.behaviour = BEHAVIOURS["happy"]
            for connection in smg.connections:
                connection.write_raw(VECTORS["unbind"])
            await sp.until(lambda: sp.ends)
            assert sp.ends[0].reason is CloseReason.UNBOUND
            assert len(sp.ends[0].unanswered) == 5
            await sp.until(lambda: client.attempts == 2 and client.bound)

    run(scenario)


def test_a_gateway_that_unbinds_instead_of_answering_is_tried_later_and_later() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        received: list[Command] = []
        server = await loop.create_server(lambda: UnbindingSmg(received), "127.0.0.1", 0)
        async with server, Sp() as sp:
            began = loop.time()
            client = sp.connect(server.sockets[0].getsockname()[1])
            sp.submit(1)
            await sp.until(lambda: len(sp.ends) == 8)
            # Pauses of 0.01 s, and each twice as long as the one before, up to 0.2 s.
            assert loop.time() - began > 0.5
            assert sp.reasons() == {CloseReason.UNBOUND: 8}
            assert client.attempts == 8

    run(scenario)


def test_stopping_awaits_what_was_sent(log: Path) -> None:
    async def scenario() -> None:
        behaviour = replace(BEHAVIOURS["slow"], response_delay=0.1)
        async with Sp() as sp, Simulator(log, behaviour) as smg:
            client = sp.connect(smg.port)
            await sp.until(lambda: client.bound)
            sp.submit(20)
            await client.stop(WAIT)
            assert len(sp.results) == 20
            assert sp.reasons() == {CloseReason.UNBOUND: 1}

    run(scenario)


class Keeper:
    """Keeps what comes."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.batches: list[int] = []
        self.connection: Connection | None = None
        self.changed = asyncio.Event()

    def on_events(self, connection: Connection, events: list[Event]) -> None:
        self.connection = connection
        self.events += events
        self.batches.append(len(events))
        self.changed.set()


def test_the_bytes_on_the_wire_are_those_of_the_vectors() -> None:
    async def scenario() -> None:
        keeper = Keeper()
        server = Server(Side.SMG, lambda _, bind: int(bind.login_password != "sppass"), keeper)
        await server.start("127.0.0.1", 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(VECTORS["bind_sp_to_smg"])
        assert await reader.readexactly(29) == VECTORS["bind_resp_ok"]
        for byte in VECTORS["submit_gbk"]:  # a byte at a time
            writer.write(bytes((byte,)))
            await writer.drain()
        while len(keeper.events) < 2:
            keeper.changed.clear()
            await keeper.changed.wait()
        (_, submit) = keeper.events
        assert isinstance(submit, Submit)
        assert keeper.connection
        keeper.connection.respond(submit, 11)
        assert await reader.readexactly(29) == VECTORS["submit_resp_node_busy"]
        writer.write(VECTORS["unbind"])
        assert await reader.read() == VECTORS["unbind_resp"]  # and then the end
        writer.close()
        await server.stop()

    run(scenario)


def test_what_is_sent_in_one_turn_leaves_in_one_piece() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        keeper, pieces, done = Keeper(), list[bytes](), asyncio.Event()

        class Smg(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                self.transport = transport

            def data_received(self, data: bytes) -> None:
                pieces.append(data)
                if len(pieces) == 1:
                    self.transport.write(VECTORS["bind_resp_ok"])  # type: ignore[attr-defined]
                else:
                    done.set()

        server = await loop.create_server(Smg, "127.0.0.1", 0)
        bind = decode(VECTORS["bind_sp_to_smg"])
        assert isinstance(bind, Bind)
        _, connection = await loop.create_connection(
            lambda: Connection(lambda now: Session(Side.SP, now, bind=bind), keeper),
            "127.0.0.1",
            server.sockets[0].getsockname()[1],
        )
        await keeper.changed.wait()
        assert connection.peer.startswith("127.0.0.1:")
        for counter in range(32):
            connection.send(
                Submit((NODE, 1, counter), "1069", "0", ("8613012345678",), "1", "T"), counter
            )
        await done.wait()
        assert len(FrameStream().feed(pieces[1])) == 32
        connection.drop()
        await connection.closed
        server.close()

    run(scenario)


def test_a_peer_that_does_not_read_is_sent_no_more() -> None:
    async def scenario() -> None:
        keeper = Keeper()
        server = Server(Side.SMG, lambda _, bind: 0, keeper)
        await server.start("127.0.0.1", 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1000)
        writer.write(VECTORS["bind_sp_to_smg"])
        await reader.readexactly(29)
        connection = keeper.connection
        assert connection
        assert connection.capacity == 32
        connection.write_raw(bytes(20_000_000))
        assert connection.capacity == 0
        while not connection.capacity:  # reading lets it send again
            assert await reader.read(1 << 20)
        connection.respond(decode(VECTORS["submit_ascii"]))  # type: ignore[arg-type]
        writer.close()
        await connection.closed
        assert connection.session.phase is Phase.CLOSED
        connection.respond(decode(VECTORS["submit_ascii"]))  # type: ignore[arg-type]  # to nobody
        await server.stop()

    run(scenario)


def test_a_connection_that_says_nothing_is_closed() -> None:
    async def scenario() -> None:
        keeper = Keeper()
        server = Server(Side.SP, lambda _, bind: 0, keeper, limits=FAST)
        await server.start("127.0.0.1", 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        assert await reader.read() == b""
        assert not any(isinstance(event, Idle) for event in keeper.events)
        assert len(server.connections) == 0
        writer.close()
        await server.stop()
        await server.stop()

    run(scenario)


def test_a_listener_on_all_addresses_takes_ipv4_and_ipv6() -> None:
    async def scenario() -> None:
        keeper = Keeper()
        server = Server(Side.SMG, lambda _, bind: 0, keeper)
        await server.start("::", 0, reuse_port=True)
        for host, place in (("127.0.0.1", "127.0.0.1"), ("::1", "[::1]")):
            reader, writer = await asyncio.open_connection(host, server.port)
            writer.write(VECTORS["bind_sp_to_smg"])
            await reader.readexactly(29)
            assert keeper.connection
            port = writer.get_extra_info("sockname")[1]
            assert (keeper.connection.address, keeper.connection.peer) == (host, f"{place}:{port}")
            writer.close()
        await server.stop()

    run(scenario)


def test_noise_is_no_harm() -> None:
    async def scenario() -> None:
        server = Server(Side.SP, lambda _, bind: 0, Keeper())
        await server.start("127.0.0.1", 0)
        for noise in (b"GET / HTTP/1.1\r\n\r\n", bytes(100), SubmitResp((1, 2, 3)).encode()):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(noise)
            writer.write_eof()
            assert await reader.read() == b""
            writer.close()
        await server.stop()
        assert LOGIN.name in repr(LOGIN)
        assert LOGIN.password not in repr(LOGIN)

    run(scenario)
