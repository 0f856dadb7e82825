"""A command's session: the platform that it talks to, the key, and where its results go.

    @on_platform
    def whoami(session: Session, …own options…) -> None:

gives the command the options that all have, and turns errors of the client into one sentence and an
exit code.
"""

from __future__ import annotations

import inspect
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from importlib.metadata import version
from typing import Annotated, Any, get_type_hints
from urllib.parse import urlsplit

import httpx
import typer

from ..answers import PAGE_ITEMS, next_cursor, reading_answers
from ..client import Client
from ..errors import NotFound, PlatformError
from ..events import new_key
from ..retries import clean_key
from . import profiles
from .exits import Exit, Failure, code_of
from .output import Output
from .profiles import Profile

PATIENCE_SECONDS = 15.0
_KEY = re.compile(r"mp_[\x21-\x7e]+")
_LOCAL = {"localhost", "127.0.0.1", "::1"}

ProfileOption = Annotated[
    str,
    typer.Option(
        "--profile", envvar="MSGP_PROFILE", help="Use this profile of `msgp login`.",
        show_default=profiles.DEFAULT, rich_help_panel="For every command",
    ),
]  # fmt: skip
JsonOption = Annotated[
    bool,
    typer.Option(
        "--json", help="Print JSON, one object in a line.", rich_help_panel="For every command"
    ),
]
PatienceOption = Annotated[
    float,
    typer.Option(
        "--patience", min=0, metavar="SECONDS", rich_help_panel="For every command",
        help="Repeat a request for so long while the platform does not answer.",
    ),
]  # fmt: skip
_COMMON: dict[str, tuple[Any, Any]] = {
    "profile": (ProfileOption, ""),
    "json": (JsonOption, False),
    "patience": (PatienceOption, PATIENCE_SECONDS),
}


class Session:
    """Requests to one platform with one key. The client is made when it is first needed."""

    def __init__(self, profile: str, output: Output, patience: float) -> None:
        self.profile_name, self.output = profile, output
        self.patience = patience  # seconds, of the client that is made next
        self._client: Client | None = None

    @property
    def client(self) -> Client:
        if self._client is None:
            self.connect(chosen(self.profile_name))
        assert self._client is not None  # noqa: S101 - for the type checker
        return self._client

    def connect(self, profile: Profile) -> None:
        """Talk to this platform from now on. Raises Failure for an unusable proxy."""
        self.close()
        try:
            self._client = Client(profile.url, profile.key, patience=self.patience)
        except ValueError as error:
            raise Failure(str(error), Exit.USAGE) from error

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        """The answer of an operation below /api/v1/. Its JSON is read as it comes, so that fields
        and states that this release does not know are no error. Raises PlatformError."""
        http = self.client.api.get_httpx_client()
        return http.request(method, f"/api/v1/{path}", **options)

    def get(self, path: str, **parameters: Any) -> Any:
        """The JSON of an operation; parameters that are None or '' are left out."""
        values = {name: value for name, value in parameters.items() if value not in (None, "")}
        return self.request("GET", path, params=values).json()

    def pages(self, path: str, max_pages: int = sys.maxsize, /, **parameters: Any) -> Iterator[Any]:
        """The items of a list, page after page."""
        cursor: str | None = ""
        for _page in range(max_pages):
            page = self.get(path, cursor=cursor, limit=PAGE_ITEMS, **parameters)
            yield from page["results"]
            cursor = next_cursor(page["next"])
            if cursor is None:
                return

    def own_key(self) -> Any:
        """What the key is. Raises Failure when no such platform answers."""
        try:
            own = self.get("key")
            return {**own, "platform_version": own["platform_version"]}
        except NotFound as error:
            raise Failure("No msgplatform of this or a later release answers there.") from error

    def compare_versions(self) -> None:
        """Warns when the platform is of another release than this program."""
        theirs, own = self.own_key()["platform_version"], version("msgplatform-client")
        if theirs != own:
            older = "an older" if _numbers(own) < _numbers(theirs) else "a newer"
            self.output.warn(
                f"This msgp is {own}, {older} release than the platform, which is {theirs}: "
                "some things may look different or be refused."
            )


def chosen(name: str) -> Profile:
    """The address and the key: of the profile that was named, of the environment, or of the
    profile `default`. Raises Failure."""
    url, key = os.environ.get("MSGP_URL", ""), os.environ.get("MSGP_KEY", "")
    if not name and url and key:
        return checked(url, key)
    if not name and url:
        raise Failure("MSGP_URL is set, and MSGP_KEY is not: set both.", Exit.FORBIDDEN)
    stored = profiles.load()
    profile = stored.get(name or profiles.DEFAULT)
    if profile is None:
        others = f" There are: {', '.join(sorted(stored))}." if stored else ""
        option = f" --profile {name}" if name else ""
        words = f"Not logged in: run `msgp login{option}`, or set MSGP_URL and MSGP_KEY.{others}"
        raise Failure(words, Exit.FORBIDDEN)
    return checked(profile.url, key) if key and not name else profile


def checked(url: str, key: str) -> Profile:
    """The profile of an address and a key as somebody has written them. Raises Failure; the key
    is in no message."""
    address = url.strip().rstrip("/").removesuffix("/api/v1")
    try:
        parts = urlsplit(address)
        httpx.URL(address)  # reads hosts as the client does
        is_address = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except (ValueError, httpx.InvalidURL):
        is_address = False
    if not is_address or parts.username or parts.query or parts.fragment:
        raise Failure("Write the address as https://messages.example.com.", Exit.USAGE)
    with suppress(ValueError):
        key = clean_key(key)
    if not _KEY.fullmatch(key):
        raise Failure("That is no API key: a key begins with mp_.", Exit.USAGE)
    return Profile(address, key)


def checked_part(name: str) -> str:
    """The name, which becomes a part of an address. Raises Failure."""
    if not re.fullmatch(r"[-\w.]+", name):
        raise Failure(f"{name!r} is no name: write letters, digits, - and _.", Exit.USAGE)
    return name


def key_option(meaning: str) -> Any:
    """The option with a command's idempotency key."""
    return typer.Option("--idempotency-key", "-k", metavar="KEY", help=meaning)


@contextmanager
def key_in_errors(key: str) -> Iterator[str]:
    """The idempotency key of a command: the one that its user gave, or a new one, which an error
    then names, so that the command can be repeated under it."""
    own = key or new_key()
    try:
        yield own
    except PlatformError as error:
        if not key and not error.is_permanent:
            error.add_note(
                f"Repeat it with --idempotency-key {own}: then it is done once, whatever happened."
            )
        raise


def is_readable_by_others(profile: Profile) -> bool:
    """True if the key goes over a network without encryption."""
    parts = urlsplit(profile.url)
    return parts.scheme == "http" and parts.hostname not in _LOCAL


def on_platform(function: Callable[..., None]) -> Callable[..., None]:
    """A command whose first parameter is its session. An answer without a field that the command
    needs is told as an error of the client, too."""
    hints = get_type_hints(function, include_extras=True)
    (_session, *own) = inspect.signature(function).parameters.values()

    @wraps(function)
    def command(**options: Any) -> None:
        profile, is_json, patience = (options.pop(name) for name in _COMMON)
        output = Output(is_json)
        session = Session(profile, output, patience)
        try:
            with reading_answers():
                function(session, **options)
        except (PlatformError, Failure) as error:
            code = error.code if isinstance(error, Failure) else code_of(error)
            output.error(error, code)
            raise typer.Exit(code) from None
        except UnicodeEncodeError as error:
            problem = Failure(f"An argument is not UTF-8: {error.reason}.", Exit.USAGE)
            output.error(problem, problem.code)
            raise typer.Exit(problem.code) from None
        finally:
            session.close()

    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [each.replace(kind=keyword, annotation=hints[each.name]) for each in own]
    parameters += [
        inspect.Parameter(name, keyword, annotation=hint, default=default)
        for name, (hint, default) in _COMMON.items()
    ]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    return command


def _numbers(release: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", release)]
