"""Where Redis has each message, and whether that agrees with sms_model.py."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from gateway.lifecycle import keys
from tests.support.sms_model import RANK, Message, Model, Packet

PRIORITIES = (0, 9)


class Places:
    """Everything at one moment, read at once."""

    def __init__(self, client: Any, gateways: Iterable[int], model: Model) -> None:
        self.model, self.gateways = model, tuple(gateways)
        self._alive = [id for id, message in model.messages.items() if not message.gone]
        with client.pipeline(transaction=True) as pipe:
            self._ask(pipe)
            self._take(iter([_texts(row) for row in pipe.execute()]))

    def _ask(self, pipe: Any) -> None:
        for gateway in self.gateways:
            for priority in PRIORITIES:
                pipe.lrange(keys.pending(gateway, priority), 0, -1)
            for queue in (keys.scheduled, keys.claimed, keys.submit_due):
                pipe.zrange(queue(gateway), 0, -1)
        for name in (keys.SUBMITED, keys.RESPONSE_SUCC, keys.RESPONSE_FAIL):
            pipe.smembers(name)
        for name in (keys.REPORT_DUE, keys.REPORTING, keys.FINISHING):
            pipe.zrange(name, 0, -1)
        for name in (keys.LIST_REPORT, keys.LIST_FINISH):
            pipe.lrange(name, 0, -1)
        for id in self._alive:
            pipe.hgetall(keys.mt(int(id)))
        for name in self.model.packets:
            pipe.hgetall(f"{keys.PREFIX}submit:{name}")

    def _take(self, rows: Iterator[Any]) -> None:
        """In the order in which they were asked for."""
        messages = self.model.messages
        self.queues: dict[str, Counter[tuple[str, int]]] = {id: Counter() for id in messages}
        self.due: dict[int, list[str]] = {}
        for gateway in self.gateways:
            for place in (*["pending"] * len(PRIORITIES), "scheduled", "held"):
                for id in next(rows):
                    self.queues[id][place, gateway] += 1
            self.due[gateway] = next(rows)
        self.submited, self.succeeded, self.refused = next(rows), next(rows), next(rows)
        self.report_due, self.reporting, self.finishing = next(rows), next(rows), next(rows)
        self.to_report, self.to_finish = next(rows), next(rows)
        self.mt = {id: next(rows) for id in self._alive}
        self.submits = {name: next(rows) for name in self.model.packets}

    def check(self) -> None:
        for id, fields in self.mt.items():
            message = self.model.messages[id]
            assert fields, f"{id} is lost"
            assert fields.get("final", "") == message.final
            if message.final:
                self._check_ended(id, message)
            else:
                self._check_open(id, message)
        for name, packet in self.model.packets.items():
            self._check_submit(name, packet)
        self._check_sets()

    def _check_open(self, id: str, message: Message) -> None:
        """In exactly one queue, or all of it under way; nothing that is not to be sent is lost."""
        where = {(message.place, message.gateway): 1} if message.place else {}
        assert self.queues[id] == where, f"{id} is in {dict(self.queues[id])}, not in {where}"
        assert id not in {*self.to_report, *self.reporting, *self.to_finish, *self.finishing}
        if message.place and not message.todo:
            assert not message.sent, f"{id} would be sent again as a whole"
            return
        on_its_way = {p.part for p in self.model.waiting() if id in p.users.values()}
        known = message.todo | message.accepted | message.reported | on_its_way
        assert known == set(range(1, message.parts + 1)), f"parts of {id} are lost"

    def _check_ended(self, id: str, message: Message) -> None:
        """On its way to be published, then to be archived. It may still be in a queue, from which
        nobody gets it."""
        assert self.queues[id].total() <= 1
        if message.passed_on == message.final:
            assert id in {*self.to_finish, *self.finishing}, f"{id} will never be archived"
            assert message.final in message.published
        else:
            assert id in {*self.to_report, *self.reporting}, f"{id} will never be published"
        assert RANK[message.archived] <= RANK[message.final]

    def _check_submit(self, name: str, packet: Packet) -> None:
        fields = self.submits[name]
        members = self.model.members(packet)
        if not members:
            assert not fields, f"submit:{name} is left over"
            return
        assert json.loads(fields["users"]) == packet.users
        assert (fields["part"], fields["gateway"]) == (str(packet.part), str(packet.gateway))
        assert fields.get("result") == packet.result
        assert int(fields["open"]) == len(members)

    def _check_sets(self) -> None:
        waiting = self.model.waiting()
        assert sorted(self.submited) == sorted(packet.name for packet in waiting)
        for gateway, names in self.due.items():
            expected = [packet.name for packet in waiting if packet.gateway == gateway]
            assert sorted(names) == sorted(expected)
        messages = {id: m for id, m in self.model.messages.items() if not m.gone}
        assert set(self.report_due) == {id for id, m in messages.items() if m.waits is not None}
        assert set(self.succeeded) == {
            id for id, m in messages.items() if m.is_open and len(m.accepted) == m.parts
        }
        assert set(self.refused) == {id for id, m in messages.items() if m.refused}


def _texts(row: Any) -> Any:
    if isinstance(row, dict):
        # The frame is no text.
        return {k.decode(): v.decode() for k, v in row.items() if k not in (b"frame", b"msg")}
    return [value.decode() for value in row]
