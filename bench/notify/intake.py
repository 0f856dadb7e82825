"""Intake: one message a request, over 64 keep-alive connections."""

import json
import sys
from collections.abc import Callable, Sequence

from django.db import connection

from bench.harness.measure import Side
from bench.harness.processes import BenchFailed, Crew, Program
from bench.harness.programs import messages
from bench.harness.programs.progress import Progress
from bench.notify import notify_rows
from msgplatform.models import Biz
from notify.models import EventType

NAME = "intake"
ORDER = 10
ABOUT = (
    "One message a request over 64 keep-alive connections from a load generator in a process of "
    "its own; the web server is started with the command line of `up`, one worker. Every request "
    "carries an API key and an idempotency key of its own, and is answered after the commit."
)
CONNECTIONS = 64
# Of the payload that the load generator sends.
_TEXT = {"type": "string", "minLength": 1, "maxLength": 100}
_PRICE = {"type": "string", "pattern": r"^\d{1,12}\.\d{2}$"}
SCHEMA = {
    "type": "object",
    "required": ["order", "amount", "currency", "items"],
    "additionalProperties": False,
    "properties": {
        "order": _TEXT,
        "amount": _PRICE,
        "currency": {"enum": ["CNY", "EUR", "USD"]},
        "paid_at": {"type": "string", "format": "date-time"},
        "customer": {
            "type": "object",
            "required": ["id"],
            "properties": {"id": _TEXT, "name": _TEXT, "level": {"type": "integer", "minimum": 0}},
        },
        "items": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/item"}},
        "trace": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
    },
    "$defs": {
        "item": {
            "type": "object",
            "required": ["sku", "count", "price"],
            "properties": {
                "sku": _TEXT, "count": {"type": "integer", "minimum": 1}, "price": _PRICE,
            },
        }
    },
}  # fmt: skip


class Intake(Side):
    """Our web server under the load generator."""

    schemas = 0  # event types of the catalogue, each with a schema that its messages must match

    def prepare(self) -> None:
        notify_rows.empty()
        self._cast = notify_rows.cast(self.ground.sink_url, 2)
        Biz.objects.update(validates_events=self.schemas > 0)
        EventType.objects.bulk_create(
            EventType(name=messages.event_type(kind), schema={**SCHEMA, "title": f"Order {kind}"})
            for kind in range(self.schemas)
        )
        self._progress = Progress(self.ground.file("load.progress"))

    def programs(self) -> Sequence[Program]:
        load = self.ground.module(
            "load", "bench.harness.programs.load",
            *("--port", self.ground.web_port, "--token", self._cast.token),
            *("--prefix", self.stretch, "--connections", CONNECTIONS),
            *("--progress", self._progress.file, "--kinds", self.schemas),
            load=True,
        )  # fmt: skip
        return [self.web(), load]

    def web(self) -> Program:
        return self.ground.web()

    def count(self) -> int:
        return self._progress.count

    def check(self, crew: Crew) -> None:
        self.check_rows(accepted(self.stretch, crew))

    def check_rows(self, expected: set[str]) -> None:
        notify_rows.check_stored(expected)


class OneSchema(Intake):
    """Ours, of a business system that validates its events, each against the same JSON Schema."""

    name = "one-schema"
    schemas = 1


class FiftySchemas(Intake):
    """The same with fifty event types in turns, each with a schema."""

    name = "fifty-schemas"
    schemas = 50


class DrfOrm(Intake):
    """A DRF ModelSerializer view with save(); see `bench/references/drf_orm`."""

    settings = ""
    options: Sequence[str] = ()

    def prepare(self) -> None:
        super().prepare()
        # Its own table, made anew for each stretch.
        from bench.references.drf_orm.table import Message

        with connection.schema_editor() as editor:
            if Message._meta.db_table in connection.introspection.table_names():
                editor.delete_model(Message)
            editor.create_model(Message)

    def web(self) -> Program:
        module = f"bench.references.drf_orm.{self.settings}"
        argv = [
            *(sys.executable, "-m", "granian", "--interface", "wsgi", "--host", "127.0.0.1"),
            *("--port", str(self.ground.web_port), *self.options),
            "bench.references.drf_orm.wsgi:application",
        ]
        environment = {**self.ground.environment, "DJANGO_SETTINGS_MODULE": module}
        return Program("web", argv, environment)

    def check_rows(self, expected: set[str]) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT idempotency_key, payload FROM bench_message")
            rows = cursor.fetchall()
        notify_rows.same(len(rows), len(expected), self.name)
        for key, payload in rows:
            if key not in expected or json.loads(payload) != json.loads(messages.payload(key)):
                raise BenchFailed(f"{self.name}: the message of {key} is not what was sent")


class DrfOrmDefault(DrfOrm):
    """A ModelSerializer view that ends in `save()` within `atomic()`, with the settings that
    `startproject` and DRF give (a database connection a request, the API key looked up each time,
    all middleware, browsable API), on granian without options; one row a message.
    """

    name = "drf+orm-default"
    settings = "default_settings"


class DrfOrmTuned(DrfOrm):
    """The same view with persistent connections, the API key cached for 30 s, two middleware
    classes, JSON only, the save in autocommit, on granian with 64 threads.
    """

    name = "drf+orm-tuned"
    settings = "tuned_settings"
    # So that 64 requests may wait for their commits together.
    options = ("--blocking-threads", "64", "--no-ws")


def accepted(stretch: str, crew: Crew, key: Callable[[str, int], str] = messages.key) -> set[str]:
    """The keys of the messages that the load generator saw accepted, as `key` makes them."""
    counts = crew.printed("load")["accepted"]
    return {
        key(f"{stretch}-{connection}", number)
        for connection, count in enumerate(counts)
        for number in range(count)
    }


def sides() -> list[type[Side]]:
    return [Intake, OneSchema, FiftySchemas, DrfOrmDefault, DrfOrmTuned]
