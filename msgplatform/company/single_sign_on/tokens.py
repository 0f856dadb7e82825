"""Tokens that the provider has signed: the keys that may have signed them, and the checks."""

from collections.abc import Callable, Sequence
from typing import Any

import jwt
from allauth.socialaccount.providers.oauth2.client import OAuth2Error

# Algorithms for the provider's signatures: none that a holder of the client's secret could use.
_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512",
               "EdDSA")  # fmt: skip
LEEWAY_SECONDS = 60  # seconds that the two clocks may differ
_MAX_KEYS = 20  # maximum keys that are tried for one signature
Keys = Callable[[], Sequence[dict[str, Any]]]


class Refused(OAuth2Error):  # type: ignore[misc]  # has no types
    """The provider's answer is not accepted. `reason` is a word for logs."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(detail or reason)
        self.reason, self.detail = reason, detail


def decode(token: str, keys: Keys, **checks: Any) -> dict[str, Any]:
    """The claims of a token that one of the keys has signed. `checks` are PyJWT's options. The keys
    are read only after the text has the form of a token. Raises Refused."""
    try:
        header = jwt.get_unverified_header(token)
        algorithm = header.get("alg")
        if algorithm not in _ALGORITHMS:
            raise Refused("signature", f"The token is signed with {algorithm!r:.40}.")
        problem: jwt.PyJWTError | None = None
        kid = header.get("kid")
        # The keys that may have signed it (RFC 7517, 4).
        entries = [
            entry
            for entry in keys()
            if entry.get("use", "sig") == "sig"
            and entry.get("alg", algorithm) == algorithm
            and "verify" in entry.get("key_ops", ["verify"])
            and (kid is None or entry.get("kid", kid) == kid)
        ]
        # A key id may belong to several keys (RFC 7517, 4.5): the signature decides.
        for entry in entries[:_MAX_KEYS]:
            try:
                claims: dict[str, Any] = jwt.decode(
                    token,
                    jwt.PyJWK.from_dict(entry, algorithm).key,
                    algorithms=[algorithm],
                    leeway=LEEWAY_SECONDS,
                    **checks,
                )
            except (jwt.InvalidSignatureError, jwt.InvalidKeyError, jwt.PyJWKError) as error:
                problem = problem or error
            else:
                return claims
        raise problem or Refused("signature", "The provider has no such key.")
    except jwt.PyJWTError as error:
        raise Refused(_REASONS.get(type(error), "token"), str(error)[:200]) from None


_REASONS: dict[type[jwt.PyJWTError], str] = {
    jwt.ExpiredSignatureError: "clock",
    jwt.ImmatureSignatureError: "clock",
    jwt.InvalidIssuedAtError: "clock",
    jwt.InvalidAudienceError: "audience",
    jwt.InvalidIssuerError: "issuer",
    jwt.InvalidSignatureError: "signature",
}
