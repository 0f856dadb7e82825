"""The form in which people say how a sandbox answers, and what its buttons do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from msgplatform.admin import TextInput, audit
from msgplatform.core import sandbox
from msgplatform.core.connections import RedisError
from msgplatform.core.sandbox import (
    MAX_COUNT,
    MAX_DELAY_SECONDS,
    MAX_MINUTES,
    MAX_RETRY_AFTER,
    Behaviour,
    Sandbox,
)


class BehaviourForm(forms.Form):
    """How the sandbox answers, and for how long. Each kind of sandbox adds its answers, and says
    what the fields mean for it."""

    field_order = ("answer",)
    delay = forms.FloatField(
        label=_("After"), min_value=0, max_value=MAX_DELAY_SECONDS, required=False,
        widget=TextInput({"inputmode": "decimal"}),
    )  # fmt: skip
    retry_after = forms.IntegerField(
        label="Retry-After", min_value=0, max_value=MAX_RETRY_AFTER, required=False,
        widget=TextInput({"inputmode": "numeric"}),
    )  # fmt: skip
    count = forms.IntegerField(
        min_value=1, max_value=MAX_COUNT, required=False,
        widget=TextInput({"inputmode": "numeric"}), help_text=_("Empty: any number"),
    )  # fmt: skip
    minutes = forms.IntegerField(
        label=_("For so many minutes"), min_value=1, max_value=MAX_MINUTES, initial=10,
        widget=TextInput({"inputmode": "numeric"}),
    )  # fmt: skip
    # Field → its text, where the kinds of sandboxes differ.
    labels: dict[str, Any] = {}
    help_texts: dict[str, Any] = {}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name, text in self.labels.items():
            self.fields[name].label = text
        for name, text in self.help_texts.items():
            self.fields[name].help_text = text

    def behaviour(self) -> Behaviour:
        """The behaviour that was filled in."""
        raise NotImplementedError


def change(
    request: HttpRequest,
    form: BehaviourForm,
    calls: Sandbox,
    empty: Callable[[], object],
    target: str,
    record: Callable[[Behaviour], object],
) -> bool:
    """Do what was sent: `empty` the sandbox, answer as usual, or as the form says; True if it was
    done. `target` names it in the audit log, in which `record` stores a new behaviour."""
    try:
        if "empty" in request.POST:
            empty()
            audit(request, "sandbox_emptied", target)
            messages.success(request, gettext("The sandbox is empty."))
        elif "usual" in request.POST:
            calls.behave(sandbox.USUAL, MAX_MINUTES)
            record(sandbox.USUAL)
        elif form.is_valid():
            behaviour = form.behaviour()
            calls.behave(behaviour, form.cleaned_data["minutes"])
            record(behaviour)
        else:
            return False
    except RedisError:
        messages.error(request, gettext("Redis does not answer: nothing was changed. Try again."))
    return True
