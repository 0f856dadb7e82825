"""Configuration by environment.

Reading never raises: a wrong value is remembered as a `Problem`, the default is used, and a
system check (`msgplatform.checks`) names the variable and how to repair it. So `manage.py doctor`
and `manage.py check` can always speak, while `wsgi.py` and the daemons refuse to start.
"""

import ipaddress
import os
import shlex
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qs, quote, unquote, urlsplit

import dj_database_url
import msgspec

from msgplatform.core.cells import MAX_CELLS, Cell
from msgplatform.core.data import engines
from msgplatform.core.http.addresses import bracketed

T = TypeVar("T")
N = TypeVar("N", int, float)

BASE_DIR = Path(__file__).resolve().parent.parent  # packages are imported from here
_PACKED = Path(__file__).resolve().parent / "files"
# Templates, catalogues and pages of docs/: at the root of a clone, in the package of a wheel.
FILES_DIR = _PACKED if _PACKED.is_dir() else BASE_DIR
# MANAGE: the command line of the platform, without a command. INSTALL: that of installing an extra.
MANAGE, INSTALL = (
    ((sys.executable, "-m", "msgplatform"), "pip install 'msgplatform[{}]'")
    if FILES_DIR == _PACKED
    else ((sys.executable, str(BASE_DIR / "manage.py")), "python3 deploy/bootstrap.py platform {}")
)
# The words before a command, and before a program's name. The Debian package sets its own.
COMMAND = os.environ.get("MSGPLATFORM_COMMAND") or shlex.join(MANAGE)
START = os.environ.get("MSGPLATFORM_START") or f"{COMMAND} run_"
# The tag of system checks that look at settings alone: each program runs them when it starts.
CHECKS_TAG = "msgplatform"
# A Unix socket's path may have 107 bytes (sun_path in unix(7)).
MAX_SOCKET_PATH = 107
# A URL with one of these schemes and without a host means this machine.
_LOCAL_SCHEMES = frozenset({"redis", "rediss", "unix"})
gettext_noop = str  # Django's function of this name asks for the settings, which import this


class Problem(msgspec.Struct, frozen=True):
    """A variable with a wrong value: what is wrong, and the line that repairs it."""

    variable: str
    message: str
    hint: str


problems: list[Problem] = []

# Every variable that was read.
variable_names: set[str] = set()


def _report(variable: str, message: str, hint: str) -> None:
    problems.append(Problem(variable, message, hint))


def _parse(name: str, default: T, parse: Callable[[str], T], hint: str) -> T:
    raw = text(name)
    if not raw:
        return default
    try:
        return parse(raw)
    except ValueError as error:
        _report(name, f"{name}={raw!r} is not usable: {error}", hint)
        return default


def text(name: str, default: str = "") -> str:
    """The variable, or `default` when it is unset or empty."""
    variable_names.add(name)
    return os.environ.get(name, "").strip() or default


def flag(name: str, default: bool) -> bool:
    """A yes/no variable: 1, true, yes, on / 0, false, no, off."""

    def parse(raw: str) -> bool:
        value = raw.lower()
        if value in {"1", "true", "yes", "on"}:
            return True
        if value in {"0", "false", "no", "off"}:
            return False
        raise ValueError("expected yes or no")

    return _parse(name, default, parse, f"Set {name}=yes or {name}=no.")


def number(name: str, default: float, low: float, high: float) -> float:
    """A number within bounds (both included)."""
    return _bounded(name, default, low, high, float, "number")


def integer(name: str, default: int, low: int, high: int) -> int:
    """A whole number within bounds (both included)."""
    return _bounded(name, default, low, high, int, "whole number")


def _bounded(name: str, default: N, low: N, high: N, read: Callable[[str], N], kind: str) -> N:
    def parse(raw: str) -> N:
        value = read(raw)
        if not low <= value <= high:
            raise ValueError(f"it must be between {low} and {high}")
        return value

    return _parse(name, default, parse, f"Set {name} to a {kind} from {low} to {high}.")


def _split(raw: str, separator: str = ",") -> list[str]:
    """The parts that are not empty, without space around them."""
    return [part.strip() for part in raw.split(separator) if part.strip()]


def words(name: str, default: list[str]) -> list[str]:
    """A comma-separated list."""
    return _split(text(name)) or default


def words_of(name: str, options: tuple[str, ...]) -> list[str]:
    """A comma-separated list of some of these words; none by default."""
    choices = ", ".join(options)

    def parse(raw: str) -> list[str]:
        values = _split(raw)
        if unknown := [word for word in values if word not in options]:
            raise ValueError(f"there is no {', '.join(unknown)}; there are {choices}")
        return values

    return _parse(name, [], parse, f"Set {name} to some of: {choices}, separated by commas.")


def mapping(name: str) -> dict[str, list[str]]:
    """Groups, each with its names: `a=x,y;b=z`. A group may have commas and equals signs, such as
    the name of an entry in a directory: the last equals sign separates."""

    def parse(raw: str) -> dict[str, list[str]]:
        groups: dict[str, list[str]] = {}
        for entry in _split(raw, ";"):
            group, _equals, names_text = (part.strip() for part in entry.rpartition("="))
            names = _split(names_text)
            if not group or not names:
                raise ValueError(f"{entry!r} is not of the form group=name")
            groups.setdefault(group, []).extend(names)
        return groups

    return _parse(name, {}, parse, f"Set {name} to groups such as ops=operator;staff=viewer.")


def choice(name: str, default: str, options: tuple[str, ...]) -> str:
    """One of these words in capitals, which may be written in small letters."""
    choices = f"{', '.join(options[:-1])} or {options[-1]}"

    def parse(raw: str) -> str:
        if raw.upper() not in options:
            raise ValueError(f"it must be {choices}")
        return raw.upper()

    return _parse(name, default, parse, f"Set {name} to {choices}.")


def modules(name: str, default: list[str], needs: Mapping[str, str]) -> list[str]:
    """A comma-separated list of flows, each once: packages with a module `flow`.

    A flow that does not exist is left out. A flow that another one `needs` is added.
    """
    names = list(dict.fromkeys(words(name, default)))
    flows = [module for module in names if _is_flow(module)]
    if unknown := sorted(set(names) - set(flows)):
        _report(
            name,
            f"{name} names what is not installed: {', '.join(unknown)}",
            f"Set {name} to some of: {', '.join(default)}.",
        )
    for module, other in needs.items():
        if module in flows and other not in flows:
            _report(
                name,
                f"{name} names {module}, which needs {other}",
                f"Add {other} to {name}, or take {module} out.",
            )
            flows.insert(0, other)
    return flows


def _is_flow(module: str) -> bool:
    try:
        return find_spec(f"{module}.flow") is not None
    except (ImportError, ValueError):  # not even the package that it would be in
        return False


def capitals(module: str) -> dict[str, Any]:
    """The names in capitals of a module of settings; none when there is no such module."""
    if find_spec(module) is None:
        return {}
    names = vars(import_module(module))
    return {name: value for name, value in names.items() if name.isupper()}


def networks(name: str) -> list[str]:
    """A comma-separated list of CIDR networks."""

    def parse(raw: str) -> list[str]:
        return [str(ipaddress.ip_network(network)) for network in _split(raw)]

    return _parse(name, [], parse, f"Set {name} to networks such as 10.0.0.0/8,192.168.1.5/32.")


def secret(name: str, default_file: Path | None = None) -> str:
    """A secret from `NAME`, or from the file that `NAME_FILE` names (surrounding space dropped)."""
    if value := text(name):
        return value
    file_name = os.environ.get(f"{name}_FILE", "").strip()
    path = Path(file_name) if file_name else default_file
    if path is None:
        return ""
    try:
        value = path.read_text(encoding="utf-8-sig").strip()
    except (OSError, UnicodeDecodeError) as error:
        if not file_name and isinstance(error, FileNotFoundError | NotADirectoryError):
            return ""
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        _report(
            f"{name}_FILE",
            f"{name}_FILE={path} cannot be read: {why}",
            "Name a text file that this user can read."
            if file_name
            else f"Run this as the user who owns {path.parent}, or set {name}.",
        )
        return ""
    if not value:
        _report(f"{name}_FILE", f"{path} is empty", f"Write the value of {name} into it.")
    return value


def existing_file(name: str) -> str:
    """The path of a file that can be read, or ''."""

    def parse(raw: str) -> str:
        if not (os.access(raw, os.R_OK) and Path(raw).is_file()):
            raise ValueError("there is no such file that this user can read")
        return raw

    return _parse(name, "", parse, f"Set {name} to the path of a readable file.")


def url(name: str, default: str, schemes: tuple[str, ...]) -> str:
    """A URL of one of these schemes; `NAME_FILE` works too (a URL may hold a password)."""
    raw = secret(name)
    if not raw:
        return default
    if not _is_url(raw, schemes):
        _report(
            name,
            f"{name} is not a URL of the kind {' or '.join(f'{scheme}://' for scheme in schemes)}",
            f"Set {name} to something like {default or schemes[0] + '://host:port/0'}",
        )
        return default
    return raw


def headers(name: str) -> list[tuple[str, str]]:
    """Headers of HTTP, in small letters: `name=value,name=value`, percent-encoded as OpenTelemetry
    has them; `NAME_FILE` works too (a value may be a key)."""
    pairs = [part.partition("=") for part in _split(secret(name))]
    if not all(header.strip() and equals for header, equals, _value in pairs):
        _report(
            name,
            f"a part of {name} is not of the form name=value",
            f"Set {name} to something like Authorization=Bearer%20KEY,x-team=shop",
        )
        return []
    return [(header.strip().lower(), unquote(value.strip())) for header, _equals, value in pairs]


def host(name: str, default: str) -> str:
    """The address or name at which a program listens, without a port."""

    def parse(raw: str) -> str:
        try:
            return str(ipaddress.IPv6Address(raw)) if ":" in raw else raw
        except ValueError:
            raise ValueError("it is neither an IP address nor a name without a port") from None

    return _parse(name, default, parse, f"Set {name} to an address such as 10.0.0.5 or 0.0.0.0.")


def mail_server(server_url: str) -> dict[str, Any]:
    """Django's settings of a mail server; none for ''. A plus in the sender is not a blank."""
    if not server_url:
        return {}
    parts = urlsplit(server_url)
    port = {"smtp": 25, "smtp+starttls": 587, "smtps": 465}[parts.scheme]
    sender = parse_qs(parts.query.replace("+", "%2B")).get("from")
    return {
        "EMAIL_HOST": parts.hostname,
        "EMAIL_PORT": parts.port or port,
        "EMAIL_HOST_USER": unquote(parts.username or ""),
        "EMAIL_HOST_PASSWORD": unquote(parts.password or ""),
        "EMAIL_USE_TLS": parts.scheme == "smtp+starttls",
        "EMAIL_USE_SSL": parts.scheme == "smtps",
        "EMAIL_TIMEOUT": 10,  # seconds: a person waits
        "DEFAULT_FROM_EMAIL": sender[0] if sender else f"msgplatform@{parts.hostname}",
    }


def _is_url(raw: str, schemes: tuple[str, ...]) -> bool:
    if not raw.startswith(tuple(f"{scheme}://" for scheme in schemes)):
        return False
    try:
        parts = urlsplit(raw)
        _ = parts.port  # a ValueError unless it is a number up to 65535
    except ValueError:
        return False
    place = parts.netloc or parts.path if parts.scheme in _LOCAL_SCHEMES else parts.hostname
    return bool(place)


class WrongUrl(Exception):
    """A database's URL cannot be used: why, and how to repair it. Neither text repeats the URL,
    which may hold a password."""


def parse_database(url: str) -> dict[str, Any]:
    """Django's DATABASES entry for a URL; OPTIONS holds what the URL's query says. Opens no
    connection. Raises WrongUrl."""
    hint = gettext_noop("Use mysql://user:password@host:3306/name or sqlite:////path/to/file.")
    if url.startswith("mariadb://"):
        url = "mysql" + url.removeprefix("mariadb")
    if not url.startswith(("mysql://", "sqlite:///")) and url != "sqlite://:memory:":
        raise WrongUrl(gettext_noop("is neither sqlite:/// nor mysql://"), hint)
    if "\0" in unquote(url):
        raise WrongUrl(gettext_noop("has a NUL (%00), which no file or server takes"), hint)
    try:
        config: dict[str, Any] = dict(dj_database_url.parse(url))
    except (ValueError, dj_database_url.ParseError):
        why = gettext_noop("cannot be read: a part of it may lack its percent-encoding")
        raise WrongUrl(why, hint) from None
    if not config.get("NAME"):
        raise WrongUrl(gettext_noop("names no database"), hint)
    if engines.of_config(config).is_server and find_spec("MySQLdb") is None:
        raise WrongUrl(
            gettext_noop("names a MySQL or MariaDB server, but mysqlclient is not installed"),
            f"{INSTALL.format('mysql')} (before, on Debian and Ubuntu:"
            " apt-get install gcc pkg-config libmariadb-dev python3-dev)",
        )
    options = config["OPTIONS"] = dict(config.get("OPTIONS") or {})
    # mysqlclient takes `ssl=true` for a mode; Django's command lines of tools read files from it.
    if not isinstance(options.get("ssl", {}), dict):
        options.setdefault("ssl_mode", "REQUIRED" if options.pop("ssl") else "DISABLED")
    # A connection lives a minute: long enough for a busy thread, short for a server restart.
    return {**config, "CONN_MAX_AGE": 60, "CONN_HEALTH_CHECKS": True}


def database(name: str, default: str) -> dict[str, Any]:
    """Django's DATABASES entry for the platform's own database."""
    default = default or "sqlite:///:memory:"  # used only after a problem was reported
    try:
        config = parse_database(secret(name) or default)
        option_names = engines.of_config(config).option_names
        if unknown_names := sorted(config["OPTIONS"].keys() - option_names):
            raise WrongUrl(
                f"has options that do not exist: {', '.join(unknown_names)}",
                f"Use some of: {', '.join(sorted(option_names))}.",
            )
    except WrongUrl as error:
        why, hint = error.args
        _report(name, f"{name} {why}", hint)
        config = parse_database(default)
    engine = engines.of_config(config)
    options = {**engine.options, **config["OPTIONS"]}
    return {**config, "ENGINE": engine.backend, "OPTIONS": options}


def own_url(name: str, default: str) -> str:
    """An address of the platform, with its host as clients write it into a request: in ASCII,
    without a final dot, IPv6 in its short form."""
    address = url(name, default, ("http", "https")).rstrip("/")
    parts = urlsplit(address)
    host = (parts.hostname or "").removesuffix(".")
    if ":" in host:
        host = str(ipaddress.IPv6Address(host))
    elif not host.isascii():
        try:
            host_bytes = host.encode("idna")
            if host_bytes.decode("idna") != host:  # clients differ about it, as about `ß`
                raise ValueError
        except ValueError:
            hint = "Write the name in its ASCII form, such as https://xn--55qx5d.example.com."
            _report(name, f"the host of {name} is not a usable international name", hint)
            return default
        host = host_bytes.decode()
    port = f":{parts.port}" if parts.port else ""
    return parts._replace(netloc=f"{bracketed(host)}{port}").geturl()


def public_url() -> str:
    """The address under which people and systems reach the platform; https by default.

    If PUBLIC_URL is unset and `up` serves only its own machine, `up` sets http for its processes.
    """
    address = own_url("PUBLIC_URL", "https://localhost")
    if path := urlsplit(address).path:
        _report(
            "PUBLIC_URL",
            f"PUBLIC_URL has a path ({path}): the platform is served at the root of its host",
            "Give it a host name of its own, such as https://messages.example.com.",
        )
        return address.removesuffix(path)
    return address


def trace_url(name: str) -> str:
    """The address of a trace, with `{trace_id}` in it, or ''."""

    def parse(raw: str) -> str:
        if not _is_url(raw, ("http", "https")):
            raise ValueError("it is no http:// or https:// address")
        if "{trace_id}" not in raw:
            raise ValueError("it has no {trace_id}")
        return raw

    hint = f"Set {name} to something like https://traces.example.com/trace/{{trace_id}}"
    return _parse(name, "", parse, hint)


def cell(name: str) -> Cell:
    """A cell such as 3/16; unset: the only one."""
    hint = f"Set {name} to number/cells, such as 3/16 for the fourth of 16; at most {MAX_CELLS}."
    return _parse(name, Cell(), Cell.parse, hint)


def urls_by_cell(name: str) -> dict[int, str]:
    """Addresses of cells: `0=https://…,3=https://…`."""

    def parse(raw: str) -> dict[int, str]:
        urls: dict[int, str] = {}
        for entry in raw.split(","):
            cell_number, equals, address = (part.strip() for part in entry.partition("="))
            is_number = cell_number.isascii() and cell_number.isdigit()
            if not (equals and is_number and int(cell_number) < MAX_CELLS):
                raise ValueError(f"{entry.strip()!r} is not of the form 3=https://…")
            if not _is_url(address, ("http", "https")):
                raise ValueError(f"{address!r} is no http:// or https:// address")
            urls[int(cell_number)] = address.rstrip("/")
        return urls

    hint = (
        f"Set {name} to addresses such as 0=https://cell-0.example.com,3=https://cell-3.example.com"
    )
    return _parse(name, {}, parse, hint)


def time_zone(name: str, default: str) -> str:
    """The console's time zone, an IANA name."""
    import zoneinfo

    def parse(raw: str) -> str:
        try:
            return zoneinfo.ZoneInfo(raw).key
        except (zoneinfo.ZoneInfoNotFoundError, OSError):
            raise ValueError("no such time zone") from None

    return _parse(name, default, parse, f"Set {name} to an IANA name such as Asia/Shanghai.")


def state_dir() -> Path:
    """The folder of this installation's databases, sockets, logs and locks (mode 0700).

    By default `var` in the clone; installed from the wheel, in the folder where a command is run.
    """
    folder = BASE_DIR if FILES_DIR == BASE_DIR else Path.cwd()
    return Path(text("STATE_DIR", str(folder / "var"))).resolve()


def socket_path(name: str) -> Path:
    """A Unix socket's path in the state directory, or, if that is too long, in the folder of
    temporary files."""
    import hashlib
    import tempfile

    path = state_dir() / "run" / name
    if len(os.fsencode(path)) <= MAX_SOCKET_PATH:
        return path
    digest = hashlib.sha256(os.fsencode(state_dir())).hexdigest()[:12]
    return Path(tempfile.gettempdir()) / f"msgplatform-{os.getuid()}-{digest}" / name


def redis_url(name: str, socket: str) -> str:
    """The URL of a Redis server, or that of the socket in the state directory."""
    default = f"unix://{quote(str(socket_path(socket)))}"  # a path may hold what a URL may not
    return url(name, default, ("redis", "rediss", "unix"))
