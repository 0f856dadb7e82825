"""Texts that are stored once, and shown in several languages.

    text = lazy_message("The gateway %(name)s is down", name="north")
    text                            a str in the language of the settings: for logs and mails
    translate_text(text)            the text in the reader's language
    translate_stored(dump(text))    the text in the reader's language, after it was stored

Catalogues have the text of a call (`scripts/messages.sh`); a text in a variable is marked with
`gettext_noop`. A parameter is a number, a name, another lazy message, or a lazy translation without
parameters of its own.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from django.conf import settings
from django.utils import translation
from django.utils.functional import Promise
from django.utils.translation import gettext, pgettext


class LazyMessage(str):
    """A text with its message and parameters."""

    message: str
    parameters: Mapping[str, Any]


def lazy_message(message: str, /, **parameters: object) -> LazyMessage:
    """Make a text of a message and its parameters."""
    values: dict[str, object] = {}
    for name, value in parameters.items():
        if isinstance(value, Promise):
            with translation.override(None):  # the message itself
                values[name] = lazy_message(str(value))
        else:
            values[name] = value if isinstance(value, str | int | float) else str(value)
    with translation.override(settings.LANGUAGE_CODE):
        text = LazyMessage(_fill(message, values))
    text.message, text.parameters = message, values
    return text


def dump(text: str) -> Any:
    """The text as JSON, to be stored. A text that is no lazy message, such as an error's, is stored
    as it is."""
    if isinstance(text, LazyMessage):
        return [
            text.message,
            {
                name: dump(value) if isinstance(value, str) else value
                for name, value in text.parameters.items()
            },
        ]
    return str(text)


def translate_stored(value: Any) -> Any:
    """The stored text (see `dump`) in the active language."""
    if not isinstance(value, list):
        return value
    message, parameters = value
    return _fill(message, {name: translate_stored(part) for name, part in parameters.items()})


def translate_text(text: Any) -> Any:
    """A lazy message in the active language; other texts as they are."""
    return translate_stored(dump(text)) if isinstance(text, LazyMessage) else text


def load(value: Any) -> str:
    """The stored text (see `dump`) as a lazy message again, to be a parameter of another one."""
    if not isinstance(value, list):
        return str(value)
    message, parameters = value
    return lazy_message(message, **{
        name: load(parameter) if isinstance(parameter, list) else parameter
        for name, parameter in parameters.items()
    })  # fmt: skip


def join_words(words: Iterable[object]) -> str:
    """Words in one line in the reader's language: `2 delivered, 1 exhausted`. Chinese has a comma
    of its own."""
    return pgettext("between words of a list", ", ").join(map(str, words))


def _fill(message: str, parameters: Mapping[str, Any]) -> str:
    text = gettext(message)
    return text % parameters if parameters else text
