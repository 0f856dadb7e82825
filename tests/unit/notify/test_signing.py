"""Standard Webhooks: published vectors, and the official library as the judge."""

import base64
import hmac
import time

import pytest
import standardwebhooks
from hypothesis import example, given, strategies as st

from notify.subscriptions import signing
from tests.support.notify_rows import signed_headers

ID, TIMESTAMP = "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
VECTORS = [
    (b'{"test": 2432232314}', "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="),
    (b"", "v1,v48jdbgvh29KJz2Qc+ghw8G6vG3nAKnujWBg8oM/62A="),
    ('{"名":"小米"}'.encode(), "v1,Whx/G+KzrMWEIQUiIFMqFuE0OsDriLGlfikFCeG1H5Q="),
]


@pytest.mark.parametrize(("body", "signature"), VECTORS)
def test_published_vectors(body: bytes, signature: str) -> None:
    key = signing.decode_secret(SECRET)
    assert signing.sign([key], ID, TIMESTAMP, body) == signature


def test_rotation_signs_with_both_secrets() -> None:
    keys = [
        signing.decode_secret(secret)
        for secret in (SECRET, "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD")
    ]
    assert signing.sign(keys, ID, TIMESTAMP, VECTORS[0][0]) == (
        f"{VECTORS[0][1]} v1,78nXHjpFP0tVJQW5D0SBwmVyyW87BV/rL6MgfM/Bw44="
    )


@given(st.text(), st.integers(1, 2**63 - 1))
def test_the_official_library_agrees(text: str, number: int) -> None:
    secret = signing.new_secret()
    body = text.encode("utf-8", "replace")
    headers = signed_headers([signing.decode_secret(secret)], str(number), int(time.time()), body)
    verifier = standardwebhooks.Webhook(secret)
    verifier.verify(body, headers, json_parse=False)
    for changed in (
        (body + b" ", headers),
        (body, {**headers, "webhook-id": f"{number}1"}),
        (body, {**headers, "webhook-timestamp": str(int(headers["webhook-timestamp"]) + 1)}),
    ):
        with pytest.raises(standardwebhooks.WebhookVerificationError):
            verifier.verify(*changed, json_parse=False)


@pytest.mark.parametrize("secret", ["", "abc", "whsk_AAAA", "whsec_!!!", "whsec_A"])
def test_a_wrong_secret_is_said(secret: str) -> None:
    with pytest.raises(ValueError, match="secret"):
        signing.decode_secret(secret)


def test_a_new_secret_has_enough_bytes() -> None:
    assert 24 <= len(signing.decode_secret(signing.new_secret())) <= 64


@example(b"k" * 64, [b"a", b"b"])
@example(b"k" * 65, [b"a", b"b"])
@given(st.binary(max_size=200), st.lists(st.binary(max_size=200), min_size=2, max_size=3))
def test_a_signer_computes_the_standard_librarys_hmac(key: bytes, contents: list[bytes]) -> None:
    """Also for its second message, and for keys longer than the hash's block."""
    sign = signing.signer([key])
    for content in contents:
        expected = base64.b64encode(hmac.digest(key, content, "sha256")).decode()
        assert sign(content) == f"v1,{expected}"
