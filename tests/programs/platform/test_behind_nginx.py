"""The configuration of deploy/nginx in front of the web server, under attack.

Attackers and honest callers have addresses of their own in 127.0.0.0/8. The tested file is the
shipped one; only its ports and certificate are others, a hundred connections are less, and ten
seconds are more: the machine may be busy.
"""

import contextlib
import gzip
import io
import json
import re
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pycurl
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from msgplatform import env
from msgplatform.core.servers.private_server import free_port
from msgplatform.doors.api.access import keys
from msgplatform.models import Biz
from tests.support.api_server import Server

pytestmark = pytest.mark.django_db(transaction=True)
SHIPPED = env.BASE_DIR / "deploy/nginx/msgplatform.conf"
NAME = "messages.example.com"
MESSAGES = "/api/v1/messages"
HONEST, ATTACKER = "127.0.0.2", "127.0.0.9"
SHIPPED_PATIENCE, PATIENCE = "10s", "180s"
CONNECTIONS = 40  # instead of 100
SOON = 180.0
_HTTP = """
daemon off; pid {folder}/pid; error_log stderr warn; worker_processes 1; worker_rlimit_nofile 8192;
{user}
events {{ worker_connections 4096; }}
http {{
  access_log off;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  set_real_ip_from ::1; real_ip_header X-Test-Address;
  include {folder}/platform.conf;
}}
"""


class Nginx:
    def __init__(self, folder: Path, upstream: int, patience: str = PATIENCE) -> None:
        self.upstream = upstream
        self.plain, self.port = free_port(), free_port()
        _certificate(folder)
        text = SHIPPED.read_text()
        for pattern, value in (
            (r"127\.0\.0\.1:8000", f"127.0.0.1:{upstream}"),
            (r"listen 80;", f"listen 127.0.0.1:{self.plain};"),
            (r"listen 443", f"listen 127.0.0.1:{self.port}"),
            (r"listen \[::\]:80;", f"listen [::1]:{self.plain};"),
            (r"listen \[::\]:443", f"listen [::1]:{self.port}"),
            (r"/etc/ssl/msgplatform", str(folder)),
            (rf"\b{SHIPPED_PATIENCE}\b", patience),
            (r"_connections 100;", f"_connections {CONNECTIONS};"),
        ):
            text, count = re.subn(pattern, value, text)
            assert count, f"{pattern} is not in {SHIPPED}"
        (folder / "platform.conf").write_text(text)
        user = "user root;" if Path.home() == Path("/root") else ""
        (folder / "nginx.conf").write_text(_HTTP.format(folder=folder, user=user))
        program = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin")
        assert program, "nginx is not installed: scripts/packages.sh"
        command = [program, "-p", str(folder), "-c", str(folder / "nginx.conf")]
        checked = subprocess.run([*command, "-t"], capture_output=True, text=True, check=False)
        assert checked.returncode == 0, checked.stderr
        self.process = subprocess.Popen(command)
        deadline = time.monotonic() + SOON
        while True:
            with contextlib.suppress(OSError), self.connect(HONEST):
                return
            assert self.process.poll() is None, "nginx has ended; see its standard error above"
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def connect(self, address: str) -> ssl.SSLSocket:
        place = "::1" if ":" in address else "127.0.0.1"
        plain = socket.create_connection((place, self.port), SOON, (address, 0))
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context.wrap_socket(plain, server_hostname=NAME)

    def ask(self, address: str, path: str, *options: tuple[int, object]) -> tuple[int, bytes, int]:
        """Status, body, and the version of HTTP that was spoken."""
        curl, body = pycurl.Curl(), io.BytesIO()
        curl.setopt(pycurl.URL, f"https://{NAME}:{self.port}{path}")
        curl.setopt(pycurl.RESOLVE, [f"{NAME}:{self.port}:127.0.0.1"])
        curl.setopt(pycurl.INTERFACE, address)
        curl.setopt(pycurl.SSL_VERIFYPEER, 0)
        curl.setopt(pycurl.SSL_VERIFYHOST, 0)
        curl.setopt(pycurl.TIMEOUT, int(SOON))
        curl.setopt(pycurl.WRITEDATA, body)
        for option, value in options:
            curl.setopt(option, value)
        curl.perform()
        return (
            curl.getinfo(pycurl.RESPONSE_CODE),
            body.getvalue(),
            curl.getinfo(pycurl.INFO_HTTP_VERSION),
        )

    def publish(self, address: str, key: str, *headers: str) -> int:
        body = json.dumps({"event_type": "a", "payload": 1})
        about = [f"Authorization: Bearer {key}", "Content-Type: application/json", *headers]
        post = ((pycurl.POSTFIELDS, body), (pycurl.HTTPHEADER, about))
        return self.ask(address, MESSAGES, *post)[0]

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(SOON)


def _certificate(folder: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, NAME)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    (folder / "fullchain.pem").write_bytes(certificate.public_bytes(pem))
    private = key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "privkey.pem").write_bytes(private)


@pytest.fixture(scope="module")
def nginx(tmp_path_factory: pytest.TempPathFactory, django_db_setup: None) -> Iterator[Nginx]:
    folder = tmp_path_factory.mktemp("nginx")
    environment = {
        "PUBLIC_URL": f"https://{NAME}",
        "ALLOWED_HOSTS": f"{NAME},127.0.0.1",
        "TRUST_X_FORWARDED_PROTO": "yes",
        "API_NUM_PROXIES": "1",
        "METRICS_TOKEN": "for-prometheus",
        "API_RATE_FAILED": "60/hour",  # not a minute: it may be over before so many were sent
    }
    server = Server(folder / "log", environment=environment)
    try:
        proxy = Nginx(folder, server.port)
    except BaseException:
        server.stop()
        raise
    yield proxy
    proxy.stop()
    server.stop()


@pytest.fixture
def key(db: None, work_redis: object) -> str:
    return new_key("orders")


def new_key(name: str) -> str:
    return keys.create(Biz.objects.create(name=name), "test", ["events:write"])[1]


def answers_the_honest(nginx: Nginx, key: str) -> None:
    assert nginx.publish(HONEST, key) == 202
    assert nginx.ask(HONEST, "/healthz")[0] == 200
    assert nginx.ask(HONEST, "/admin/login/")[0] == 200


@pytest.fixture
def hasty(nginx: Nginx, tmp_path: Path) -> Iterator[Nginx]:
    """As long as the shipped file says."""
    proxy = Nginx(tmp_path, nginx.upstream, SHIPPED_PATIENCE)
    yield proxy
    proxy.stop()


def test_what_is_slow_or_silent_holds_nobody_up_and_is_cut_off(hasty: Nginx, key: str) -> None:
    begun = f"POST /rpc/ HTTP/1.1\r\nHost: {NAME}\r\n".encode()
    slow_body = begun + b"Content-Length: 1000\r\n\r\nx"
    with contextlib.ExitStack() as stack:
        sockets = []
        for said in (b"", begun, slow_body) * (CONNECTIONS // 3 - 1):
            # Who is held up for so long may be cut off here already.
            with contextlib.suppress(ConnectionError, ssl.SSLError):
                one = stack.enter_context(hasty.connect(ATTACKER))
                one.sendall(said)
                sockets.append(one)
        answers_the_honest(hasty, key)
        for one in sockets:
            with contextlib.suppress(ConnectionError, ssl.SSLError):
                while one.recv(4096):
                    pass
        answers_the_honest(hasty, key)


def test_connections_of_one_address_are_bounded(nginx: Nginx, key: str) -> None:
    """Those that a request keeps open count: here by a byte now and then."""
    begun = f"POST /rpc/ HTTP/1.1\r\nHost: {NAME}\r\nContent-Length: 9999\r\n\r\n".encode()
    with contextlib.ExitStack() as stack:
        sockets: list[ssl.SSLSocket] = []
        for _ in range(CONNECTIONS + 5):
            sockets.append(stack.enter_context(nginx.connect(ATTACKER)))
            sockets[-1].sendall(begun)
            for one in sockets:
                with contextlib.suppress(ConnectionError, ssl.SSLError):
                    one.sendall(b"x")
        assert nginx.ask(ATTACKER, "/healthz")[0] == 429
        answers_the_honest(nginx, key)


def test_a_flood_of_logins_ends_at_the_proxy(nginx: Nginx, key: str) -> None:
    page = f"GET /admin/login/ HTTP/1.1\r\nHost: {NAME}\r\n\r\n".encode()
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(nginx.connect(ATTACKER)) for _ in range(30)]
        for one in sockets:  # all at once: handshakes on a busy machine would be no flood
            one.sendall(page)
        assert {one.recv(12) for one in sockets} == {b"HTTP/1.1 200", b"HTTP/1.1 429"}
    answers_the_honest(nginx, key)


def test_a_line_of_ipv6_is_one_caller(nginx: Nginx) -> None:
    statuses = []
    for line in ("2001:db8::", "2001:db8:0:{}::"):
        with contextlib.ExitStack() as stack:
            sockets = [stack.enter_context(nginx.connect("::1")) for _ in range(30)]
            for number, one in enumerate(sockets, 1):
                address = f"{line.format(number)}{number}"
                head = f"GET /admin/login/ HTTP/1.1\r\nHost: {NAME}\r\nX-Test-Address: {address}"
                one.sendall(f"{head}\r\n\r\n".encode())
            statuses.append({one.recv(12) for one in sockets})
    assert statuses == [{b"HTTP/1.1 200", b"HTTP/1.1 429"}, {b"HTTP/1.1 200"}]


def test_wrong_keys_count_for_the_caller_whatever_it_says(nginx: Nginx, key: str) -> None:
    lies = ("X-Forwarded-For: 203.0.113.7", "X_Forwarded_For: 203.0.113.8", "X-Real-IP: 1.2.3.4")
    found = [nginx.publish(ATTACKER, f"mp_{'a' * 12}_{'b' * 38}{n:05}", *lies) for n in range(70)]
    assert (found[0], found[-1]) == (401, 429)
    assert nginx.publish(HONEST, new_key("never-seen")) == 202
    answers_the_honest(nginx, key)


def test_http_2_and_plain_http(nginx: Nginx, key: str) -> None:
    two = (pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_2_0)
    assert nginx.ask(HONEST, "/healthz", two) == (200, b"ok\n", pycurl.CURL_HTTP_VERSION_2_0)
    with socket.create_connection(("127.0.0.1", nginx.plain), SOON) as plain:
        plain.sendall(f"GET /console/ HTTP/1.0\r\nHost: {NAME}\r\n\r\n".encode())
        answer = plain.recv(4096).decode()
    assert answer.startswith("HTTP/1.1 301")
    assert f"Location: https://{NAME}/console/" in answer
    with socket.create_connection(("127.0.0.1", nginx.plain), SOON) as plain:
        head = f"POST {MESSAGES} HTTP/1.0\r\nHost: {NAME}\r\nContent-Length: 2\r\n\r\n{{}}"
        plain.sendall(head.encode())
        answer = plain.recv(4096).decode()
    assert answer.startswith("HTTP/1.1 403")
    assert "application/problem+json" in answer


def test_a_body_that_is_too_large_is_refused_before_it_is_sent(nginx: Nginx, key: str) -> None:
    with nginx.connect(ATTACKER) as one:
        length = 18 * 1024 * 1024
        head = f"POST {MESSAGES} HTTP/1.1\r\nHost: {NAME}\r\nContent-Length: {length}\r\n\r\n"
        one.sendall(head.encode())
        assert one.recv(4096).startswith(b"HTTP/1.1 413")
    answers_the_honest(nginx, key)


def test_metrics_ask_for_the_token_behind_the_proxy_too(nginx: Nginx) -> None:
    # 127.0.0.1 may ask at all; what the platform says is told apart from the proxy's answer.
    assert nginx.ask(HONEST, "/metrics")[0] == 403
    assert b"METRICS_TOKEN" in nginx.ask("127.0.0.1", "/metrics")[1]
    token = (pycurl.HTTPHEADER, ["Authorization: Bearer for-prometheus"])
    assert nginx.ask("127.0.0.1", "/metrics", token)[0] == 200


def test_the_session_is_for_https_only(nginx: Nginx) -> None:
    with nginx.connect(HONEST) as one:
        one.sendall(f"GET /admin/login/ HTTP/1.1\r\nHost: {NAME}\r\n\r\n".encode())
        answer = one.recv(16384).decode("latin-1").lower()
    assert re.search(r"set-cookie: csrftoken=.*; secure", answer)
    assert "strict-transport-security: max-age=31536000" in answer
    assert "content-security-policy: " in answer


def test_answers_to_programs_and_pages_are_compressed(nginx: Nginx) -> None:
    accepts = (pycurl.HTTPHEADER, ["Accept-Encoding: gzip"])
    for path, words in (
        ("/api/schema/?format=json", b'"openapi"'),
        ("/admin/login/", b'name="password"'),
    ):
        body = nginx.ask(HONEST, path, accepts)[1]
        assert words in gzip.decompress(body), path
