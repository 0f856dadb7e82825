"""The names of the queues of each CRM; a name may not hold ":", which RQ splits on."""

from __future__ import annotations

PATTERN = r"crm-(main|retry|dead)-[a-z0-9][a-z0-9-]{0,39}"


def main(crm: str) -> str:
    """What is sent for the first time."""
    return f"crm-main-{crm}"


def retry(crm: str) -> str:
    """What is tried again."""
    return f"crm-retry-{crm}"


def dead(crm: str) -> str:
    """A mirror of the dead records, for whoever looks at queues; the database has them."""
    return f"crm-dead-{crm}"
