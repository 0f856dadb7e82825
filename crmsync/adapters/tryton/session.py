"""JSON-RPC with Tryton, and the meaning of its errors. The session is opened with the first call,
and again once after it has ended. Errors of a method come with HTTP 200."""

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from django.utils.translation import gettext as _, gettext_noop

from crmsync.adapters import client
from crmsync.adapters.base import AdapterCredentials, AdapterSettings
from crmsync.adapters.client import HttpClient, read_json, wait_seconds
from crmsync.adapters.outcomes import Auth, Invalid, Outcome, Refused, Retry, Throttled, Unknown
from msgplatform.core.http.engine import Response

# Errors that a person has to correct in the record; other errors are the server's own faults, such
# as while it is updated.
_OF_RECORD = ("UserError", "UserWarning")


class RpcError(Exception):
    """The server answered a call with an error; `kind` is the name of its exception, or the text of
    an exception that is none of Tryton's own."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message or kind or _("Tryton gave no reason."))
        self.kind = kind


class NotAnswered(Exception):
    """A call without a proper answer; `outcome` is the outcome of its records."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(str(outcome))
        self.outcome = outcome


def meaning(error: NotAnswered | RpcError, size: int, is_change: bool) -> Outcome:
    """The outcome that an error gives to `size` records; `is_change`: the call changes records."""
    if isinstance(error, NotAnswered):
        outcome = error.outcome
        # The search for keys changed no record.
        if isinstance(outcome, Unknown) and not is_change:
            return Retry(0.0, outcome.message)
        return outcome
    text = str(error)
    if not is_change:
        return Auth(text)  # the model or the key field does not exist, or may not be read
    if size > 1:
        return Refused(text)
    return Invalid("", text) if error.kind in _OF_RECORD else Retry(0.0, text)


_LOGIN_FLOOD_SECONDS = 60.0


class TrytonSettings(AdapterSettings, frozen=True, kw_only=True):
    __doc__ = gettext_noop(
        "`url` is the server's, `database` the name of its database. `key_field` is a field of "
        "`model` with unique values; it holds the key. Tryton never changes the code of a party."
    )

    url: str
    database: str
    user: str
    model: str = "party.party"
    key_field: str = "code"


class TrytonCredentials(AdapterCredentials, frozen=True, kw_only=True):
    password: str


class Session:
    """`token` stands for user and password; '' before the first call."""

    def __init__(
        self, http_client: HttpClient, settings: TrytonSettings, credentials: TrytonCredentials
    ) -> None:
        self.client, self.settings, self.credentials = http_client, settings, credentials
        self.token = ""

    def call(
        self, method: str, *params: Any, context: Mapping[str, Any] | None = None, model: str = ""
    ) -> Any:
        """The result of a method of the model; of the settings' model unless another is named.

        Raises NotAnswered or RpcError.
        """
        name = f"model.{model or self.settings.model}.{method}"
        if not self.token:
            self._log_in()
        response = self._ask(name, [*params, dict(context or {})])
        if response.status == 401:  # the session has ended
            self._log_in()
            response = self._ask(name, [*params, dict(context or {})])
        return self._result(response)

    def _log_in(self) -> None:
        settings, self.token = self.settings, ""
        login = [settings.user, {"password": self.credentials.password}]
        response = self._ask("common.db.login", login)
        if response.status == 401:
            raise NotAnswered(Auth(_("Tryton refuses the user or the password.")))
        if response.status == 429:
            raise NotAnswered(Throttled(wait_seconds(response) or _LOGIN_FLOOD_SECONDS))
        if response.status == 404:
            words = _("Tryton has no database %s, or the database does not answer.")
            raise NotAnswered(Auth(words % settings.database))
        result = self._result(response)
        if not isinstance(result, list) or len(result) < 2:
            raise NotAnswered(Auth(_("Tryton asks for more than a password.")))
        # User, the user's id and the session's key, as the server's protocol wants them.
        session = f"{settings.user}:{result[0]}:{result[1]}"
        self.token = base64.b64encode(session.encode()).decode()

    def _ask(self, method: str, params: Sequence[Any]) -> Response:
        settings = self.settings
        headers = [("authorization", f"Session {self.token}")] if self.token else []
        url = f"{settings.url.rstrip('/')}/{settings.database}/rpc/"
        return self.client.ask("POST", url, headers, {"id": 1, "method": method, "params": params})

    def _result(self, response: Response) -> Any:
        # The status comes first, because Tryton answers errors of methods with 200.
        if outcome := client.outcome_of_status(response, 2, is_upsert=True):
            if isinstance(outcome, Refused):  # no status of Tryton is about a record
                raise RpcError(outcome.message, "")
            raise NotAnswered(outcome)
        body = read_json(response)
        body = body if isinstance(body, dict) else {}
        error = body.get("error")
        if isinstance(error, list) and error:
            # ["UserError", ["The code on party must be unique.", "", None]]; other details are a
            # stack of the server's own.
            detail = error[1] if len(error) > 1 else ""
            texts = detail if isinstance(detail, list) else ()
            message = " ".join(text for text in texts if isinstance(text, str) and text)
            raise RpcError(str(error[0]), message)
        if error or not ("result" in body or "error" in body):
            raise NotAnswered(Unknown(_("The answer is not Tryton's: is this the right address?")))
        return body.get("result")
