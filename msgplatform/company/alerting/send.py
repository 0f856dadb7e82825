"""The program of the child process: reads one order as JSON from stdin, writes its outcome as JSON.

    python -m msgplatform.company.alerting.send

Python's audit hook sees the address of each connection before it is made, whichever library makes
it. The hook holds for a whole process, so sending has a process of its own. A forbidden address is
refused after names were resolved: a second answer of a name server cannot pass. Files outside of
Python and the certificates, other programs, and sockets without an address are refused too. The
process ends by itself when its time is over.
"""

import json
import logging
import os
import re
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from msgplatform.core.http.addresses import AddressGuard

# Maximum bytes of a message for any service, and bytes reserved for the service's own JSON.
MAX_BYTES, _FRAME_BYTES = 16_000, 200
_WECOM_TEXT_BYTES = 2048
# Services on this machine: the guard has no network address to judge.
LOCAL_SCHEMES = frozenset({
    "blink1", "dbus", "gio", "glib", "gnome", "kde", "macosx", "qt", "syslog", "windows",
})  # fmt: skip
_PROGRAMS = frozenset({"subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork"})
# The current folder is not allowed: with `make up` it holds the secrets.
_OWN_CODE = Path(__file__).resolve().parents[1]
_FOLDERS = ("/etc/ssl/", "/etc/pki/", "/usr/share/", "/usr/lib/", "/usr/local/share/", "/dev/null",
            "/etc/mime.types", "/etc/localtime", "/dev/urandom")  # fmt: skip


class Refusals:
    """The audit hook, and the reasons for which it refused something."""

    def __init__(self, guard: AddressGuard, peers: frozenset[str], state_dir: str) -> None:
        self._guard, self._peers = guard, peers  # `peers`: addresses of the operator's own proxy
        self.reasons: list[str] = []
        roots = [f"{Path(root).resolve()}/" for root in (sys.prefix, sys.base_prefix, _OWN_CODE)]
        # STATE_DIR holds the secrets. It may lie in a folder of Python, and Python in it.
        self._state_dir = f"{Path(state_dir).resolve()}/"
        self._roots_in_it = tuple(root for root in roots if root.startswith(self._state_dir))
        names = ("REQUESTS_CA_BUNDLE", "SSL_CERT_FILE")
        files = [str(Path(os.environ[name]).resolve()) for name in names if name in os.environ]
        self._files = (*roots, *files, *_FOLDERS)

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in ("socket.connect", "socket.sendto", "socket.sendmsg"):
            address = arguments[1]
            if address is None:  # a connected socket: its address was judged at connect
                return
            if not isinstance(address, tuple):
                self._refuse("it may use no socket of this machine")
            host = str(address[0])
            if host not in self._peers and (why := self._guard.reason(host)):
                self._refuse(why)
        elif event in _PROGRAMS:
            self._refuse("it may start no program")
        elif event == "open" and isinstance(arguments[0], str | bytes):
            path, mode, flags = str(Path(os.fsdecode(arguments[0])).resolve()), *arguments[1:3]
            if isinstance(mode, str):
                writes = any(letter in mode for letter in "wax+")
            else:
                writes = bool(isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR))
            is_state = path.startswith(self._state_dir) and not path.startswith(self._roots_in_it)
            if writes or is_state or not path.startswith(self._files):
                self._refuse("its address may name no file of this machine")

    def _refuse(self, why: str) -> None:
        self.reasons.append(why)
        raise PermissionError(why)


class _LogTexts(logging.Handler):
    """Collects apprise's log messages: `notify` itself returns only True or False."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.levelno >= logging.WARNING or text.startswith("Socket Exception"):
            self.texts.append(text)


def perform(order: Mapping[str, Any]) -> dict[str, Any]:
    """The outcome of one order; never raises."""
    log_texts = _LogTexts()
    logger = logging.getLogger("apprise")
    logger.addHandler(log_texts)
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    proxy = urlsplit(order["proxy"]).hostname if order["proxy"] else None
    try:
        entries = socket.getaddrinfo(proxy, None, type=socket.SOCK_STREAM) if proxy else ()
    except OSError as error:
        return _failure(f"the proxy's name cannot be resolved: {error}")
    proxy_addresses = frozenset(str(entry[4][0]) for entry in entries)
    refusals = Refusals(AddressGuard(order["allow"]), proxy_addresses, order["state_dir"])
    sys.addaudithook(refusals)
    url = str(order["url"])
    try:
        outcome = _ACTIONS[order["action"]](order)
    except Exception as error:  # noqa: BLE001 - whatever a service's code raises is an outcome
        outcome = _failure(f"{error}" or type(error).__name__, getattr(error, "is_final", False))
    if not outcome["ok"]:
        from msgplatform.company.alerting.robots import own_form

        why = refusals.reasons[-1:] or ([outcome["error"]] if outcome["error"] else log_texts.texts)
        text = " ".join(why) or "the service refused it"
        outcome["error"] = without_secrets(text, own_form(url))[:500]
    return outcome


def _failure(error: str, is_final: bool = False) -> dict[str, Any]:
    return {"ok": False, "error": error, "is_final": is_final}


# -- actions -------------------------------------------------------------------------------------
def check(order: Mapping[str, Any]) -> dict[str, Any]:
    """Check whether messages can be sent to the address. Sends nothing."""
    from apprise.manager_plugins import NotificationManager

    from msgplatform.company.alerting.robots import ROBOTS, own_form

    url = own_form(order["url"])
    scheme = url.partition("://")[0].lower()
    plugin = None if scheme in LOCAL_SCHEMES else open_channel(url)
    if plugin is not None:
        # The address may also have the service's own form, such as a Slack webhook.
        has_host = any("{host}" in form for form in plugin.templates)
        host = str(getattr(plugin, "smtp_host", "") or plugin.host or "") if has_host else ""
        return {"ok": True, "error": "", "service": str(plugin.service_name),
                "place": f"{plugin.schema}://{host or '…'}"}  # fmt: skip
    services: Any = NotificationManager()
    services.load_modules()
    if scheme in LOCAL_SCHEMES or "://" not in url or scheme not in services:
        return {**_failure("unknown"), "problem": "scheme", "scheme": scheme[:20]}
    service = ROBOTS.get(scheme) or services[scheme]
    forms = [form.replace("{schema}", scheme) for form in service.templates[:3]]
    if scheme in ROBOTS:
        forms = [ROBOTS[scheme].example]
    name = str(service.service_name)
    return {**_failure("incomplete"), "problem": "form", "service": name, "forms": forms}


def open_channel(url: str) -> Any:
    """The service of an address, ready to send; None if the address is not complete."""
    import apprise
    from apprise.exception import AppriseImproperlyConfigured
    from apprise.plugins.custom_json import NotifyJSON

    from msgplatform.company.alerting.robots import ROBOTS, own_form

    url = own_form(url)
    asset = apprise.AppriseAsset(
        app_id="msgplatform", app_desc="msgplatform", app_url="", image_url_mask="",
        image_url_logo="", http_redirects=False,
    )  # fmt: skip
    # To find any other service apprise loads all of them, which takes longer than the rest.
    services: dict[str, Any] = {**ROBOTS, "json": NotifyJSON, "jsons": NotifyJSON}
    robot = services.get(url.partition("://")[0].lower())
    if robot is None:
        plugin = apprise.Apprise.instantiate(url, asset=asset)
    else:
        parts = robot.parse_url(url)
        try:
            plugin = robot(**parts, asset=asset) if parts else None
        except (TypeError, AppriseImproperlyConfigured):
            plugin = None
    if plugin is not None:
        # No address can allow redirects, or leave certificates unchecked.
        plugin.redirects, plugin.verify_certificate = False, True
    return plugin


def send(order: Mapping[str, Any]) -> dict[str, Any]:
    """Send one message: `title`, `blocks` and `tail`, each as text and as Markdown. A service that
    keeps incidents gets each alert of the message by itself: the end closes what it opened."""
    from apprise import NotifyFormat

    plugin = open_channel(order["url"])
    if plugin is None:
        return _failure("the address is not complete", is_final=True)
    # The key's argument for PagerDuty and most others, for Splunk On-Call, for Opsgenie. By "map"
    # an end closes the incident of its key, and all else opens or updates it.
    names = [name for name in ("dedup", "entity_id", "alias") if name in plugin.template_args]
    has_map = "map" in plugin.template_args.get("action", {}).get("values", ())
    if names and has_map and "key" in order["blocks"][0]:
        start = f"{order['url']}{'&' if '?' in order['url'] else '?'}action=map&{names[0]}="
        orders = [
            {**order, **block, "url": start + block.pop("key"), "blocks": [block]}
            for block in order["blocks"]
        ]
        with ThreadPoolExecutor(8) as pool:
            outcomes = list(pool.map(send, orders))
        return min(outcomes, key=lambda outcome: bool(outcome["ok"]))
    is_markdown = plugin.resolve_format(NotifyFormat.MARKDOWN) == NotifyFormat.MARKDOWN
    title = order["title"]
    limit = min(plugin.body_maxlen or MAX_BYTES, MAX_BYTES) - _FRAME_BYTES - len(title.encode())
    if plugin.schema == "wecombot" and not is_markdown:
        limit -= plugin.body_maxlen - _WECOM_TEXT_BYTES
    name = "markdown" if is_markdown else "text"
    blocks = [block[name] for block in order["blocks"]]
    body = compose(blocks, order["more"], order["tail"][name], max(limit, 100))
    is_taken = plugin.notify(
        body=body,
        title=title,
        notify_type=order["severity"],
        body_format=NotifyFormat.MARKDOWN if is_markdown else NotifyFormat.TEXT,
    )
    return {"ok": bool(is_taken), "error": "", "is_final": False}


def call(order: Mapping[str, Any]) -> dict[str, Any]:
    """Call the address of a heartbeat (a dead man's switch)."""
    import requests

    # Only the status counts: a body may be of any size.
    with requests.get(order["url"], timeout=10, allow_redirects=False, stream=True) as answer:
        is_taken = 200 <= answer.status_code < 300
        return {"ok": is_taken, "error": "" if is_taken else f"HTTP {answer.status_code}",
                "is_final": False}  # fmt: skip


_ACTIONS = {"check": check, "send": send, "call": call}


def compose(blocks: Sequence[str], more: str, tail: str, limit: int) -> str:
    """As many whole blocks as fit into `limit` bytes, then the number of the other blocks, then the
    tail. A first block that is too long by itself is cut."""

    def ending(number: int) -> str:
        """The text after the first `number` blocks."""
        others = len(blocks) - number
        note = more.replace("{count}", str(others)) if others else ""
        return "".join(f"\n\n{part}" for part in (note, tail) if part)

    # A block without text is an alert that is only counted.
    for number in range(sum(map(bool, blocks)), 0, -1):
        body = "\n\n".join(blocks[:number]) + ending(number)
        if len(body.encode()) <= limit:
            return body
    room = max(limit - len(ending(1).encode()) - 4, 40)
    first = blocks[0] if blocks else ""
    return first.encode()[:room].decode(errors="ignore") + " …" + ending(1)


def without_secrets(text: str, url: str) -> str:
    """The text without any part of the address but its scheme and host."""
    # urllib3's messages quote the whole path.
    text = re.sub(r"HTTPS?ConnectionPool\(.*?\): Max retries exceeded with url: \S+ ", "", text)
    text = re.sub(r"\(Caused by \w+\(['\"]?(?:\w+\(host=.*?\): )?(.*?)['\"]?\)\)", r"\1", text)
    parts = urlsplit(url)
    hosts = {parts.hostname, *parse_qs(parts.query).get("smtp", ())}
    pieces = re.split(r"[/?&=@:;,]+", f"{parts.netloc}/{parts.path}/{parts.query}")
    for piece in sorted({*pieces, *map(unquote, pieces)}, key=len, reverse=True):
        if len(piece) >= 4 and piece.lower() not in hosts:
            text = text.replace(piece, "…")
    return text


if __name__ == "__main__":
    order = json.load(sys.stdin)
    signal.alarm(int(order["seconds"]))
    json.dump(perform(order), sys.stdout)
