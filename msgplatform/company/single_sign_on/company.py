"""The company's provider: its document, the code flow with PKCE and a nonce, the ID token.

OpenID Connect Core 1.0 (3.1, the code flow; 3.1.3.7, what of an ID token is checked) and Discovery
1.0 (4.3: the issuer in the document is the one that was asked).
"""

from __future__ import annotations

import hashlib
import hmac
import time
import unicodedata
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote_plus

import jwt
from allauth.socialaccount.providers.oauth2.client import OAuth2Client, OAuth2Error
from allauth.socialaccount.providers.openid_connect.provider import OpenIDConnectProvider
from allauth.socialaccount.providers.openid_connect.views import OpenIDConnectOAuth2Adapter
from django.conf import settings
from django.http import HttpRequest
from django.urls import reverse

from msgplatform.company.single_sign_on import guarded

ID = "company"
# Of what the provider may sign with: nothing that a holder of the client's secret could make.
_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512",
               "EdDSA")  # fmt: skip
LEEWAY_SECONDS = 60  # that the two clocks may differ
_MAX_UID = 191  # characters of the column
_MAX_KEYS = 20  # that one signature is tried with
_ENDPOINTS = ("authorization_endpoint", "token_endpoint", "jwks_uri")


class Refused(OAuth2Error):  # type: ignore[misc]  # has no types
    """The provider's answer is not accepted. `reason` is a word for logs."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(detail or reason)
        self.reason, self.detail = reason, detail


def nonce_of(state_id: str) -> str:
    """The nonce of a sign-in: bound to its state, which the session holds and which serves once."""
    return hmac.new(settings.SECRET_KEY.encode(), state_id.encode(), hashlib.sha256).hexdigest()


class CompanyClient(OAuth2Client):  # type: ignore[misc]  # has no types
    consumer_key: str
    consumer_secret: str

    def get_redirect_url(self, authorization_url: str, scope: Any, extra_params: Any) -> str:
        extra_params["nonce"] = nonce_of(self.state or "")
        url: str = super().get_redirect_url(authorization_url, scope, extra_params)
        return url

    def get_access_token(self, *args: Any, **options: Any) -> Any:
        if self.basic_auth:  # form-encoded in the header (RFC 6749, 2.3.1), as + / : % must be
            self.consumer_key = quote_plus(self.consumer_key)
            self.consumer_secret = quote_plus(self.consumer_secret)
        return super().get_access_token(*args, **options)


@dataclass
class _Kept:
    """The provider's document and keys as they were when it was asked, in monotonic seconds."""

    document: dict[str, Any]
    keys: list[dict[str, Any]]
    asked_at: float


kept: dict[str, _Kept] = {}  # issuer → what this process knows of it
# Keys are taken anew after so long; for a key that is not among them the provider is asked so
# often at most: everybody may send a token.
_KEPT_SECONDS, _ASK_SECONDS = 3600.0, 10.0


class CompanyAdapter(OpenIDConnectOAuth2Adapter):  # type: ignore[misc]  # has no types
    client_class = CompanyClient

    @property
    def openid_config(self) -> dict[str, Any]:
        if hasattr(self, "_document"):
            return self._document
        with guarded.session() as session:
            answer = session.get(f"{settings.OIDC_ISSUER}/.well-known/openid-configuration")
        answer.raise_for_status()
        document = answer.json()
        if not isinstance(document, dict):
            raise Refused("document", "The provider's document is not an object.")
        issuer = document.get("issuer")
        if not isinstance(issuer, str) or issuer.rstrip("/") != settings.OIDC_ISSUER:
            raise Refused("issuer", f"The provider's document names the issuer {issuer!r:.200}.")
        for name in _ENDPOINTS:
            if not isinstance(document.get(name), str):
                raise Refused("document", f"The provider's document has no {name}.")
        self._document: dict[str, Any] = document
        return self._document

    @property
    def basic_auth(self) -> bool:
        """The default is the header (Discovery 1.0, 3)."""
        methods = self.openid_config.get("token_endpoint_auth_methods_supported")
        return not isinstance(methods, list) or "client_secret_post" not in methods

    def take_kept_keys(self) -> bool:
        """Judge tokens by the keys that this process has; False if it has none, or old ones."""
        memory = kept.get(settings.OIDC_ISSUER)
        if memory is None or time.monotonic() - memory.asked_at > _KEPT_SECONDS:
            return False
        self._document, self._keys = memory.document, memory.keys
        return True

    def drop_kept_keys(self) -> bool:
        """Ask the provider at the next token; False if it was asked a moment ago."""
        memory = kept.get(settings.OIDC_ISSUER)
        if memory and time.monotonic() - memory.asked_at < _ASK_SECONDS:
            return False
        del self._document, self._keys
        return True

    def get_callback_url(self, request: HttpRequest, app: Any) -> str:
        return f"{settings.PUBLIC_URL}{reverse('company_callback')}"

    def get_access_token_data(
        self, request: HttpRequest, app: Any, client: Any, pkce_code_verifier: str | None = None
    ) -> dict[str, Any]:
        """The library's error would carry the answer's text, which may hold tokens, into logs."""
        try:
            data: dict[str, Any] = super().get_access_token_data(
                request, app, client, pkce_code_verifier
            )
        except Refused:
            raise
        except OAuth2Error:
            raise Refused("code", "The provider did not take the code.") from None
        return data

    def complete_login(self, request: HttpRequest, app: Any, token: Any, **kwargs: Any) -> Any:
        id_token = kwargs["response"].get("id_token")
        if not isinstance(id_token, str):
            raise Refused("token", "The provider sent no ID token.")
        nonce = nonce_of(request.GET.get("state", ""))
        claims = self.verified(id_token)
        if not claims["sub"]:
            raise Refused("token", "The ID token has an empty subject.")
        if not hmac.compare_digest(str(claims.get("nonce", "")).encode(), nonce.encode()):
            raise Refused("nonce", "The ID token has another nonce: it is of another sign-in.")
        # Claims that the ID token lacks: providers may put groups and names into the other only.
        endpoint = self.openid_config.get("userinfo_endpoint")
        is_whole = settings.OIDC_GROUPS_CLAIM in claims and "preferred_username" in claims
        if isinstance(endpoint, str) and not is_whole:
            headers = {"Authorization": f"Bearer {token.token}"}
            with guarded.session() as session:
                answer = session.get(endpoint, headers=headers)
            answer.raise_for_status()
            further = answer.json()
            if not isinstance(further, dict) or further.get("sub") != claims["sub"]:
                words = "The provider's user information is of somebody else."
                raise Refused("userinfo", words)
            claims = {**further, **claims}
        login = self.get_provider().sociallogin_from_response(request, claims)
        login.user.email = claims.get("email") or ""
        login.claims, login.id_token = claims, id_token
        login.end_session_endpoint = self.openid_config.get("end_session_endpoint", "")
        return login

    def verified(self, token: str, required: tuple[str, ...] = ("exp", "sub")) -> dict[str, Any]:
        """The claims of a signed token of this provider for this client. Raises Refused."""
        try:
            claims = self._decode(token, required)
        except jwt.PyJWTError as error:
            raise Refused(_REASONS.get(type(error), "token"), str(error)[:200]) from None
        audience = claims["aud"]
        authorized = claims.get("azp", settings.OIDC_CLIENT_ID)
        if isinstance(audience, list) and len(audience) > 1 and "azp" not in claims:
            authorized = ""
        if authorized != settings.OIDC_CLIENT_ID:
            raise Refused("audience", "The token was made for another client.")
        return claims

    def _decode(self, token: str, required: tuple[str, ...]) -> dict[str, Any]:
        """Raises PyJWTError, Refused."""
        header = jwt.get_unverified_header(token)
        algorithm = header.get("alg")
        if algorithm not in _ALGORITHMS:
            raise Refused("signature", f"The token is signed with {algorithm!r:.40}.")
        problem: jwt.PyJWTError | None = None
        kid = header.get("kid")
        # The keys that may have signed it (RFC 7517, 4).
        entries = [
            entry
            for entry in self._key_entries()
            if entry.get("use", "sig") == "sig"
            and entry.get("alg", algorithm) == algorithm
            and "verify" in entry.get("key_ops", ["verify"])
            and (kid is None or entry.get("kid", kid) == kid)
        ]
        # A key id may stand for several keys (RFC 7517, 4.5): the signature decides.
        for entry in entries[:_MAX_KEYS]:
            try:
                claims: dict[str, Any] = jwt.decode(
                    token,
                    jwt.PyJWK.from_dict(entry, algorithm).key,
                    algorithms=[algorithm],
                    audience=settings.OIDC_CLIENT_ID,
                    issuer=self.openid_config["issuer"],
                    leeway=LEEWAY_SECONDS,
                    options={"require": ["iss", "aud", "iat", *required]},
                )
            except (jwt.InvalidSignatureError, jwt.InvalidKeyError, jwt.PyJWKError) as error:
                problem = problem or error
            else:
                return claims
        raise problem or Refused("signature", "The provider has no such key.")

    def _key_entries(self) -> list[dict[str, Any]]:
        if not hasattr(self, "_keys"):
            with guarded.session() as session:
                answer = session.get(self.openid_config["jwks_uri"])
            answer.raise_for_status()
            document = answer.json()
            entries = document.get("keys") if isinstance(document, dict) else None
            if not isinstance(entries, list):
                raise Refused("signature", "The provider's key set has no list of keys.")
            self._keys = [entry for entry in entries if isinstance(entry, dict)]
            kept[settings.OIDC_ISSUER] = _Kept(self.openid_config, self._keys, time.monotonic())
        return self._keys


_REASONS: dict[type[jwt.PyJWTError], str] = {
    jwt.ExpiredSignatureError: "clock",
    jwt.ImmatureSignatureError: "clock",
    jwt.InvalidIssuedAtError: "clock",
    jwt.InvalidAudienceError: "audience",
    jwt.InvalidIssuerError: "issuer",
    jwt.InvalidSignatureError: "signature",
}


class CompanyProvider(OpenIDConnectProvider):  # type: ignore[misc]  # has no types
    id = ID
    oauth2_adapter_class = CompanyAdapter
    pkce_enabled_default = True
    supports_token_authentication = False

    def get_oauth2_adapter(self, request: HttpRequest) -> CompanyAdapter:
        """One for each request, so that the document is read once."""
        if not hasattr(request, "company_adapter"):
            request.company_adapter = CompanyAdapter(request, ID)  # type: ignore[attr-defined]
        adapter: CompanyAdapter = request.company_adapter  # type: ignore[attr-defined]
        return adapter

    def get_login_url(self, request: HttpRequest, **kwargs: Any) -> str:
        return reverse("company-login")

    def get_callback_url(self) -> str:
        return reverse("company_callback")

    def get_default_scope(self) -> list[str]:
        return list(settings.OIDC_SCOPES)

    def extract_uid(self, data: dict[str, Any]) -> str:
        """Issuer and subject: the same subject of another issuer is another person."""
        return uid_of(data["iss"], data["sub"])

    def extract_extra_data(self, data: dict[str, Any]) -> dict[str, Any]:
        return {"issuer": data["iss"], "subject": data["sub"], "name": data.get("name", "")}

    def extract_common_fields(self, data: dict[str, Any]) -> dict[str, Any]:
        """Without the address, which identifies nobody."""
        name = data.get("preferred_username") or str(data.get("email", "")).split("@")[0]
        return {
            # Full-width letters would look like somebody else's name in the audit log.
            "username": unicodedata.normalize("NFKC", str(name)),
            "name": data.get("name"),
            "last_name": data.get("family_name"),
            "first_name": data.get("given_name"),
        }

    def extract_email_addresses(self, data: dict[str, Any]) -> list[Any]:
        return []


def uid_of(issuer: str, subject: str) -> str:
    uid = f"{subject} {issuer}"
    return uid if len(uid) <= _MAX_UID else hashlib.sha256(uid.encode()).hexdigest()
