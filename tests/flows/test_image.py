"""The image, built without an engine, and the Debian package that is made of it: their programs
deliver a message. Root on Debian with `apt-get install mmdebstrap umoci`."""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import msgplatform
from tests.flows.installed_platform import Root, bare_debian, deliver, private_servers

ROOT = Path(__file__).resolve().parents[2]
MAX_BYTES = 120_000_000  # of the layout, compressed
pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("image")
    clone, layout = folder / "clone", folder / "layout"
    copy = f"git clone -q . {clone} && git diff --binary HEAD | git -C {clone} apply --allow-empty"
    for result in ("clients/dist", "site"):  # a release has them, a clone has not
        copy += f" && if [ -d {result} ]; then cp -R {result} {clone / result}; fi"
    # Its files, and those that root makes, are closed to the user of the image.
    subprocess.run(copy, shell=True, cwd=ROOT, check=True, umask=0o077)
    script = clone / "scripts" / "image.sh"
    subprocess.run([script, layout], check=True, timeout=1800, umask=0o077)
    return layout


@pytest.fixture(scope="module")
def bundle(image: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bundle") / "bundle"
    name = f"{image}:{msgplatform.__version__}"
    subprocess.run(["umoci", "unpack", "--image", name, folder], check=True, timeout=600)
    return folder


@pytest.fixture
def servers() -> Iterator[dict[str, str]]:
    with private_servers() as settings:
        yield settings


@pytest.fixture
def root(bundle: Path, servers: dict[str, str], tmp_path: Path) -> Root:
    """The image with servers of this machine, as an engine runs it: user, variables and folder are
    those of its configuration."""
    process = json.loads((bundle / "config.json").read_text())["process"]
    user = f"{process['user']['uid']}:{process['user']['gid']}"
    data = tmp_path / "data"
    data.mkdir()
    os.chown(data, process["user"]["uid"], process["user"]["gid"])
    environment = dict(each.split("=", 1) for each in process["env"]) | servers
    return Root(bundle / "rootfs", data, environment, user, process["cwd"])


def test_it_is_small(image: Path) -> None:
    assert sum(path.stat().st_size for path in image.rglob("*") if path.is_file()) <= MAX_BYTES


def test_what_is_in_it(bundle: Path) -> None:
    rootfs = bundle / "rootfs"
    product = rootfs / "opt" / "msgplatform"
    assert not (product / "tests").exists()
    assert not (product / ".git").exists()
    assert not list(rootfs.glob("usr/bin/*gcc*"))
    assert json.loads((bundle / "config.json").read_text())["process"]["user"]["uid"] == 10001
    owned = [path for path in product.rglob("*") if path.lstat().st_uid]
    assert owned == [], "its user could change the program"
    paths = [product, *product.rglob("*")]
    closed = [path for path in paths if not path.is_symlink() and not path.stat().st_mode & 0o004]
    assert closed == [], "its user cannot read the program"


def test_it_delivers_a_message(root: Root) -> None:
    assert root.run("id", "-u") == "10001\n"
    root.run("touch", "/opt/msgplatform/here", code=1)
    deliver(root, ("python", "manage.py"), ("python", "-m", "msgplatform.doors.web"))


def test_the_debian_package(image: Path, servers: dict[str, str], tmp_path: Path) -> None:
    root = bare_debian("bookworm", tmp_path)
    subprocess.run([ROOT / "scripts" / "deb.sh", image, root.folder / "var"], check=True)
    (package,) = (root.folder / "var").glob("*.deb")
    root.run("apt-get", "update", "-qq")
    root.run("apt-get", "install", "-qq", "--no-install-recommends", f"/var/{package.name}")

    def mode(path: str) -> str:
        return root.run("stat", "-c", "%a %U", path).strip()

    assert mode("/etc/msgplatform.env") == "600 root"
    assert mode("/var/lib/msgplatform") == "700 msgplatform"
    units = {path.name for path in (ROOT / "deploy" / "systemd").iterdir()}
    installed = set(root.run("ls", "/lib/systemd/system").split())
    assert units <= installed
    libraries = root.folder / "opt" / "msgplatform" / ".venv"
    bytecode = [path.read_bytes()[4:8] for path in libraries.rglob("*.pyc")]
    assert bytecode
    assert set(bytecode) == {b"\1\0\0\0"}, "by hash, unchecked: the package has other times"
    # The settings that it made, with the servers, are enough for the platform.
    made = (root.folder / "etc" / "msgplatform.env").read_text()
    lines = [line for line in made.splitlines() if not line.startswith("#")]
    named = {line.partition("=")[0] for line in lines}
    urls = [f"{name}={value}" for name, value in servers.items() if "URL" in name]
    kept = [line for line in lines if not line.startswith("PUBLIC_URL")]
    assert named == {"SECRET_KEY", "ENCRYPTION_KEY", "PUBLIC_URL"}
    text = "\n".join([*kept, *urls, "OUTBOUND_ALLOW=127.0.0.1/32"]) + "\n"
    (root.folder / "etc" / "msgplatform.env").write_text(text)
    unit = (root.folder / "lib/systemd/system/msgplatform-web.service").read_text()
    (web,) = re.findall(r"^ExecStart=(.*) \$OPTIONS$", unit, re.MULTILINE)
    as_unit = ("setpriv", "--reuid=msgplatform", "--regid=msgplatform", "--init-groups", "env")
    of_unit = ("--chdir=/opt/msgplatform", "STATE_DIR=/var/lib/msgplatform", *text.split())
    deliver(root, ("msgplatform",), (*as_unit, *of_unit, *web.split()))

    root.run("dpkg", "--remove", "msgplatform")
    assert not (root.folder / "opt" / "msgplatform").exists()
    assert (root.folder / "etc" / "msgplatform.env").read_text() == text
    root.run("dpkg", "--purge", "msgplatform")
    assert not (root.folder / "etc" / "msgplatform.env").exists()
    assert not (root.folder / "var" / "lib" / "msgplatform").exists()
    root.run("id", "-u", "msgplatform", code=1)
