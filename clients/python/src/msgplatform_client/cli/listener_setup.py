"""A consumer for development and its subscription, made with a management key."""

from __future__ import annotations

from ..client import Client
from ..errors import ProblemError
from .exits import Exit, Failure
from .profiles import Profile
from .session import Session


def set_up(session: Session, manager: Profile, consumer: str, event_types: list[str]) -> None:
    """Make the consumer, if it is not there, and the subscription of the session's system to it.
    Raises Failure for a consumer with an address: it belongs to something that runs."""
    system = session.own_key()["system"]
    if not system:
        raise Failure("Listening needs a key of a business system.", Exit.FORBIDDEN)
    with Client(manager.url, manager.key) as client:
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
        except ProblemError as error:
            if error.status != 412:
                raise
            if http.get(path).json().get("delivery") != "listen":
                raise Failure(f"{consumer} has an address: take another name.") from None
        http.put(f"/api/v1/subscriptions/{system}/{consumer}", json={"event_types": event_types})
