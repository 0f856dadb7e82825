"""The contract that a flow fills in, and the registry of flows.

Console, `up`, `demo`, `doctor`, `/metrics`, `run_bulk`, the queues and the URL configuration go
through the registry, so a new flow is a new folder and its name in FLOWS. Each app's `flow.py`
holds a `Flow`, which `AppConfig.ready()` registers; its `settings.py`, if there is one, is read by
the platform's.

contract   `Flow`: name, permissions, programs and four parts; the installed flows
messages   `MessageStore`: search fields, and the indexes by which messages are found
page       the line and the page of one message
actions    `BulkAction`: actions on many messages, and on one
bulk_pages their cursor, count and preview
health     `Health`: overview, alerts, failures, metrics, `doctor`
setup      `Setup`: first steps
moving     settings and keys that move with a business system to another cell
activity   counters, for charts and statistics
metric     samples for `/metrics`
programs   the daemons
text       texts and links for people
"""

from msgplatform.core.flows.actions import (
    Applied,
    BulkAction,
    Ending,
    Note,
    Resent,
    Selection,
    Step,
    unnoted,
)
from msgplatform.core.flows.activity import Activity, Dimension, Figure, Group, Key, Measure
from msgplatform.core.flows.bulk_pages import Counted, Preview, PreviewGroup
from msgplatform.core.flows.contract import (
    Flow,
    Link,
    all,
    get,
    redis_roles,
    register,
    roles,
)
from msgplatform.core.flows.health import (
    MAX_FAILURES,
    Button,
    Failure,
    Finding,
    Health,
    Runbook,
    Status,
    Wait,
)
from msgplatform.core.flows.messages import (
    MAX_OPTIONS,
    Fields,
    FilterField,
    MessageStore,
    Option,
    personal_names,
)
from msgplatform.core.flows.metric import Metric, Metrics, Sample
from msgplatform.core.flows.moving import KeyStore, MovedTable, Moving
from msgplatform.core.flows.page import (
    Attempt,
    Call,
    File,
    Hit,
    Page,
    PageLink,
    Recipient,
    SearchResult,
    Section,
    TextSearchResult,
    TimelineEntry,
    Tone,
    Value,
)
from msgplatform.core.flows.programs import BULK, Daemon
from msgplatform.core.flows.setup import FirstCall, FirstStep, Setup, Snippet
from msgplatform.core.flows.text import Text, ViewLink

__all__ = [
    "BULK",
    "MAX_FAILURES",
    "MAX_OPTIONS",
    "Activity",
    "Applied",
    "Attempt",
    "BulkAction",
    "Button",
    "Call",
    "Counted",
    "Daemon",
    "Dimension",
    "Ending",
    "Failure",
    "Fields",
    "Figure",
    "File",
    "FilterField",
    "Finding",
    "FirstCall",
    "FirstStep",
    "Flow",
    "Group",
    "Health",
    "Hit",
    "Key",
    "KeyStore",
    "Link",
    "Measure",
    "MessageStore",
    "Metric",
    "Metrics",
    "MovedTable",
    "Moving",
    "Note",
    "Option",
    "Page",
    "PageLink",
    "Preview",
    "PreviewGroup",
    "Recipient",
    "Resent",
    "Runbook",
    "Sample",
    "SearchResult",
    "Section",
    "Selection",
    "Setup",
    "Snippet",
    "Status",
    "Step",
    "Text",
    "TextSearchResult",
    "TimelineEntry",
    "Tone",
    "Value",
    "ViewLink",
    "Wait",
    "all",
    "get",
    "personal_names",
    "redis_roles",
    "register",
    "roles",
    "unnoted",
]
