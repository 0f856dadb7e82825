"""The OpenID provider of npm as a process (`oidc_provider.mjs`)."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgplatform.core.servers.private_server import free_port

SCRIPT = Path(__file__).with_name("oidc_provider.mjs")
MODULES = Path(sys.prefix) / "npm" / "node_modules"
CLIENT, SECRET = "platform", "a secret of the client, long enough"


@contextmanager
def npm_provider(console_url: str, log: Path) -> Iterator[str]:
    """Run it for the console at this address; yields the issuer."""
    port = free_port()
    pages = f"{console_url}/console/sign-in/company"
    client = {
        "client_id": CLIENT, "client_secret": SECRET, "redirect_uris": [f"{pages}/callback"],
        "post_logout_redirect_uris": [f"{pages}/signed-out"],
        "backchannel_logout_uri": f"{pages}/backchannel-logout",
        "token_endpoint_auth_method": "client_secret_post",
    }  # fmt: skip
    command = ["node", str(SCRIPT), str(MODULES), str(port), json.dumps(client)]
    with (
        log.open("wb") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        try:
            assert process.stdout
            line = process.stdout.readline()
            assert line == "ready\n", log.read_text()[-3000:]
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()
