"""The code that consumers are given verifies what the platform signs, and nothing else.

Each language runs as a program of its own; those that are not installed are left out, Python and
Node never are.
"""

import base64
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from notify.monitor import first_steps
from notify.subscriptions import signing

ROOT = Path(__file__).resolve().parents[2]
FILES = ROOT / "templates" / "notify" / "verify"
BODY = '{"type":"order.paid","data":{"名":"小米"}}'.encode()

# Each calls verify() for every four arguments (id, timestamp, signature, base64 of the body) after
# the secret, and prints 1 or 0 for each.
PYTHON = """
import base64, sys
from verify import verify
given = sys.argv[2:]
for at in range(0, len(given), 4):
    print(int(verify(sys.argv[1], *given[at:at + 3], base64.b64decode(given[at + 3]))))
"""
NODE = """
import { verify } from "./verify.mjs";
const [secret, ...given] = process.argv.slice(2);
for (let at = 0; at < given.length; at += 4) {
  const body = Buffer.from(given[at + 3], "base64");
  console.log(Number(verify(secret, ...given.slice(at, at + 3), body)));
}
"""
JAVA = """
import java.util.Base64;
public class Main {
    public static void main(String[] given) throws Exception {
        for (int at = 1; at < given.length; at += 4)
            System.out.println(Webhook.verify(given[0], given[at], given[at + 1], given[at + 2],
                Base64.getDecoder().decode(given[at + 3])) ? 1 : 0);
    }
}
"""
GO = """
package main

import ("encoding/base64"; "fmt"; "os"; "webhook/webhook")

func main() {
    given := os.Args[2:]
    for at := 0; at < len(given); at += 4 {
        body, _ := base64.StdEncoding.DecodeString(given[at+3])
        if webhook.Verify(os.Args[1], given[at], given[at+1], given[at+2], body) {
            fmt.Println(1)
        } else {
            fmt.Println(0)
        }
    }
}
"""
PHP = """<?php
require 'verify.php';
$given = array_slice($argv, 2);
for ($at = 0; $at < count($given); $at += 4) {
    [$id, $timestamp, $signature, $body] = array_slice($given, $at, 4);
    echo (int) verify($argv[1], $id, $timestamp, $signature, base64_decode($body)), "\\n";
}
"""


def python(folder: Path) -> list[str]:
    (folder / "main.py").write_text(PYTHON)
    return [sys.executable, "main.py"]


def node(folder: Path) -> list[str]:
    (folder / "main.mjs").write_text(NODE)
    return ["node", "main.mjs"]


def go(folder: Path) -> list[str]:
    (folder / "webhook").mkdir()
    (folder / "verify.go").rename(folder / "webhook" / "verify.go")
    (folder / "go.mod").write_text("module webhook\n\ngo 1.19\n")
    (folder / "main.go").write_text(GO)
    subprocess.run(["go", "build", "-o", "verify", "."], cwd=folder, check=True)
    return ["./verify"]


def java(folder: Path) -> list[str]:
    (folder / "Main.java").write_text(JAVA)
    subprocess.run(["javac", "Webhook.java", "Main.java"], cwd=folder, check=True)
    return ["java", "-cp", ".", "Main"]


def php(folder: Path) -> list[str]:
    (folder / "main.php").write_text(PHP)
    return ["php", "main.php"]


PROGRAMS: dict[str, Callable[[Path], list[str]]] = {
    "node": node, "go": go, "javac": java, "php": php,
}  # fmt: skip
THERE = [python, *(make for name, make in PROGRAMS.items() if shutil.which(name))]


def cases(secret: str, other: str) -> dict[str, tuple[Sequence[str], bool]]:
    """What is verified, and whether it is genuine."""
    now = int(time.time())

    def message(at: int, keys: Sequence[str] = (secret,), body: bytes = BODY) -> list[str]:
        decoded = [signing.decode_secret(key) for key in keys]
        signature = signing.sign(decoded, "115", at, body)
        return ["115", str(at), signature, base64.b64encode(body).decode()]

    good = message(now)
    changed = base64.b64encode(BODY + b" ").decode()
    return {
        "genuine": (good, True),
        "an empty body": (message(now, body=b""), True),
        "two secrets": (message(now, (other, secret)), True),
        "four minutes old": (message(now - 240), True),
        "another secret": (message(now, (other,)), False),
        "another body": ([*good[:3], changed], False),
        "another id": (["116", *good[1:]], False),
        "another time": ([good[0], str(now + 1), *good[2:]], False),
        "six minutes old": (message(now - 360), False),
        "of the future": (message(now + 360), False),
        "no signature": ([*good[:2], "", good[3]], False),
        "another version": ([*good[:2], good[2].replace("v1,", "v2,"), good[3]], False),
        "a time that is none": ([good[0], "now", *good[2:]], False),
        "an endless time": ([good[0], "9" * 5000, *good[2:]], False),
    }


@pytest.mark.parametrize("make", THERE, ids=lambda make: make.__name__)
def test_it_verifies_what_is_genuine_and_nothing_else(
    make: Callable[[Path], list[str]], tmp_path: Path
) -> None:
    folder = tmp_path / "code"
    shutil.copytree(FILES, folder)
    command = make(folder)
    secret = signing.new_secret()
    wanted = cases(secret, signing.new_secret())
    given = [part for message, _genuine in wanted.values() for part in message]
    done = subprocess.run(
        [*command, secret, *given], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    said = dict(zip(wanted, (line == "1" for line in done.stdout.split()), strict=True))
    assert said == {name: genuine for name, (_message, genuine) in wanted.items()}


def test_node_is_among_them() -> None:
    assert node in THERE


def test_the_documentation_leads_to_these_files() -> None:
    page = (ROOT / "docs" / "integrate.md").read_text(encoding="utf-8")
    assert {file.name for file in FILES.iterdir() if file.is_file()} == {
        name for _, _, name in first_steps.VERIFIERS
    }
    assert len(first_steps.snippets()) == len(first_steps.VERIFIERS)
    links = [f"](../templates/notify/verify/{name})" for _, _, name in first_steps.VERIFIERS]
    assert [link for link in links if link not in page] == []
