"""Chat robots of the world, as their documents describe them: DingTalk, WeCom, Feishu, Slack; and
PagerDuty.

They stand behind a proxy that leads every name to them, over TLS with a certificate of their own
authority: a platform with that proxy and that authority calls the real addresses. Each robot
refuses what its document refuses, with HTTP 200 and its own error.

- DingTalk: "Custom robot access" (open.dingtalk.com/document/robots/custom-robot-access)
- WeCom: "Group robot" (developer.work.weixin.qq.com/document/path/91770)
- Feishu: "Custom bot usage guide" (open.feishu.cn/document/client-docs/bot-v3/add-custom-bot)
- Slack: "Sending messages using incoming webhooks" (docs.slack.dev)
- PagerDuty: "Events API v2 Overview" (developer.pagerduty.com)
"""

import base64
import hashlib
import hmac
import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingTCPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import time_machine
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

DINGTALK, WECOM = "oapi.dingtalk.com", "qyapi.weixin.qq.com"
FEISHU, SLACK = "open.feishu.cn", "hooks.slack.com"
PAGERDUTY = "events.pagerduty.com"
PLAIN = "sink.example"  # takes everything
HOSTS = (DINGTALK, WECOM, FEISHU, SLACK, PAGERDUTY, PLAIN)
TOKEN, SECRET = "a1b2c3d4e5f60718", "SECfeedc0ffee0123456789"
SLACK_PATH = "/services/T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ"
_HOUR_MS = 3_600_000


def real_time() -> float:
    """The time of the process that calls: a test may have set the clock of this one."""
    hatch = time_machine.escape_hatch
    return hatch.time.time() if hatch.is_travelling() else time.time()


@dataclass(frozen=True)
class Call:
    """A request that a robot has got."""

    host: str
    method: str
    path: str
    query: Mapping[str, str]
    body: Any  # JSON, or text


@dataclass
class Robots:
    """`proxy` is the setting OUTBOUND_PROXY, `ca_file` OUTBOUND_CA_FILE. A host's mode is "refuses"
    (HTTP 200 with an error), "cuts" (its error ends with half an emoji), "hangs", "dies", "breaks"
    (HTTP 500) or "floods" (a body without end)."""

    proxy: str
    ca_file: Path
    calls: list[Call] = field(default_factory=list)
    modes: dict[str, str] = field(default_factory=dict)
    signs_feishu: bool = True
    released: threading.Event = field(default_factory=threading.Event)

    def of(self, host: str) -> list[Call]:
        return [call for call in self.calls if call.host == host]

    def answer(self, call: Call) -> tuple[int, str]:
        mode = self.modes.get(call.host, "")  # a test that sees the call may change the mode
        self.calls.append(call)
        if mode == "hangs":
            self.released.wait(120)
        if mode == "breaks":
            return 500, "Internal Server Error"
        answers = {DINGTALK: _dingtalk, WECOM: _wecom, SLACK: _slack, PAGERDUTY: _pagerduty}
        if call.host == PLAIN:
            return 200, "ok"
        if mode == "refuses":
            return 200, json.dumps(
                {"errcode": 130101, "errmsg": "send too fast", "code": 9499, "msg": "Bad Request"}
            )
        if mode == "cuts":
            text = "send too fast \ud83d"
            return 200, json.dumps({"errcode": 130101, "errmsg": text, "code": 9499, "msg": text})
        if call.host == FEISHU:
            return 200, json.dumps(_feishu(call, self.signs_feishu))
        answer = answers[call.host](call)
        return answer if isinstance(answer, tuple) else (200, json.dumps(answer))


def _dingtalk(call: Call) -> dict[str, Any]:
    if call.path != "/robot/send" or call.query.get("access_token") != TOKEN:
        return {"errcode": 300005, "errmsg": "token is not exist"}
    timestamp = call.query.get("timestamp", "0")
    text = f"{timestamp}\n{SECRET}".encode()
    sign = base64.b64encode(hmac.new(SECRET.encode(), text, hashlib.sha256).digest()).decode()
    if abs(int(timestamp) - real_time() * 1000) > _HOUR_MS or call.query.get("sign") != sign:
        return {"errcode": 310000, "errmsg": "sign not match"}
    kind = call.body.get("msgtype")
    content = call.body.get(kind)
    needed = {"text": ["content"], "markdown": ["title", "text"]}.get(kind)
    if needed is None or not all(content.get(name) for name in needed):
        return {"errcode": 400902, "errmsg": "param error"}
    if len(json.dumps(call.body, ensure_ascii=False).encode()) > 20_000:
        return {"errcode": 460101, "errmsg": "message too long"}
    return {"errcode": 0, "errmsg": "ok"}


def _wecom(call: Call) -> dict[str, Any]:
    if call.path != "/cgi-bin/webhook/send" or call.query.get("key") != TOKEN:
        return {"errcode": 93000, "errmsg": "invalid webhook url"}
    kind = call.body.get("msgtype")
    limit = {"text": 2048, "markdown": 4096}.get(kind)
    if limit is None or not call.body[kind].get("content"):
        return {"errcode": 40008, "errmsg": "invalid message type"}
    if len(call.body[kind]["content"].encode()) > limit:
        return {"errcode": 40058, "errmsg": f"{kind}.content exceed max length {limit}"}
    return {"errcode": 0, "errmsg": "ok"}


def _feishu(call: Call, is_signed: bool) -> dict[str, Any]:
    if call.path.rstrip("/") != f"/open-apis/bot/v2/hook/{TOKEN}":
        return {"code": 19001, "msg": "param invalid: incoming webhook access token invalid"}
    if is_signed:
        timestamp = str(call.body.get("timestamp", "0"))
        key = f"{timestamp}\n{SECRET}".encode()
        sign = base64.b64encode(hmac.new(key, b"", hashlib.sha256).digest()).decode()
        if abs(int(timestamp) - real_time()) > 3600 or call.body.get("sign") != sign:
            return {"code": 19021, "msg": "sign match fail or timestamp is not within one hour"}
    kind = call.body.get("msg_type")
    if kind == "text" and not call.body["content"].get("text"):
        return {"code": 9499, "msg": "Bad Request"}
    if kind == "interactive" and not call.body["card"].get("elements"):
        return {"code": 9499, "msg": "Bad Request"}
    size = len(json.dumps(call.body, ensure_ascii=False).encode())
    if kind not in ("text", "interactive") or size > 20_480:
        return {"code": 9499, "msg": "Bad Request"}
    return {"StatusCode": 0, "StatusMessage": "success", "code": 0, "data": {}, "msg": "success"}


def _slack(call: Call) -> tuple[int, str]:
    if call.path != SLACK_PATH:
        return 403, "invalid_token"
    fields = call.body if isinstance(call.body, dict) else {}
    if not (fields.get("text") or fields.get("blocks") or fields.get("attachments")):
        return 400, "no_text"
    return 200, "ok"


def _pagerduty(call: Call) -> tuple[int, str]:
    is_resolve = call.body["event_action"] == "resolve"
    needed = call.body.get("dedup_key") if is_resolve else call.body["payload"].get("summary")
    if call.path != "/v2/enqueue" or not needed:
        return 400, '{"status": "invalid event"}'
    return 202, '{"status": "success"}'


@contextmanager
def running(folder: Path) -> Iterator[Robots]:
    """The robots and the proxy in front of them, until the end of the block."""
    certificate, ca_file = _certificate(folder)
    robots = Robots("", ca_file)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(robots))
    server.daemon_threads = True
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    proxy = ThreadingTCPServer(("127.0.0.1", 0), _proxy(server.server_address[1], context))
    proxy.daemon_threads = True
    robots.proxy = f"http://127.0.0.1:{proxy.server_address[1]}"
    for each in (server, proxy):
        threading.Thread(target=each.serve_forever, daemon=True).start()
    try:
        yield robots
    finally:
        robots.released.set()
        for each in (proxy, server):
            each.shutdown()
            each.server_close()


def _handler(robots: Robots) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            text = self.rfile.read(length).decode()
            parts = urlsplit(self.path)
            try:
                body = json.loads(text)
            except ValueError:
                body = text
            query = {name: values[0] for name, values in parse_qs(parts.query).items()}
            host = str(self.headers["Host"]).partition(":")[0]
            call = Call(host, self.command, parts.path, query, body)
            if robots.modes.get(host) == "dies":
                robots.calls.append(call)
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            status, answer = robots.answer(call)
            with suppress(OSError):  # whoever asked may be gone
                self.send_response(status)
                if robots.modes.get(host) == "floods":
                    self.end_headers()
                    while True:
                        self.wfile.write(bytes(65_536))
                self.send_header("Content-Length", str(len(answer.encode())))
                self.end_headers()
                self.wfile.write(answer.encode())

        do_GET = do_POST = _answer  # noqa: N815 - the names that the base class looks for

        def log_message(self, *_: Any) -> None: ...

    return Handler


def _proxy(port: int, context: ssl.SSLContext) -> type[BaseRequestHandler]:
    """A forward proxy (RFC 9110, §9.3.6) that speaks TLS in the place of every host."""

    class Proxy(BaseRequestHandler):
        def handle(self) -> None:
            head = b""
            while b"\r\n\r\n" not in head:
                piece = self.request.recv(4096)
                if not piece:
                    return
                head += piece
            if not head.startswith(b"CONNECT "):
                self.request.sendall(b"HTTP/1.1 405 Method Not Allowed\r\n\r\n")
                return
            self.request.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            with (
                suppress(OSError),
                socket.create_connection(("127.0.0.1", port)) as inner,
                context.wrap_socket(self.request, server_side=True) as outer,
            ):
                threading.Thread(target=_pipe, args=(inner, outer), daemon=True).start()
                _pipe(outer, inner)

    return Proxy


def _pipe(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while piece := source.recv(65536):
            target.sendall(piece)
    with suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)


def _certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate of all hosts with its key, and the same certificate alone, to be trusted."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "robots")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=30))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(h) for h in HOSTS]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
        .sign(key, hashes.SHA256())
    )
    both, alone = folder / "robots.pem", folder / "robots-ca.pem"
    alone.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )  # fmt: skip
    both.write_bytes(alone.read_bytes() + private)
    return both, alone
