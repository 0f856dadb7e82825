"""Classes that are decoded by several threads at once, for the first time."""

import subprocess
import sys

from msgplatform.env import BASE_DIR

# Each round has classes that nobody has decoded yet, one in a field of the other. Without
# `prepare` the process dies in the first rounds (msgspec 0.22).
_ROUNDS = """
import sys, threading
import msgspec
from msgplatform.core.daemons import structs

sys.setswitchinterval(1e-6)
data = b'{"a":1,"inner":{"b":"x","c":[1]},"d":{"e":2},"z":5}'
make, module = type(msgspec.Struct), sys.modules["__main__"]
for n in range(300):
    inner = {"__annotations__": {"b": "str", "c": "list[int]"}, "__module__": "__main__"}
    setattr(module, f"Inner{n}", make(f"Inner{n}", (msgspec.Struct,), inner))
    fields = {"a": "int", "inner": f"Inner{n}", "d": "dict[str, int]", "z": "int"}
    outer = {"__annotations__": fields, "__module__": "__main__"}
    kind = make(f"Outer{n}", (msgspec.Struct,), outer)
    structs.prepare()
    barrier = threading.Barrier(4)

    def run():
        barrier.wait()
        assert msgspec.json.decode(data, type=kind).z == 5

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
print("alive")
"""


def test_threads_may_be_the_first_to_decode_a_class() -> None:
    process = subprocess.run(
        [sys.executable, "-c", _ROUNDS], cwd=BASE_DIR, capture_output=True, text=True, timeout=300,
        check=False,
    )  # fmt: skip
    assert (process.returncode, process.stdout) == (0, "alive\n"), process.stderr


def test_the_classes_of_the_web_are_made_ready() -> None:
    """Some can never be decoded; these must not end each program at its start."""
    code = (
        "from msgplatform.doors.web import wsgi\nfrom django.urls import get_resolver\n"
        "get_resolver().url_patterns\n"
        "from msgplatform.core.daemons import structs\nstructs.prepare()"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], cwd=BASE_DIR, capture_output=True, text=True, timeout=300,
        check=False,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
