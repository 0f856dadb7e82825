"""A command that the console shows does what it says, whatever is in the message."""

import json
import subprocess

from msgplatform.core.flows.page import Call

NASTY = """it's "quoted" $HOME `id` \\ @/etc/passwd
你好; rm -rf /"""


def test_a_shell_reads_what_was_meant() -> None:
    body = "@" + json.dumps({"text": NASTY}, ensure_ascii=False)
    call = Call("Once more", "/api/v1/sms", {"X-A": NASTY.partition("\n")[0]}, body)
    line = call.command("https://example.com")
    # printf stands for curl, and shows what the shell hands over.
    run = f"curl() {{ printf '%s\\0' \"$@\"; }}\n{line}"
    words = subprocess.run(["sh", "-c", run], capture_output=True, check=True).stdout
    assert words.decode().split("\0")[:-1] == [
        "-X", "POST", "https://example.com/api/v1/sms", "-H",
        f"X-A: {NASTY.partition(chr(10))[0]}", "--data-raw", body,
    ]  # fmt: skip


def test_another_address_stays_as_it_is() -> None:
    line = Call("Once more", "https://other.example/x", {}, "").command("https://example.com")
    assert line == "curl -X POST https://other.example/x"
