"""The demo's simulated operator, as a process."""

from pathlib import Path

from demo.sms.plan import OPERATORS
from demo.sms.smg import SmgProcess
from msgplatform.core.servers.private_server import free_port
from tests.support.sms_net_support import Raw, until

PIPE = 65_536  # bytes that a pipe of Linux holds


def test_it_prints_more_than_a_pipe_holds(tmp_path: Path) -> None:
    """It would stand still, with all its connections, if nobody read on."""
    operator = OPERATORS[0]
    output = tmp_path / f"smg-{operator.name}.out"
    with SmgProcess(operator, tmp_path, ("127.0.0.1", free_port())) as smg:
        # Each of these lines is no MO, and is answered with one of fifty characters.
        smg.deliver([("nobody", "", "")] * 4000)
        until(lambda: output.stat().st_size > 2 * PIPE)
        with Raw(smg.port) as raw:
            assert raw.bind("sp", "secret", kind=1) == 0
    printed = output.read_text(encoding="utf-8")
    assert printed.count("an MO is user:sp:text, with digits for user and sp\n") > 2 * PIPE / 60
