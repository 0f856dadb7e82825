import base64
import hmac
import time

TOLERANCE_SECONDS = 300


def verify(secret: str, id: str, timestamp: str, signature: str, body: bytes) -> bool:
    """Whether this message is genuine: the three webhook headers, and the body's bytes as they
    came, before anything parses them."""
    if not (timestamp.isascii() and timestamp.isdecimal() and len(timestamp) <= 12):
        return False
    if abs(time.time() - int(timestamp)) > TOLERANCE_SECONDS:
        return False
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signed = f"{id}.{timestamp}.".encode() + body
    expected = b"v1," + base64.b64encode(hmac.digest(key, signed, "sha256"))
    # While a secret is being rotated there are two signatures: one that fits is enough.
    return any(hmac.compare_digest(expected, given.encode()) for given in signature.split())
