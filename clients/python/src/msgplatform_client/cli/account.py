"""Commands about the key: log in and out, what the key is, which releases meet."""

from __future__ import annotations

import os
import sys
from importlib.metadata import version as installed_version
from typing import Annotated

import typer

from . import profiles
from .exits import Exit, Failure
from .output import BOLD, FAINT
from .session import Session, checked, is_readable_by_others, on_platform


@on_platform
def login(
    session: Session,
    url: Annotated[
        str, typer.Argument(envvar="MSGP_URL", help="The platform's address.", show_default=False)
    ] = "",
    key: Annotated[
        str,
        typer.Option(
            help="The API key; - reads it from standard input. Better than the option, which other "
            "users of the machine may see, is the question, or MSGP_KEY.",
            envvar="MSGP_KEY",
            show_envvar=True,
            show_default=False,
        ),
    ] = "",
) -> None:
    """Keep an address and an API key for the commands that follow.

    The key is tried before it is kept, in a file that only you can read.

    msgp login https://messages.example.com

    msgp login https://staging.example.com --profile staging --key - < key.txt
    """  # fmt: skip
    is_asked = sys.stdin.isatty() and key != "-"
    if not url and is_asked:
        url = typer.prompt("Address of the platform")
    if key == "-":
        # In the encoding of Windows' own streams a byte order mark is three letters.
        key = sys.stdin.buffer.readline().decode("utf-8", "replace").strip()
    elif not key and is_asked:
        key = typer.prompt("API key", hide_input=True)
    if not url or not key:
        missing = "the address" if not url else "the key: --key -, or MSGP_KEY"
        raise Failure(f"Without a terminal to ask, the command needs {missing}.", Exit.USAGE)
    profile, name = checked(url, key), session.profile_name or profiles.DEFAULT
    if is_readable_by_others(profile):
        session.output.warn("The address begins with http: others can read the key on its way.")
    session.connect(profile)
    own = session.own_key()
    session.compare_versions()
    profiles.keep(name, profile)
    whose = f"the system {own['system']}" if own["system"] else "management"
    session.output.result(
        {"profile": name, "url": profile.url, **own},
        ["Logged in to ", (profile.url, BOLD), f" with the key {own['name']} of {whose}."],
    )


@on_platform
def logout(session: Session) -> None:
    """Forget the address and the key of a profile.

    The key stays valid: whoever manages keys can revoke it.
    """
    name = session.profile_name or profiles.DEFAULT
    profiles.drop(name)
    session.output.result({"profile": name}, [f"The profile {name} is forgotten."])


@on_platform
def whoami(session: Session) -> None:
    """Show what the key is, and what it may do."""
    own = session.own_key()
    session.compare_versions()
    url = str(session.client.api.get_httpx_client().base_url).rstrip("/")
    whose = f"system {own['system']}" if own["system"] else "management key"
    session.output.result(
        {"url": url, **own},
        [(own["name"], BOLD), f", {whose}, at {url}"],
        *[["  ", scope] for scope in own["scopes"]],
        *[["  only for ", name] for name in own.get("systems", ())],
    )


@on_platform
def list_profiles(session: Session) -> None:
    """List the profiles that are kept here."""
    for name, profile in sorted(profiles.load().items()):
        session.output.result({"profile": name, "url": profile.url}, [name, "  ", profile.url])


@on_platform
def version(session: Session) -> None:
    """Show the release of this program, and of the platform when you are logged in."""
    own = installed_version("msgplatform-client")
    is_logged_in = bool(session.profile_name or os.environ.get("MSGP_KEY") or profiles.load())
    theirs = session.own_key()["platform_version"] if is_logged_in else None
    session.output.result(
        {"client": own, "platform": theirs},
        ["msgp ", own],
        ["platform ", theirs or ("not logged in", FAINT)],
    )
    if theirs:
        session.compare_versions()
