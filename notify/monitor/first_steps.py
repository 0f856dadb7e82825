"""The first steps of a newcomer, the first call, and code that verifies a delivery."""

from functools import lru_cache

from django.utils.translation import gettext_lazy as _

from msgplatform import env
from msgplatform.core import sandbox
from msgplatform.core.flows.setup import FirstCall, FirstStep, Snippet
from notify.models import BizMsg, BizReceive, ColdBizMsg, ColdReceiveMsg, Receive, ReceiveMsg

CALL = FirstCall(
    "/api/v1/messages",
    {
        "event_type": "order.paid",
        "payload": {"order": 7},
        "idempotency_key": "order-7-paid",
    },
    "events:write",
)
# (name, title, file) of each language.
VERIFIERS = (
    ("python", "Python", "verify.py"),
    ("node", "Node.js", "verify.mjs"),
    ("go", "Go", "verify.go"),
    ("java", "Java", "Webhook.java"),
    ("php", "PHP", "verify.php"),
)


def steps() -> list[FirstStep]:
    deliveries = ReceiveMsg.objects.filter(status=ReceiveMsg.Status.DELIVERED)
    try_out = FirstStep(
        _("A sandbox"),
        _(
            "A consumer of the platform's own that shows what it gets: one click makes it with its "
            "subscription. Skip it if you have a consumer already."
        ),
        Receive.objects.exists(),
        "admin:notify_sandboxes",
        ("notify.add_receive", "notify.add_bizreceive"),
    )
    return [
        *([try_out] if sandbox.is_on() else []),
        FirstStep(
            _("A consumer"),
            _("The address that gets the messages. Its signing secret is shown once."),
            Receive.objects.exists(),
            "admin:notify_receive_add",
            ("notify.add_receive",),
        ),
        FirstStep(
            _("A subscription"),
            _("It joins a business system and a consumer: which events the consumer gets."),
            BizReceive.objects.exists(),
            "admin:notify_bizreceive_add",
            ("notify.add_bizreceive",),
        ),
        FirstStep(
            _("A message is accepted"),
            _("Publish one here, with the command below, or from your own program."),
            BizMsg.objects.exists() or ColdBizMsg.objects.exists(),
            "admin:notify_publish",
            ("notify.add_bizmsg", "notify.view_bizmsg"),
        ),
        FirstStep(
            _("A message is delivered"),
            _("The consumer answered 2xx. Search for the message's id to see every attempt."),
            deliveries.exists() or ColdReceiveMsg.objects.exists(),
            "console:search",
        ),
    ]


@lru_cache(maxsize=1)
def snippets() -> tuple[Snippet, ...]:
    """Code that verifies a delivery, one file for each language, in the order of the page. The
    files are complete and need the standard library only; `docs/integrate.md` leads to them."""
    folder = env.FILES_DIR / "templates" / "notify" / "verify"
    return tuple(
        Snippet(name, language, (folder / file).read_text(encoding="utf-8").rstrip())
        for name, language, file in VERIFIERS
    )
