"""nginx with the shipped msgplatform.conf and cells.conf, on private ports and without TLS."""

import http.client
import re
import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from msgplatform import env
from msgplatform.core.servers.private_server import free_port

SHIPPED = env.BASE_DIR / "deploy" / "nginx"
HOST, CONSOLE_HOST = "messages.example.com", "cell-1.example.com"
_SECONDS = 60.0
_NGINX = """
daemon off; pid {folder}/pid; error_log {folder}/errors warn; worker_processes 1;
{user}
events {{ worker_connections 4096; }}
http {{
  access_log off;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  include {folder}/*.conf.d;
}}
"""
# What the head of cells.conf tells to change in msgplatform.conf.
_OWN_UPSTREAM = re.compile(r"^upstream msgplatform \{.*?^\}\n", re.MULTILINE | re.DOTALL)


class CellsProxy:
    """`ports` maps the numbers of cells to the ports of their web servers; with `has_map` off, all
    requests go to the first of them, by msgplatform.conf alone. CONSOLE_HOST is the last one's."""

    def __init__(self, folder: Path, ports: Mapping[int, int], has_map: bool = True) -> None:
        self.folder, self.port = folder, free_port()
        self._process: subprocess.Popen[bytes] | None = None
        (folder / "msgplatform").mkdir()
        platform = self._without_tls((SHIPPED / "msgplatform.conf").read_text())
        if has_map:
            platform, count = _OWN_UPSTREAM.subn("", platform)
            assert count == 1
            platform = _replaced(platform, "http://msgplatform;", "http://$msgplatform_upstream;")
            (folder / "cells.conf.d").write_text(self._cells(ports))
            shutil.copy(SHIPPED / "exceptions.map", folder / "msgplatform")
        else:
            platform = _replaced(platform, "127.0.0.1:8000", f"127.0.0.1:{min(ports.values())}")
        (folder / "msgplatform.conf.d").write_text(platform)
        user = "user root;" if Path.home() == Path("/root") else ""
        (folder / "nginx.conf").write_text(_NGINX.format(folder=folder, user=user))

    def _without_tls(self, text: str) -> str:
        text = _replaced(text, r"    listen \[::\]:[^\n]*\n", "")
        text = _replaced(text, r"listen 443 ssl http2;", f"listen 127.0.0.1:{self.port};")
        text = _replaced(text, r"listen 80;", f"listen 127.0.0.1:{free_port()};")
        text = _replaced(text, r"    ssl_[^\n]*\n", "")
        return _replaced(text, r"_connections 100;", "_connections 10000;")

    def _cells(self, ports: Mapping[int, int]) -> str:
        console = self._without_tls(shipped_console())
        console = _replaced(console, "//msgplatform_01;", f"//msgplatform_{max(ports):02x};")
        text = (SHIPPED / "cells.conf").read_text()
        text = _replaced(text, r"127\.0\.0\.1:8099;", f"127.0.0.1:{free_port()};")
        text = _replaced(text, r"    01 msgplatform_01;\n", "".join(
            f"    {number:02x} msgplatform_{number:02x};\n" for number in ports if number
        ))  # fmt: skip
        text = _replaced(text, r"upstream msgplatform_0. \{.*?^\}\n", "")
        return (
            text
            + console
            + "".join(
                f"upstream msgplatform_{number:02x} {{ server 127.0.0.1:{port}; keepalive 64; }}\n"
                for number, port in ports.items()
            )
        )

    def set_exceptions(self, cells: Mapping[str, str]) -> None:
        """Write exceptions.map; a proxy that runs needs a `reload`."""
        text = "".join(f"{name} {cell};\n" for name, cell in cells.items())
        (self.folder / "msgplatform" / "exceptions.map").write_text(text)

    def start(self) -> None:
        tested = subprocess.run([*self._command, "-t"], capture_output=True, text=True, check=False)
        assert tested.returncode == 0, tested.stderr
        self._process = subprocess.Popen(self._command)
        deadline = time.monotonic() + _SECONDS
        while not self._listens():
            assert self._process.poll() is None, "nginx has ended; see its standard error above"
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def reload(self) -> None:
        """Returns when no worker with the configuration before is left."""
        before = set(self.workers())
        subprocess.run([*self._command, "-s", "reload"], check=True)
        deadline = time.monotonic() + _SECONDS
        while not (now := set(self.workers())) or now & before:
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def workers(self) -> list[int]:
        """The processes that serve."""
        assert self._process
        path = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        return [int(pid) for pid in path.read_text().split()]

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(_SECONDS)

    def ask(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes | None = None
    ) -> tuple[int, bytes, Mapping[str, str]]:
        """Status, body and headers of the answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_SECONDS)
        try:
            connection.request(method, path, body, {"Host": HOST, **headers})
            response = connection.getresponse()
            return response.status, response.read(), dict(response.getheaders())
        finally:
            connection.close()

    def _listens(self) -> bool:
        try:
            self.ask("GET", "/", {})
        except OSError:
            return False
        return True

    @property
    def _command(self) -> list[str]:
        program = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin")
        assert program, "nginx is not installed: scripts/packages.sh"
        return [program, "-p", str(self.folder), "-c", str(self.folder / "nginx.conf")]


def shipped_console() -> str:
    """The servers of a console in cells.conf, where they are commented out."""
    _head, comment, block = (SHIPPED / "cells.conf").read_text().partition("# server {\n")
    return "".join(line.removeprefix("# ") for line in (comment + block).splitlines(keepends=True))


def _replaced(text: str, pattern: str, value: str) -> str:
    changed, count = re.subn(pattern, lambda _match: value, text, flags=re.MULTILINE | re.DOTALL)
    assert count, f"{pattern} is not in the shipped file"
    return changed
