"""The requests that the settings' templates make of records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from crmsync.adapters.base import Record
from crmsync.adapters.client import HttpClient
from crmsync.adapters.http import template
from crmsync.adapters.http.settings import Call, HttpCredentials, HttpSettings
from msgplatform.core.http.engine import Request


class Requests:
    """All methods raise what a value that is no JSON raises."""

    def __init__(
        self, client: HttpClient, settings: HttpSettings, credentials: HttpCredentials
    ) -> None:
        self._client, self._settings = client, settings
        self._secret = {f"secret.{name}": v for name, v in credentials.values.items()}
        self._headers = [
            (name, template.text(value, self._secret)) for name, value in settings.headers.items()
        ]

    def of(self, group: Sequence[Record], call: Call | None) -> Request:
        """That of a call about the one record, or else that stores all of them."""
        return self.about(group[0], call) if call else self._storing_request(group)

    def _storing_request(self, group: Sequence[Record]) -> Request:
        settings = self._settings
        bodies = [
            template.fill(settings.record, self._secret | template.values_of(record))
            for record in group
        ]
        values = {**self._secret, "records": bodies}
        if settings.records_per_call == 1:
            values |= {**template.values_of(group[0]), "record": bodies[0]}
        return self._request(
            settings.method, settings.url, settings.body, values, not settings.is_upsert
        )

    def about(self, record: Record, call: Call) -> Request:
        values = self._secret | template.values_of(record)
        values["record"] = template.fill(self._settings.record, values)
        return self._request(call.method, call.url, call.body, values)

    def _request(
        self,
        method: str,
        url: str,
        body: Any,
        values: Mapping[str, Any],
        is_unrepeatable: bool = False,
    ) -> Request:
        return self._client.request(
            method,
            template.url(url, values),
            self._headers,
            None if body is None else template.fill(body, values),
            is_unrepeatable,
        )
