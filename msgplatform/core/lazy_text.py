"""Texts that are written down once, and read by people in several languages.

    text = say(_("The gateway %(name)s is down"), name="north")
    text                   a str in the language of the settings: for logs, webhooks and mails
    read(text)             the same in the language of who reads it
    shown(stored(text))    that too, after it was written down

Messages are marked with `gettext_noop`, so that catalogues have them. A parameter is a number, a
name, another text that was said, or a lazy translation without parameters of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.utils import translation
from django.utils.functional import Promise
from django.utils.translation import gettext


class LazyMessage(str):
    """A text that knows the message and the parameters of which it was made."""

    message: str
    parameters: Mapping[str, Any]


def lazy_message(message: str, /, **parameters: object) -> LazyMessage:
    given = {name: _given(value) for name, value in parameters.items()}
    with translation.override(settings.LANGUAGE_CODE):
        text = LazyMessage(_filled(message, given))
    text.message, text.parameters = message, given
    return text


def dump(text: str) -> Any:
    """As JSON. A text that nobody said, such as an error's, is only itself."""
    if isinstance(text, LazyMessage):
        return [text.message, {name: _stored(value) for name, value in text.parameters.items()}]
    return str(text)


def translate(value: Any) -> Any:
    """In the language that is active, from what `stored` returned."""
    if not isinstance(value, list):
        return value
    message, parameters = value
    return _filled(message, {name: translate(each) for name, each in parameters.items()})


def translated(text: Any) -> Any:
    """What somebody said, in the language that is active; any other text as it is."""
    return translate(dump(text)) if isinstance(text, LazyMessage) else text


def load(value: Any) -> str:
    """What `stored` returned, as `say` returned it: to be a parameter of another text."""
    if not isinstance(value, list):
        return str(value)
    message, parameters = value
    return lazy_message(message, **{
        name: load(each) if isinstance(each, list) else each
        for name, each in parameters.items()
    })  # fmt: skip


def _filled(message: str, parameters: Mapping[str, Any]) -> str:
    text = gettext(message)
    return text % parameters if parameters else text


def _given(value: object) -> object:
    if isinstance(value, Promise):
        with translation.override(None):  # the message itself
            return lazy_message(str(value))
    return value if isinstance(value, str | int | float) else str(value)


def _stored(value: object) -> Any:
    return dump(value) if isinstance(value, str) else value
