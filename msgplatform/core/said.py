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


class Said(str):
    """A text that knows the message and the parameters of which it was made."""

    message: str
    parameters: Mapping[str, Any]


def say(message: str, /, **parameters: object) -> Said:
    given = {name: _given(value) for name, value in parameters.items()}
    with translation.override(settings.LANGUAGE_CODE):
        text = Said(_filled(message, given))
    text.message, text.parameters = message, given
    return text


def stored(text: str) -> Any:
    """As JSON. A text that nobody said, such as an error's, is only itself."""
    if isinstance(text, Said):
        return [text.message, {name: _stored(value) for name, value in text.parameters.items()}]
    return str(text)


def shown(value: Any) -> Any:
    """In the language that is active, from what `stored` returned."""
    if not isinstance(value, list):
        return value
    message, parameters = value
    return _filled(message, {name: shown(each) for name, each in parameters.items()})


def read(text: Any) -> Any:
    """What somebody said, in the language that is active; any other text as it is."""
    return shown(stored(text)) if isinstance(text, Said) else text


def said_again(value: Any) -> str:
    """What `stored` returned, as `say` returned it: to be a parameter of another text."""
    if not isinstance(value, list):
        return str(value)
    message, parameters = value
    return say(message, **{
        name: said_again(each) if isinstance(each, list) else each
        for name, each in parameters.items()
    })  # fmt: skip


def _filled(message: str, parameters: Mapping[str, Any]) -> str:
    text = gettext(message)
    return text % parameters if parameters else text


def _given(value: object) -> object:
    if isinstance(value, Promise):
        with translation.override(None):  # the message itself
            return say(str(value))
    return value if isinstance(value, str | int | float) else str(value)


def _stored(value: object) -> Any:
    return stored(value) if isinstance(value, str) else value
