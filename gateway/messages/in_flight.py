"""Messages that are still in Redis, found by what they hold.

Redis has no index by number or text, because each message would then cost one more command. So the
keys are walked in short steps, between which the senders' commands run. After a given time the walk
stops, and can go on from its cursor. A message that is there throughout the walk is found. A
message that leaves meanwhile is in the archive, which is to be searched afterwards.
"""

import time
from collections.abc import Callable

import msgspec
from django.utils.translation import gettext as _, ngettext

from gateway import sgip
from gateway.connections import sms_redis
from gateway.lifecycle import store
from gateway.lifecycle.messages import Mt
from gateway.messages.lines import live_lines
from msgplatform.core.characters import phone_number
from msgplatform.core.connections import RedisError
from msgplatform.core.flows.messages import Systems, Values
from msgplatform.core.flows.page import Hit, TextSearchResult
from msgplatform.messages import filters
from msgplatform.models import Biz

_STEP = 500  # keys that one SCAN looks at: less than a millisecond of Redis
WALK_SECONDS = 0.1  # seconds of a walk through messages in flight for a list
MAX_WALKED = 5000  # maximum of matches, of which the newest are shown
_HITS = 50  # hits of one piece of a search through texts
_ARCHIVE_FIELDS = frozenset({"gateway", "answer", "failed_since"})  # only the archive has them


class Walk(msgspec.Struct):
    """A part of a walk: the ids that match, the number of messages that were looked at, and the
    `cursor` where the walk goes on, None at the end."""

    ids: set[str] = msgspec.field(default_factory=set)  # SCAN may give a key twice
    seen_count: int = 0
    cursor: int | None = 0


def searched_numbers(text: str) -> tuple[str, ...]:
    """The numbers, as SGIP has them, that a text in a search may mean."""
    return sgip.searched_numbers(phone_number(text) or text)


def walk(
    matches: Callable[[Mt, str], bool],
    cursor: int,
    seconds: float,
    max_ids: int,
    systems: Systems = None,
) -> Walk:
    """Walk on from a cursor, 0 at first, until the time is over or `max_ids` are found. `matches`
    gets a message and its ending, '' before its end. With `systems` other systems' messages are
    left out. Raises RedisError."""
    result = Walk(cursor=cursor)
    until = time.monotonic() + seconds
    while True:
        # None as a cursor means the end, after which no process asks again.
        following, messages = store.scan(result.cursor or 0, _STEP)
        for mt, final in messages:
            if systems is None or mt.biz in systems:
                result.seen_count += 1
                if matches(mt, final):
                    result.ids.add(mt.id)
        result.cursor = following or None
        if result.cursor is None or len(result.ids) >= max_ids or time.monotonic() >= until:
            return result


class InFlight:
    """The messages in Redis, as the engine searches them (`core.flows.messages.Live`)."""

    @property
    def missing(self) -> str:
        return _("The SMS Redis does not answer: only the archive was searched.")

    def warning(self, _systems: Systems) -> str:
        """A sentence when they cannot be searched at present, else ''."""
        try:
            sms_redis().ping()
        except RedisError:
            return _("The SMS Redis does not answer.")
        return ""

    def find(self, values: Values, limit: int, systems: Systems = None) -> tuple[list[Hit], str]:
        """An id or a key finds a message at once. Other fields find it as far as a short walk
        gets."""
        if not _ARCHIVE_FIELDS.isdisjoint(values):
            return [], ""

        def matches(mt: Mt, final: str) -> bool:
            message_id = int(mt.id)
            columns = {
                "id": message_id, "account": mt.account, "state": final, "biz": mt.biz,
                "reference": mt.reference, "key": mt.key,
            }  # fmt: skip
            return (
                mt.user_number in values.get("number", (mt.user_number,))
                and all(columns[name] == value for name, value in values.items() if name in columns)
                and values.get("since", 0) <= message_id
                and message_id < values.get("until", message_id + 1)
            ) and (systems is None or mt.biz in systems)

        warning = ""
        if "id" in values:
            ids = [str(values["id"])]
        elif "key" in values:
            ids = ids_of_key(values["key"])
        else:
            walk_result = walk(matches, 0, WALK_SECONDS, MAX_WALKED, systems)
            # Only the newest: the first page shows all of them.
            ids = sorted(walk_result.ids, key=int, reverse=True)[:limit]
            if walk_result.cursor is not None:
                warning = _(
                    "%d messages in flight were looked at, not all; an id or a key finds each."
                )
                warning %= walk_result.seen_count
            elif len(walk_result.ids) > limit:
                warning = _(
                    "%(count)d messages in flight match, of which the newest %(limit)d are shown; "
                    "narrow the filter by a time for older ones."
                )
                warning %= {"count": len(walk_result.ids), "limit": limit}
        return live_lines(ids, lambda message: matches(message.mt, message.final)), warning

    def search_text(
        self, query: str, cursor: str, seconds: float, systems: Systems = None
    ) -> TextSearchResult:
        """Messages by number, reference or text. A cursor is `<place of the walk>:<looked at>`."""
        start, _colon, seen_text = cursor.partition(":")
        numbers = searched_numbers(query)

        def matches(mt: Mt, _final: str) -> bool:
            return query in mt.text or query == mt.reference or mt.user_number in numbers

        position = filters.number(start, "cursor") if start else 0
        walk_result = walk(matches, position, seconds, _HITS, systems)
        seen_before = filters.number(seen_text, "cursor") if seen_text else 0
        seen_count = seen_before + walk_result.seen_count
        following = "" if walk_result.cursor is None else f"{walk_result.cursor}:{seen_count}"
        sentence = ngettext(
            "%d message in flight was looked at.",
            "%d messages in flight were looked at.",
            seen_count,
        )
        return TextSearchResult(live_lines([*walk_result.ids]), following, sentence % seen_count)


def ids_of_key(key: str) -> list[str]:
    """Messages of the calls with this key, of every system, while Redis keeps the key."""
    owners = Biz.objects.values_list("pk", flat=True)
    calls = store.first_calls([(biz, key) for biz in owners])
    return [id for call in calls if call for id in call.ids]
