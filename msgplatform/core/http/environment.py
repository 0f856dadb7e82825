"""Trusted certificates and open files: the HTTP engine's needs of the machine."""

import resource
import ssl
from pathlib import Path

from msgplatform.core import logging

log = logging.get(__name__)

# Paths of the bundle in distributions, if Python does not know the path.
_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
)
_OTHER_FILES = 128  # open files of a process besides the engine's sockets, at most


def system_ca_file() -> str:
    """The system's bundle of trusted certificates (or SSL_CERT_FILE), or ''.

    The libcurl in pycurl's wheel looks only where one distribution keeps it.
    """
    default_file = ssl.get_default_verify_paths().cafile
    return default_file or next((path for path in _BUNDLES if Path(path).exists()), "")


def allow_sockets(count: int) -> int:
    """Let this process open `count` sockets besides other files, if the hard limit allows this.

    Raises the soft limit, which many systems keep at 1024 for the sake of select(); returns how
    many sockets may be open.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= count + _OTHER_FILES:
        return count
    file_count = count + _OTHER_FILES
    soft = file_count if hard == resource.RLIM_INFINITY else min(file_count, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft < file_count:
        log.warning("few_open_files", limit=soft, wanted=file_count)
    return min(count, soft - _OTHER_FILES)
