"""The meaning of an answer's body for the records: some CRMs answer 200 and mean an error.

纷享销客 answers 200 with an errorCode other than 0; 微伴助手 answers errcode 0 and lists the
failures by phone. So the status is half of the answer, and a setting says where the other half is.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec
from django.utils.translation import gettext as _, gettext_noop

from crmsync.adapters import client
from crmsync.adapters.base import Record
from crmsync.adapters.http.template import as_text
from crmsync.adapters.outcomes import (
    Auth,
    Conflict,
    Invalid,
    Ok,
    Outcome,
    Refused,
    Retry,
    Throttled,
    Unknown,
)
from msgplatform.core.http.engine import Response

Kind = Literal["ok", "retry", "throttled", "invalid", "conflict", "auth"]


class Rules(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How to read an answer, or one result in it. Paths are names joined by dots: `data.id`.

    `code` is the path of the error code and `ok` its values for success. `kinds` says what other
    codes mean, `other` what those mean that are not listed. `throttled_seconds` is how long to wait
    when the answer does not say.
    """

    code: str = ""
    ok: Sequence[str | int | bool] = (0, "0")
    kinds: Mapping[str, Kind] = {}
    other: Kind = "retry"
    message: str = ""
    field: str = ""
    remote_id: str = ""
    created: str = ""
    existing_id: str = ""
    throttled_seconds: float = 10.0

    def code_of(self, body: Any) -> Any:
        return at(body, self.code) if self.code else None

    def kind(self, code: Any) -> Kind:
        if any(
            # True equals 1 in Python: a code 1 must not count as `true`.
            code == value and isinstance(code, bool) == isinstance(value, bool)
            for value in self.ok
        ):
            return "ok"
        return self.kinds.get(as_text(code), self.other)

    def outcome(self, kind: Kind, body: Any, text: str, size: int, wait: float) -> Outcome:
        """`wait` in seconds is what the answer's headers ask for."""
        message = str(at(body, self.message) or text)
        if kind == "ok":
            remote_id, created_value = at(body, self.remote_id), at(body, self.created)
            is_created = created_value if isinstance(created_value, bool) else None
            return Ok("" if remote_id is None else str(remote_id), is_created)
        if kind == "throttled":
            return Throttled(wait or self.throttled_seconds)
        if kind == "auth":
            return Auth(message)
        if kind == "retry":
            return Retry(wait, message)
        if size > 1:
            # Sending halves finds the record at fault.
            return Refused(message)
        if kind == "conflict":
            return Conflict(str(at(body, self.existing_id) or ""))
        return Invalid(str(at(body, self.field) or ""), message)


class AnswerRules(Rules, frozen=True, kw_only=True):
    __doc__ = gettext_noop(
        "`statuses` says what an HTTP status means where the usual meaning is wrong. With several "
        "records in one call: `results` is the path of a list with a result for each record, in "
        "order; `result` says how to read one. Or `failures` is the path of an object with the "
        "reasons of the records that failed, by their `failures_by` (`key`, or the name of a "
        "field), spelled as they were sent."
    )

    statuses: Mapping[str, Kind] = {}
    results: str = ""
    result: Rules = Rules()
    failures: str = ""
    failures_by: str = "key"


def outcomes_of(
    rules: AnswerRules, response: Response, records: Sequence[Record], is_upsert: bool
) -> list[Outcome]:
    size, wait = len(records), client.wait_seconds(response)
    body = client.read_json(response) if response.body else None
    text = client.describe(response)
    # Without a whole answer the body means nothing.
    status_outcome = client.outcome_of_status(response, size, is_upsert, rules.throttled_seconds)
    if status_outcome is not None and (not response.status or response.error):
        return [status_outcome] * size
    code = rules.code_of(body)
    if code is not None:
        kind = rules.kind(code)
        text = _("%(text)s, code %(code)s") % {"text": text, "code": as_text(code)}
        # A status that is an error counts for more than a code that is not listed.
        if kind != "ok" and (status_outcome is None or as_text(code) in rules.kinds):
            return [rules.outcome(kind, body, text, size, wait)] * size
    # The setting for a status counts for more than its usual meaning.
    if status_kind := rules.statuses.get(str(response.status)):
        if status_kind != "ok":
            return [rules.outcome(status_kind, body, text, size, wait)] * size
    elif status_outcome is not None:
        return [_add_details(status_outcome, rules, body)] * size
    # A login page, or a proxy: this answer is not the CRM's.
    if rules.code and code is None:
        return [Unknown(missing_path(text, rules.code))] * size
    if response.body.strip() and not client.is_json(response) and not status_kind:
        return [Unknown(_("%s, with an answer that is no JSON: is this the CRM?") % text)] * size
    return _outcomes_of_body(rules, body, records, text, is_upsert)


def outcome_without_id(rules: AnswerRules, response: Response) -> Unknown | None:
    """The outcome of a record that was stored alone and whose answer has no id: another server may
    have answered. None where other rules show that the CRM has answered."""
    is_known = rules.code or rules.results or str(response.status) in rules.statuses
    if not rules.remote_id or is_known or not response.body.strip():
        return None
    return Unknown(missing_path(client.describe(response), rules.remote_id))


def missing_path(text: str, path: str) -> str:
    return _("%(text)s, without %(path)s: is this the CRM?") % {"text": text, "path": path}


def _outcomes_of_body(
    rules: AnswerRules, body: Any, records: Sequence[Record], text: str, is_upsert: bool
) -> list[Outcome]:
    if rules.results:
        # Results have the order of the records. If their numbers differ, no result can be matched.
        results = at(body, rules.results)
        if not isinstance(results, list) or len(results) != len(records):
            text = _("%s, without a result for each record.") % text
            return [_unclear_outcome(Unknown(text), len(records), is_upsert, text)] * len(records)
        outcomes: list[Outcome] = []
        for result in results:
            code = rules.result.code_of(result)
            kind = rules.result.kind(code) if rules.result.code else "ok"
            why = _("%(text)s, code %(code)s") % {"text": text, "code": as_text(code)}
            outcomes.append(rules.result.outcome(kind, result, why, 1, 0.0))
        # An error of all records may belong to the call, such as a trigger's: halves show which.
        first, size = outcomes[0], len(outcomes)
        if size > 1 and isinstance(first, Invalid) and outcomes == [first] * size:
            return [Refused(first.message)] * size
        return outcomes
    if not rules.failures:
        return [rules.outcome("ok", body, text, len(records), 0.0)] * len(records)
    # The answer lists the failed records; every other record is stored.
    size, by = len(records), rules.failures_by
    failures = at(body, rules.failures) or {}
    if not isinstance(failures, Mapping):
        why = _("%(text)s, and %(path)s is no object.") % {"text": text, "path": rules.failures}
        return [Unknown(why)] * size
    values = [str(record.key if by == "key" else record.fields.get(by)) for record in records]
    # The CRM lists this record in another spelling or without a reason: the record failed.
    for value, reason in failures.items():
        if value not in values or reason is None:
            why = text if reason is None else str(reason)
            return [_unclear_outcome(Invalid("", why), size, is_upsert, why)] * size
    ok, field = rules.outcome("ok", body, text, size, 0.0), "" if by == "key" else by
    return [Invalid(field, str(failures[value])) if value in failures else ok for value in values]


def _unclear_outcome(single_outcome: Outcome, size: int, is_upsert: bool, text: str) -> Outcome:
    """The outcome of records whose results cannot be matched; `single_outcome` for one record. Some
    may be stored: halves are sent only where that makes no second record."""
    if size == 1:
        return single_outcome
    return Refused(text) if is_upsert else Unknown(text)


def _add_details(outcome: Outcome, rules: Rules, body: Any) -> Outcome:
    """Add the field and the other record's id, where the rules tell how to find them."""
    if isinstance(outcome, Conflict):
        return Conflict(str(at(body, rules.existing_id) or ""))
    if isinstance(outcome, Invalid):
        message = str(at(body, rules.message) or outcome.message)
        return Invalid(str(at(body, rules.field) or ""), message)
    return outcome


def at(body: Any, path: str) -> Any:
    """The value at a path, None without one. A number is an index into a list."""
    if not path:
        return None
    for name in path.split("."):
        if isinstance(body, Mapping):
            body = body.get(name)
        elif isinstance(body, list) and name.isdigit() and int(name) < len(body):
            body = body[int(name)]
        else:
            return None
    return body
