"""The behaviour of sandboxes in bodies and answers; each kind of sandbox adds its own answers."""

from typing import Annotated

import msgspec
from rest_framework import serializers

from msgplatform.core import sandbox
from msgplatform.core.errors import InvalidInput
from msgplatform.doors.api.bodies import field

MAX_BYTES = 4096


class AnswerBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """How the sandbox answers from now on; {} is the usual answer, at once."""

    delay: Annotated[
        float | None, field("Seconds before the answer",
                            minimum=0, maximum=sandbox.MAX_DELAY_SECONDS)
    ] = None  # fmt: skip
    retry_after: Annotated[
        int | None, field("Seconds until the next try, as a Retry-After says it",
                          minimum=0, maximum=sandbox.MAX_RETRY_AFTER)
    ] = None  # fmt: skip
    minutes: Annotated[
        int | None, field("For how long; left out: an hour", minimum=1, maximum=sandbox.MAX_MINUTES)
    ] = None
    count: Annotated[
        int | None, field("For so many requests at most", minimum=1, maximum=sandbox.MAX_COUNT)
    ] = None

    def behaviour(self, answer: str) -> sandbox.Behaviour:
        """The behaviour with this answer, '' for the usual one. Raises InvalidInput."""
        _check(self.delay, "delay", 0, sandbox.MAX_DELAY_SECONDS)
        _check(self.retry_after, "retry_after", 0, sandbox.MAX_RETRY_AFTER)
        _check(self.minutes, "minutes", 1, sandbox.MAX_MINUTES)
        _check(self.count, "count", 1, sandbox.MAX_COUNT)
        return sandbox.Behaviour.of(answer, self.delay, self.retry_after, self.count)

    @property
    def minutes_or_all(self) -> int:
        return self.minutes or sandbox.MAX_MINUTES


class AnswerSerializer(serializers.Serializer[sandbox.Behaviour]):
    """How it answers now."""

    delay = serializers.FloatField(help_text="Seconds before the answer")
    retry_after = serializers.IntegerField(help_text="0: none")
    until = serializers.DateTimeField(
        source="until_time", allow_null=True, help_text="null: it is the usual answer"
    )
    count = serializers.IntegerField(allow_null=True, help_text="Requests for which it still holds")


def _check(value: float | None, name: str, low: float, high: float) -> None:
    if value is not None and not low <= value <= high:
        raise InvalidInput(f"Use a number from {low:g} to {high:g}.", name)
