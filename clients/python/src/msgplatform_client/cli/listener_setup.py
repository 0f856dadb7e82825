"""A consumer for development and its subscription, made with a management key."""

from __future__ import annotations

from typing import Any

from ..client import Client
from ..errors import PlatformError, ProblemError
from ..retries import may_have_happened
from .exits import Exit, Failure
from .output import sentence
from .profiles import Profile
from .session import Session


def set_up(
    session: Session,
    manager: Profile,
    consumer: str,
    event_types: list[str],
    payload_filter: dict[str, Any] | None,
) -> None:
    """Make the consumer, if it is not there, and the subscription of the session's system to it.
    Raises Failure for a consumer with an address, which belongs to something that runs, and when
    the answer is lost, which has the consumer's secret."""
    system = session.own_key()["system"]
    if not system:
        raise Failure("Listening needs a key of a business system.", Exit.FORBIDDEN)
    with Client(manager.url, manager.key, patience=session.patience) as client:
        http = client.api.get_httpx_client()
        path = f"/api/v1/consumers/{consumer}"
        try:
            made = http.put(
                path, json={"delivery": "listen"}, headers={"If-None-Match": "*"}
            ).json()
            session.output.result(
                {"consumer": consumer, "secret": made["secret"]},
                [f"The consumer {consumer} was made. Its signing secret, shown this once: ",
                 made["secret"]],
            )  # fmt: skip
        except PlatformError as error:
            if may_have_happened(error):
                raise _lost_answer(consumer, error) from error
            if not isinstance(error, ProblemError) or error.status != 412:
                raise
            if http.get(path).json().get("delivery") != "listen":
                raise Failure(f"{consumer} has an address: take another name.") from None
        body = {"event_types": event_types, "filter": payload_filter}
        http.put(f"/api/v1/subscriptions/{system}/{consumer}", json=body)


def _lost_answer(consumer: str, error: PlatformError) -> Failure:
    words = f"The consumer {consumer} was made, or not; the answer was lost. {sentence(error)}"
    advice = (
        "Run the command again: it goes on with a consumer that is there. When it shows no signing "
        f"secret then, rotate it (POST /api/v1/consumers/{consumer}/rotate, or in the console) if "
        "your program verifies signatures."
    )
    return Failure(words, Exit.UNREACHABLE, [advice])
