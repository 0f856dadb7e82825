"""Read the answer to the `read` call: the record that the CRM holds, or that it holds none."""

from __future__ import annotations

from collections.abc import Mapping

from django.utils.translation import gettext as _

from crmsync.adapters import client
from crmsync.adapters.base import CredentialsRefused, Stored, TooManyCalls
from crmsync.adapters.http.answer import AnswerRules, at, missing_path
from crmsync.adapters.http.settings import ReadCall
from msgplatform.core.errors import Unavailable
from msgplatform.core.http.engine import Response

# No Content is an answer too: there is no record.
_NONE = (204, 404, 410)


def read_record(call: ReadCall, rules: AnswerRules, response: Response) -> Stored | None:
    """The record, None when the CRM certainly does not hold it. Raises as `read` does."""
    if not response.error:
        code = rules.code_of(client.read_json(response))
        if code is not None and str(code) in map(str, call.missing):
            return None
        # Unless the settings say that the CRM means something else by it.
        if response.status in _NONE and str(response.status) not in rules.statuses:
            return None
    client.raise_for(response, rules.throttled_seconds)
    if not client.is_json(response):
        raise Unavailable(_("The answer is no JSON: is this the right address?"))
    body = client.read_json(response)
    if rules.code:
        code = rules.code_of(body)
        text = client.describe(response)
        if code is None:
            raise Unavailable(missing_path(text, rules.code))
        message = str(at(body, rules.message) or "")
        text = message or _("%(text)s, code %(code)s") % {"text": text, "code": code}
        match rules.kind(code):
            case "ok":
                pass
            case "auth":
                raise CredentialsRefused(_("The CRM refuses the credentials: %s") % text)
            case "throttled":
                wait = client.wait_seconds(response) or rules.throttled_seconds
                raise TooManyCalls(_("The CRM wants fewer calls."), wait)
            case _:
                raise Unavailable(_("The CRM answers with an error: %s") % text)
    record = at(body, call.record) if call.record else body
    if not isinstance(record, Mapping):
        return None
    version, remote_id = at(body, call.version), at(body, call.remote_id)
    return Stored(
        "" if remote_id is None else str(remote_id),
        record,
        bool(at(body, call.deleted)),
        version if isinstance(version, int) else None,
    )
