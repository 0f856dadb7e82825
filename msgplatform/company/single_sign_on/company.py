"""The company's provider: its document, the code flow with PKCE and a nonce, the ID token.

OpenID Connect Core 1.0 (3.1, the code flow; 3.1.3.7, what of an ID token is checked) and Discovery
1.0 (4.3: the issuer in the document is the one that was asked).
"""

import hashlib
import hmac
import time
import unicodedata
from typing import Any
from urllib.parse import quote_plus

import msgspec
from allauth.socialaccount.providers.oauth2.client import OAuth2Client, OAuth2Error
from allauth.socialaccount.providers.openid_connect.provider import OpenIDConnectProvider
from allauth.socialaccount.providers.openid_connect.views import OpenIDConnectOAuth2Adapter
from django.conf import settings
from django.http import HttpRequest
from django.urls import reverse

from msgplatform.company.single_sign_on import guarded, tokens
from msgplatform.company.single_sign_on.tokens import Refused
from msgplatform.core.characters import mixes_alphabets

ID = "company"
_MAX_UID, _MAX_ADDRESS = 191, 254  # maximum characters of the columns
_ENDPOINTS = ("authorization_endpoint", "token_endpoint", "jwks_uri")


def nonce_of(state_id: str) -> str:
    """The nonce of a sign-in, bound to its state, which the session has and which works once."""
    return hmac.new(settings.SECRET_KEY.encode(), state_id.encode(), hashlib.sha256).hexdigest()


class CompanyClient(OAuth2Client):  # type: ignore[misc]  # has no types
    consumer_key: str
    consumer_secret: str

    def get_redirect_url(self, authorization_url: str, scope: Any, extra_params: Any) -> str:
        extra_params["nonce"] = nonce_of(self.state or "")
        # The endpoint may have a query of its own, which is kept (RFC 6749, 3.1).
        endpoint, _mark, query = authorization_url.partition("?")
        url: str = super().get_redirect_url(endpoint, scope, extra_params)
        return f"{url}&{query}" if query else url

    def get_access_token(self, *args: Any, **options: Any) -> Any:
        if self.basic_auth:  # form-encoded in the header (RFC 6749, 2.3.1), as + / : % must be
            self.consumer_key = quote_plus(self.consumer_key)
            self.consumer_secret = quote_plus(self.consumer_secret)
        return super().get_access_token(*args, **options)


class _Memory(msgspec.Struct):
    """The provider's document and keys, read at `asked_at` (monotonic seconds)."""

    document: dict[str, Any]
    keys: list[dict[str, Any]]
    asked_at: float


memories: dict[str, _Memory] = {}  # by issuer
# Seconds until keys are read again, and minimum seconds between questions for an unknown key:
# everybody may send a token.
_MEMORY_SECONDS, _ASK_SECONDS = 3600.0, 10.0


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
        """True if the secret goes into the header, the default (Discovery 1.0, 3). Raises Refused
        if the provider takes it neither there nor in the form."""
        methods = self.openid_config.get("token_endpoint_auth_methods_supported")
        if not isinstance(methods, list) or not methods:
            return True
        if not {"client_secret_basic", "client_secret_post"}.intersection(map(str, methods)):
            raise Refused("document", "The provider takes no secret of a client.")
        return "client_secret_post" not in methods

    def take_kept_keys(self) -> bool:
        """Check tokens with the keys that this process has. False if it has none, or old ones."""
        memory = memories.get(settings.OIDC_ISSUER)
        if memory is None or time.monotonic() - memory.asked_at > _MEMORY_SECONDS:
            return False
        self._document, self._keys = memory.document, memory.keys
        return True

    def drop_kept_keys(self) -> bool:
        """Read keys again for the next token. False if the provider was asked a moment ago."""
        memory = memories.get(settings.OIDC_ISSUER)
        if memory and time.monotonic() - memory.asked_at < _ASK_SECONDS:
            return False
        del self._document, self._keys
        return True

    def get_callback_url(self, request: HttpRequest, app: Any) -> str:
        return f"{settings.PUBLIC_URL}{reverse('company_callback')}"

    def get_access_token_data(
        self, request: HttpRequest, app: Any, client: Any, pkce_code_verifier: str | None = None
    ) -> dict[str, Any]:
        """The library's error would write the answer's text, which may contain tokens, to logs."""
        try:
            data: dict[str, Any] = super().get_access_token_data(
                request, app, client, pkce_code_verifier
            )
        except Refused:
            raise
        except OAuth2Error:
            raise Refused("code", "The provider did not take the code.") from None
        return data

    def parse_token(self, data: dict[str, Any]) -> Any:
        """Leave out the token's expiry, which may have any value and is not used here."""
        return super().parse_token({"access_token": str(data["access_token"])})

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
        claims = self._with_userinfo(claims, token.token)
        login = self.get_provider().sociallogin_from_response(request, claims)
        address = claims.get("email")
        fits = isinstance(address, str) and len(address) <= _MAX_ADDRESS
        login.user.email = address if fits else ""
        login.claims, login.id_token = claims, id_token
        login.end_session_endpoint = self.openid_config.get("end_session_endpoint", "")
        return login

    def verified(self, token: str, required: tuple[str, ...] = ("exp", "sub")) -> dict[str, Any]:
        """The claims of a signed token of this provider for this client. Raises Refused."""
        claims = tokens.decode(
            token, self._key_entries, audience=settings.OIDC_CLIENT_ID,
            issuer=self.openid_config["issuer"],
            options={"require": ["iss", "aud", "iat", *required]},
        )  # fmt: skip
        audience = claims["aud"]
        authorized_party = claims.get("azp", settings.OIDC_CLIENT_ID)
        if isinstance(audience, list) and len(audience) > 1 and "azp" not in claims:
            authorized_party = ""
        if authorized_party != settings.OIDC_CLIENT_ID:
            raise Refused("audience", "The token was made for another client.")
        return claims

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
            memories[settings.OIDC_ISSUER] = _Memory(
                self.openid_config, self._keys, time.monotonic()
            )
        return self._keys

    def _with_userinfo(self, claims: dict[str, Any], access_token: str) -> dict[str, Any]:
        """Adds claims that the ID token lacks: providers may have groups and names only there."""
        endpoint = self.openid_config.get("userinfo_endpoint")
        is_whole = settings.OIDC_GROUPS_CLAIM in claims and "preferred_username" in claims
        if is_whole or not isinstance(endpoint, str):
            return claims
        headers = {"Authorization": f"Bearer {access_token}"}
        with guarded.session() as session:
            answer = session.get(endpoint, headers=headers)
        answer.raise_for_status()
        if answer.headers["content-type"].partition(";")[0].strip() == "application/jwt":
            # Its issuer and audience may be missing (Core 1.0, 5.3.2).
            further: Any = tokens.decode(
                answer.text.strip(),
                self._key_entries,
                options={"verify_aud": False, "verify_iss": False},
            )
            issuer = self.openid_config["issuer"]
            audience = further.get("aud", settings.OIDC_CLIENT_ID)
            audiences = [audience] if isinstance(audience, str) else audience
            if further.get("iss", issuer) != issuer or settings.OIDC_CLIENT_ID not in audiences:
                raise Refused("userinfo", "The provider's user information is for another client.")
        else:
            further = answer.json()
        if not isinstance(further, dict) or further.get("sub") != claims["sub"]:
            raise Refused("userinfo", "The provider's user information is of somebody else.")
        return {**further, **claims}


class CompanyProvider(OpenIDConnectProvider):  # type: ignore[misc]  # has no types
    id = ID
    oauth2_adapter_class = CompanyAdapter
    pkce_enabled_default = True
    supports_token_authentication = False

    def get_oauth2_adapter(self, request: HttpRequest) -> CompanyAdapter:
        """One adapter for each request, so that the document is read once."""
        if not hasattr(request, "company_adapter"):
            request.company_adapter = CompanyAdapter(request, ID)  # type: ignore[attr-defined]
        adapter: CompanyAdapter = request.company_adapter  # type: ignore[attr-defined]
        return adapter

    def get_default_scope(self) -> list[str]:
        return list(dict.fromkeys(["openid", *settings.OIDC_SCOPES]))

    def extract_uid(self, data: dict[str, Any]) -> str:
        """Issuer and subject: an equal subject of another issuer is another person."""
        return uid_of(data["iss"], data["sub"])

    def extract_extra_data(self, data: dict[str, Any]) -> dict[str, Any]:
        return {"issuer": data["iss"], "subject": data["sub"], "name": data.get("name", "")}

    def extract_common_fields(self, data: dict[str, Any]) -> dict[str, Any]:
        """Leaves out the address, which identifies nobody."""
        name = data.get("preferred_username") or str(data.get("email", "")).split("@")[0]
        # Full-width or Cyrillic letters would look like somebody else's name in the audit log.
        username = unicodedata.normalize("NFKC", str(name))
        return {
            "username": "" if mixes_alphabets(username) else username,
            "name": data.get("name"),
            "last_name": data.get("family_name"),
            "first_name": data.get("given_name"),
        }

    def extract_email_addresses(self, data: dict[str, Any]) -> list[Any]:
        return []


def uid_of(issuer: str, subject: str) -> str:
    return exact_uid(f"{subject} {issuer}")


def exact_uid(uid: str) -> str:
    """A user id for the library's column. Subjects are case-sensitive (Core 1.0, 2), but the column
    takes `U1` and `u1` as equal: an id that is not plain is stored as its digest."""
    is_plain = uid.isascii() and uid == uid.lower().strip() and len(uid) <= _MAX_UID
    return uid if is_plain else hashlib.sha256(uid.encode()).hexdigest()
