"""Try a filter on payloads before it is saved."""

from __future__ import annotations

from typing import Annotated

import typer

from . import payloads
from .exits import Exit, Failure
from .output import BOLD, FAINT, GOOD, Part, moment
from .session import Session, on_platform


@on_platform
def try_filter(
    session: Session,
    subscription: Annotated[
        str, typer.Argument(help="Business system and consumer: orders/warehouse.")
    ],
    document: Annotated[
        str,
        typer.Argument(help="The filter as JSON. Left out: the saved one.", show_default=False),
    ] = "",
    file: Annotated[
        str, typer.Option(help="Read the filter from this file; - is stdin.", show_default=False)
    ] = "",
) -> None:
    """Try a filter on the latest events of a subscription. Nothing is saved.

    It needs a management key with manage:subscriptions.

    msgp filter orders/warehouse '{"data": {"total": {"$gt": 100}}}'
    """
    system, slash, consumer = subscription.partition("/")
    if not (system and slash and consumer) or "/" in consumer:
        raise Failure(
            f"Write a subscription as orders/warehouse, not {subscription!r}.", Exit.USAGE
        )
    if document and file:
        raise Failure("Write the filter, or name a file.", Exit.USAGE)
    text = payloads.read_text(file) if file else document
    body = {"filter": payloads.parse(text, "The filter")} if text else {}
    path = f"subscriptions/{system}/{consumer}/filter-trial"
    outcome = session.request("POST", path, json=body).json()
    day = outcome["last_day"]
    more = "" if day["is_whole"] else " or more"
    rows: list[list[Part]] = [
        [(event["id"], BOLD), event["event_type"], (moment(event["accepted_at"]), FAINT),
         ("comes", GOOD) if event["matches"] else event["reason"]]
        for event in outcome["events"]
    ]  # fmt: skip
    lines = session.output.table(rows) if rows else []
    session.output.result(
        outcome,
        *lines,
        [f"{outcome['matching']} of the latest {outcome['tried']} events would come"],
        [f"{day['matching']} of {day['events']}{more} events of the last 24 hours would come; "
         f"with the saved filter {day['coming']}"],
    )  # fmt: skip
