"""Actions on a subscription or its consumer: pause, resume, deliver now, a new signing secret."""

import hashlib
from collections.abc import Callable, Collection, Mapping
from datetime import timedelta
from typing import Any

import msgspec
from django.db import transaction
from django.db.models.functions import Now
from django.utils.translation import gettext_noop as _

from msgplatform.core.data import claims, sql
from msgplatform.core.errors import Conflict, NotNow, Undecryptable
from msgplatform.core.lazy_text import lazy_message
from notify import presence, signals
from notify.models import BizReceive, Receive, ReceiveMsg
from notify.subscriptions import signing

# The number of deliveries whose next attempt is brought forward. Others keep their time.
MAX_MADE_DUE = 5_000
MAX_ROTATION_HOURS = 168
_PAGE = claims.CHUNK
_Status = BizReceive.Status


# -- pause, resume, discard ----------------------------------------------------------------------
class StateChange(msgspec.Struct, frozen=True):
    """A state to which a person brings subscriptions; `audit` is the action of the audit log."""

    audit: str
    to: int
    also: Mapping[str, Any] = msgspec.field(default_factory=dict)  # further columns


PAUSE = StateChange("subscription_paused", _Status.PAUSED)
RELEASE = StateChange("subscription_resumed", _Status.NORMAL, BizReceive.RESUMED)
# Deliveries that are held at this time are skipped, and never sent.
SKIP = StateChange("subscription_resumed_skipping", _Status.SKIPPING, BizReceive.RESUMED)
DISCARD = StateChange("subscription_discarded", _Status.DISCARDED)


def change_state(ids: Collection[int], change: StateChange, audit: Callable[..., object]) -> int:
    """Set the state of the subscriptions that have another state; returns the number changed.

    `audit` is called with an action, a subscription and `changes`: the states before and after.
    """
    with transaction.atomic():
        # Under lock, so that the audit log has the replaced state even if a marker changes it.
        locked_rows = BizReceive.objects.select_for_update().filter(pk__in=ids).order_by("pk")
        changed_rows = [row for row in locked_rows if row.status != change.to]
        for row in changed_rows:
            states = [_Status(row.status).name, _Status(change.to).name]
            audit(change.audit, f"{row} #{row.pk}", changes={"status": states})
        BizReceive.objects.filter(pk__in=[row.pk for row in changed_rows]).update(
            status=change.to, **change.also
        )
        transaction.on_commit(signals.SUBSCRIPTIONS.send)
    return len(changed_rows)


# -- deliver now ---------------------------------------------------------------------------------
class DeliverNowOutcome(msgspec.Struct, frozen=True):
    """`is_probe`: the breaker is open, and one delivery is tried first. `made_due`: number of
    deliveries that were brought forward. `has_more`: further deliveries wait for their time."""

    is_probe: bool
    made_due: int
    has_more: bool


def deliver_now(row: BizReceive, audit: Callable[..., object]) -> DeliverNowOutcome:
    """Deliver at once, because a person says that the consumer works again.

    If the breaker is open, the next probe is due at once, and its success lets all others follow.
    Deliveries that wait for their next attempt are due at once too. `audit` is called with an
    action, the subscription and the outcome. Raises RedisError, and NotNow for a subscription that
    delivers nothing at present.
    """
    if row.status not in BizReceive.ACTIVE:
        status = _Status(row.status).label
        text = _("The subscription delivers nothing now, its status is: %(status)s. Resume it.")
        raise NotNow(lazy_message(text, status=status))
    is_probe = probe_now(row)
    made_due, has_more = 0, False
    # After a resume the maker makes held deliveries pending, and `next_at` stays. So held
    # deliveries are brought forward first, but not if they will be skipped.
    statuses = [ReceiveMsg.Status.PENDING]
    if row.status == _Status.NORMAL:
        statuses.insert(0, ReceiveMsg.Status.HELD)
    for delivery_status in statuses:
        rows = ReceiveMsg.objects.filter(
            status=delivery_status, biz_receive_id=row.pk, next_at__gt=Now()
        )
        count = _PAGE
        while made_due < MAX_MADE_DUE and count == _PAGE:
            ids = list(rows.order_by("next_at").values_list("id", flat=True)[:_PAGE])
            values = {"next_at": Now(), "updated_at": Now()}
            made_due += claims.update_by_key(rows.filter(id__in=ids), values) if ids else 0
            count = len(ids)
        has_more |= count == _PAGE and rows.exists()
    signals.MAKER.send()
    signals.LISTENERS.send()
    audit("subscription_deliver_now", f"{row} #{row.pk}", probe=is_probe, made_due=made_due)
    return DeliverNowOutcome(is_probe, made_due, has_more)


def probe_now(row: BizReceive) -> bool:
    """Make the subscription's next probe due; True if its breaker is open. Raises RedisError."""
    state = presence.read().get(row.pk)
    if state is None or not state.is_open:
        return False
    presence.request_probe(row.pk)
    signals.MAKER.send()
    return True


# -- a new signing secret, without a gap: the old one signs along for a while --------------------
def secret_mark(receive: Receive) -> str:
    """The fingerprint of the present secret. It reveals nothing, because it is a hash of 256 random
    bits. Secrets that cannot be decrypted have the same fingerprint."""
    secret = _readable_secret(receive)
    return hashlib.sha256(secret.encode()).hexdigest()[:16] if secret else "unreadable"


def rotate_secret(
    receive_id: int, mark: str, hours: float, audit: Callable[..., object]
) -> Receive:
    """Give the consumer a new secret. The present secret signs too for `hours` (0 to 168).

    `mark` is the `secret_mark` of the secret that the operator saw. Raises Conflict when the
    present secret has another mark: a form that is sent twice must not rotate twice, or the secret
    that the consumer still uses would stop signing. A secret that cannot be decrypted is replaced
    at once. `audit` is called with an action, the consumer and the hours. Raises
    Receive.DoesNotExist.
    """
    with transaction.atomic():
        receive = Receive.objects.select_for_update().get(pk=receive_id)
        if secret_mark(receive) != mark:
            raise Conflict("the secret was changed meanwhile")
        old_secret = _readable_secret(receive)
        has_overlap = hours > 0 and bool(old_secret)
        receive.previous_secret = old_secret if has_overlap else ""
        receive.previous_secret_until = sql.now() + timedelta(hours=hours) if has_overlap else None
        receive.secret = signing.new_secret()
        receive.save(update_fields=["secret", "previous_secret", "previous_secret_until"])
        # In the transaction, so that every rotation has its line in the audit log.
        audit("consumer_secret_rotated", receive.name, old_signs_hours=hours)
    return receive


def _readable_secret(receive: Receive) -> str:
    """The secret; '' if it cannot be decrypted."""
    try:
        return str(receive.secret)
    except Undecryptable:
        return ""
