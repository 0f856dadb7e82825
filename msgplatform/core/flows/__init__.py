"""The contract that a flow fills in, and the registry of flows.

Console, `up`, `demo`, `doctor`, `/metrics`, `run_bulk`, the queues and the URL configuration go
through the registry, so a new flow is a new folder and its name in FLOWS. Each app's `flow.py`
subclasses `Flow` and registers an instance in `AppConfig.ready()`; its `settings.py`, if there is
one, is read by the platform's.

contract     `Flow`: what a flow fills in
programs     its programs
condition    how it is doing: overview, alerts, `doctor`
activity     what it counts: charts, statistics
failures     messages that will not be tried any more, and what to do about alerts
metric       what it says on `/metrics`
finding      messages found, and the page of one
view_link    a page of the console, as data
filters      the fields of a filter, and how people enter them
bulk         actions on many messages
first_steps  what a newcomer does first with it
registry     the flows that are installed
"""

from msgplatform.core.flows.activity import Activity, Dimension, Figure, Group, Key, Measure
from msgplatform.core.flows.bulk import (
    BulkAction,
    Counted,
    Ending,
    Note,
    Preview,
    PreviewGroup,
    Step,
    unnoted,
)
from msgplatform.core.flows.condition import Finding, Status, Wait
from msgplatform.core.flows.contract import DemoRun, Flow, Link
from msgplatform.core.flows.failures import MAX_FAILURES, Button, Failure, Runbook
from msgplatform.core.flows.filters import MAX_OPTIONS, FilterField, Option, personal_names
from msgplatform.core.flows.finding import (
    Attempt,
    Call,
    File,
    Found,
    Hit,
    Page,
    PageLink,
    Recipient,
    Section,
    SentAgain,
    TextFound,
    TimelineEntry,
    Tone,
    Value,
)
from msgplatform.core.flows.first_steps import FirstCall, FirstStep, Snippet
from msgplatform.core.flows.metric import Metric, Metrics, Sample
from msgplatform.core.flows.programs import BULK, Daemon
from msgplatform.core.flows.registry import all, get, redis_roles, register, roles
from msgplatform.core.flows.text import Text
from msgplatform.core.flows.view_link import ViewLink

__all__ = [
    "BULK",
    "MAX_FAILURES",
    "MAX_OPTIONS",
    "Activity",
    "Attempt",
    "BulkAction",
    "Button",
    "Call",
    "Counted",
    "Daemon",
    "DemoRun",
    "Dimension",
    "Ending",
    "Failure",
    "Figure",
    "File",
    "FilterField",
    "Finding",
    "FirstCall",
    "FirstStep",
    "Flow",
    "Found",
    "Group",
    "Hit",
    "Key",
    "Link",
    "Measure",
    "Metric",
    "Metrics",
    "Note",
    "Option",
    "Page",
    "PageLink",
    "Preview",
    "PreviewGroup",
    "Recipient",
    "Runbook",
    "Sample",
    "Section",
    "SentAgain",
    "Snippet",
    "Status",
    "Step",
    "Text",
    "TextFound",
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
