"""The console's form of bulk jobs, as a person uses it: count, then start."""

from typing import Any

from django.test import Client


def preview(client: Client, flow: str, **fields: str) -> Any:
    """The answer to Count: its page shows how many messages match."""
    return client.post(f"/console/bulk/{flow}", {**fields, "count": "1"})


def start(client: Client, flow: str, shown: Any, **fields: str) -> Any:
    """The answer to Start on a preview's page, with these fields in it then."""
    previewed = shown.context["previewed"]
    return client.post(
        f"/console/bulk/{flow}", {**fields, "previewed": previewed, "start": "1"}, follow=True
    )


def start_bulk(client: Client, flow: str, **fields: str) -> None:
    """Count, then start with nothing changed between."""
    answer = start(client, flow, preview(client, flow, **fields), **fields)
    assert answer.redirect_chain, "no job was started"
