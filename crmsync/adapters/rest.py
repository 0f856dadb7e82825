"""What the adapters of particular CRMs have in common: a client, and records that go as JSON."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from django.utils.translation import gettext as _

from crmsync.adapters.base import CRMAdapter, Record
from crmsync.adapters.client import HttpClient
from crmsync.adapters.outcomes import Invalid, Outcome


class RestAdapter(CRMAdapter):
    """`store` is given records that can be written as JSON."""

    def __init__(self, settings: Mapping[str, Any], credentials: Mapping[str, Any]) -> None:
        super().__init__(settings, credentials)
        self.client = HttpClient()

    def close(self) -> None:
        self.client.close()

    @abstractmethod
    def store(self, batch: Sequence[Record]) -> Mapping[str, Outcome]:
        """As `deliver`; the outcomes by the records' keys."""

    def deliver(self, batch: Sequence[Record]) -> Sequence[Outcome]:
        outcomes: dict[str, Outcome] = {}
        good: list[Record] = []
        for record in batch:
            try:
                msgspec.json.encode([record.key, record.fields])
            except (UnicodeEncodeError, TypeError, ValueError, OverflowError) as error:
                text = _("The values cannot be written as JSON: %s.") % type(error).__name__
                outcomes[record.key] = Invalid("", text)
            else:
                good.append(record)
        if good:
            outcomes.update(self.store(good))
        return [outcomes[record.key] for record in batch]
