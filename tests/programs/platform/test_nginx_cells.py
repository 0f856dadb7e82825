"""deploy/nginx/cells.conf beside msgplatform.conf: each request goes to the cell of its name."""

import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cells_proxy import CONSOLE_HOST, HOST, SHIPPED, CellsProxy, shipped_console

MOVED = "mp_4k2j4h5g6f7d"
LONGEST = "a" * 64


class _Cell(http.server.BaseHTTPRequestHandler):
    """A web server that answers with its name and the address that it was asked for."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        name = self.server.name  # type: ignore[attr-defined]
        body = f"{name} {self.path}".encode()
        self.send_response(404 if f"not-in-{name}" in self.path else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        self.do_GET()

    def log_message(self, format: str, *args: object) -> None:
        """No line for a request."""


def started(name: str) -> http.server.ThreadingHTTPServer:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Cell)
    server.name = name  # type: ignore[attr-defined]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CellsProxy]:
    servers = [started(name) for name in ("zero", "three", "five")]
    ports = {n: each.server_address[1] for n, each in zip((0, 3, 5), servers, strict=True)}
    proxy = CellsProxy(tmp_path_factory.mktemp("nginx"), ports)
    cells = {MOVED: "03", "summer-ads": "05", LONGEST: "05", "mp_03" + "m" * 12: "moving"}
    proxy.set_exceptions(cells)
    proxy.start()
    yield proxy
    proxy.stop()
    for server in servers:
        server.shutdown()


def key(prefix: str) -> dict[str, str]:
    return {"Authorization": f"Bearer mp_{prefix}_{'s' * 43}"}


@pytest.mark.parametrize(
    ("path", "headers", "cell"),
    [
        ("/api/v1/messages", key("00abcdefghijkl"), "zero"),
        ("/api/v1/messages", key("03abcdefghijkl"), "three"),
        ("/api/v1/messages", key("05abcdefghijkl"), "five"),
        ("/api/v1/messages?x=1", key("05abcdefghijkl"), "five"),
        ("/api/v1/messages", {"Authorization": f"bearer  mp_05{'a' * 12}_{'s' * 43}"}, "five"),
        # Made before there were cells: no two digits, even if it looks so.
        ("/api/v1/messages", key("05abcdefghij"), "zero"),
        ("/api/v1/messages", key(MOVED.removeprefix("mp_")), "three"),
        # A cell that does not exist, and what is no key.
        ("/api/v1/messages", key("0fabcdefghijkl"), "zero"),
        ("/api/v1/messages", {"Authorization": "Basic bXBfMDNhYmM6"}, "zero"),
        ("/api/v1/messages", {"Authorization": "Bearer mp_05"}, "zero"),
        ("/api/v1/messages", {}, "zero"),
        ("/l/03-5f1c0a9be2d34786", {}, "three"),
        ("/l/05-ads/thanks", {}, "five"),
        ("/l/summer-ads", {}, "five"),
        (f"/l/{LONGEST}", {}, "five"),
        ("/l/spring-ads", {}, "zero"),
        ("/api/v1/leads?appkey=05-ads", {}, "five"),
        ("/api/v1/leads?x=1&appkey=03-ads", {}, "three"),
        # The key goes before the address: nobody sends a system's request elsewhere.
        ("/api/v1/leads?appkey=05-ads", key("03abcdefghijkl"), "three"),
        ("/rpc/mp_03abcdefghijkl/", {}, "three"),
        (f"/rpc/{MOVED}/", {}, "three"),
        ("/rpc/", {}, "zero"),
        ("/console/", {}, "zero"),
    ],
)
def test_each_request_goes_to_its_cell(
    proxy: CellsProxy, path: str, headers: dict[str, str], cell: str
) -> None:
    status, body, _headers = proxy.ask("POST", path, headers, b"{}")
    assert (status, body.decode()) == (200, f"{cell} {path}")


def test_a_console_has_a_name_of_its_own(proxy: CellsProxy) -> None:
    """Whatever its requests name."""
    for headers in ({}, key("03abcdefghijkl")):
        status, body, _headers = proxy.ask("GET", "/x", {"Host": CONSOLE_HOST, **headers})
        assert (status, body) == (200, b"five /x")


def test_a_console_is_guarded_as_the_api_is() -> None:
    """A server takes no line of another one, so cells.conf repeats those of msgplatform.conf."""
    platform = (SHIPPED / "msgplatform.conf").read_text().partition("\nserver {")[2]
    of_cell = {
        HOST: CONSOLE_HOST,
        "ssl/msgplatform": "ssl/cell-1",
        "//msgplatform;": "//msgplatform_01;",
    }
    for name, other in of_cell.items():
        platform = platform.replace(name, other)
    lines = [line for line in platform.splitlines() if line.strip() and "# " not in line]
    assert lines == shipped_console().splitlines()[1:]


def test_a_system_that_moves_is_told_to_repeat(proxy: CellsProxy) -> None:
    status, body, headers = proxy.ask("POST", "/api/v1/messages", key("03" + "m" * 12), b"{}")
    assert (status, headers["Retry-After"]) == (503, "5")
    assert headers["Content-Type"] == "application/problem+json"
    assert b"This business system moves. Repeat the request" in body


def test_a_move_is_a_line_and_a_reload(proxy: CellsProxy) -> None:
    mover = key("03" + "v" * 12)
    assert proxy.ask("GET", "/x", mover)[1] == b"three /x"
    proxy.set_exceptions({"mp_03" + "v" * 12: "05"})
    proxy.reload()
    assert proxy.ask("GET", "/x", mover)[1] == b"five /x"
    assert proxy.ask("GET", "/x", key("03abcdefghijkl"))[1] == b"three /x"


def test_a_style_sheet_comes_from_the_web_server_that_has_it(tmp_path: Path) -> None:
    """During an update web servers of two releases answer."""
    servers = [started(name) for name in ("old", "new")]
    old, new = (server.server_address[1] for server in servers)
    proxy = CellsProxy(tmp_path, {0: old}, has_map=False)
    file = tmp_path / "msgplatform.conf.d"
    upstream = f"server 127.0.0.1:{old};"
    file.write_text(file.read_text().replace(upstream, f"{upstream} server 127.0.0.1:{new};"))
    proxy.start()
    try:
        answers = [proxy.ask("GET", "/static/not-in-old.css", {})[:2] for _ in range(4)]
        assert set(answers) == {(200, b"new /static/not-in-old.css")}
        answers = [proxy.ask("GET", "/static/new.css", {})[:2] for _ in range(4)]
        assert set(answers) == {(200, b"old /static/new.css"), (200, b"new /static/new.css")}
    finally:
        proxy.stop()
        for server in servers:
            server.shutdown()
