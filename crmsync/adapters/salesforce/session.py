"""Calls to Salesforce with an access token, which is fetched anew once when it has expired."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.utils.translation import gettext as _

from crmsync.adapters.base import AdapterCredentials, AdapterSettings, CredentialsRefused
from crmsync.adapters.client import HttpClient, describe, raise_for, read_json
from msgplatform.core.errors import Unavailable
from msgplatform.core.http.engine import Request, Response

_FORM = ("content-type", "application/x-www-form-urlencoded")


class SalesforceSettings(AdapterSettings, frozen=True, kw_only=True):
    """`external_id` is a field of `object` that is flagged External ID and unique; it holds the
    key. `allow_duplicates` stores records that a duplicate rule would hold back."""

    login_url: str = "https://login.salesforce.com"
    object: str = "Lead"
    external_id: str = "Hive_Id__c"
    api_version: str = "v61.0"
    allow_duplicates: bool = False


class SalesforceCredentials(AdapterCredentials, frozen=True, kw_only=True):
    """The credentials of a connected app with the client credentials flow."""

    client_id: str
    client_secret: str


class Session:
    """`token` comes from the last login; '' before the first."""

    def __init__(
        self,
        client: HttpClient,
        settings: SalesforceSettings,
        credentials: SalesforceCredentials,
    ) -> None:
        self.client, self.settings, self.credentials = client, settings, credentials
        self.token = self._instance = ""

    def ask(self, method: str, path: str, body: Any = None) -> Response:
        """A call with a valid token. Raises Unavailable or CredentialsRefused when there is none to
        be had: then nothing was sent."""
        if not self.token:
            self._log_in()
        response = self._call(method, path, body)
        if response.status == 401:  # the token has expired
            self._log_in()
            response = self._call(method, path, body)
        return response

    def _call(self, method: str, path: str, body: Any) -> Response:
        url = f"{self._instance}/services/data/{self.settings.api_version}/{path}"
        headers = [("authorization", f"Bearer {self.token}")]
        if self.settings.allow_duplicates:
            headers.append(("Sforce-Duplicate-Rule-Header", "allowSave=true"))
        return self.client.ask(method, url, headers, body)

    def _log_in(self) -> None:
        credentials = self.credentials
        form = {
            "grant_type": "client_credentials",
            "client_id": credentials.client_id,
            "client_secret": credentials.client_secret,
        }
        url = f"{self.settings.login_url}/services/oauth2/token"
        data = urlencode(form).encode()
        request = Request(url, data, [_FORM], self.client.timeout)
        response = self.client.exchange([request])[0]
        self.token = ""
        if response.status in (400, 401):  # invalid_grant, invalid_client_id
            raise CredentialsRefused(
                _("Salesforce refuses the credentials: %s") % describe(response)
            )
        raise_for(response)
        body = read_json(response)
        if not isinstance(body, dict) or not body.get("access_token"):
            raise Unavailable(_("Salesforce's login answered without an access token."))
        self.token = str(body["access_token"])
        self._instance = str(body.get("instance_url") or self.settings.login_url).rstrip("/")
