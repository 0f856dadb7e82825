"""An OpenID provider that can be told to be wrong: what it says and how it fails is set by the
test. Written from OpenID Connect Core 1.0; the test's client is the browser."""

import base64
import hashlib
import json
import threading
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote_plus, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

CLIENT, SECRET = "platform", "a secret of the client"
_METHODS = "token_endpoint_auth_methods_supported"


_CURVES = {"ES256": ec.SECP256R1(), "ES384": ec.SECP384R1(), "ES512": ec.SECP521R1()}


def new_key(algorithm: str = "ES256") -> Any:
    if algorithm in _CURVES:
        return ec.generate_private_key(_CURVES[algorithm])
    if algorithm == "EdDSA":
        return ed25519.Ed25519PrivateKey.generate()
    return rsa.generate_private_key(65537, 2048)


class OidcProvider:
    """`claims` go into each ID token in place of the usual ones (None takes one away), `userinfo`
    is what else its user information has, `document` changes the document. `statuses` has a path's
    status in place of 200, `bodies` its whole body, `types` its content type. `header` is of each
    token, `answer` of the token endpoint's answer, `jwk` of its key, all in place of the usual
    values. `path` is that of its issuer, which ends with a slash if it does. User information is a
    token if `signs_userinfo`. While `hangs` is set, no answer comes."""

    def __init__(self) -> None:
        self.hangs, self._released = False, threading.Event()
        self.reset()
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                provider._answer(self, {})

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"] or 0))
                form = {name: values[0] for name, values in parse_qs(body.decode()).items()}
                provider._answer(self, form)

            def log_message(self, *_: object) -> None:
                """Nothing is printed."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.base = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def reset(self) -> None:
        """Be a good provider, with a new key."""
        self._released.set()  # requests that hang end
        self._released = threading.Event()
        self.claims: dict[str, Any] = {}
        self.userinfo: dict[str, Any] = {}
        self.document: dict[str, Any] = {}
        self.statuses: dict[str, int] = {}
        self.bodies: dict[str, bytes] = {}
        self.types: dict[str, str] = {}
        self.header: dict[str, Any] = {}
        self.answer: dict[str, Any] = {}
        self.jwk: dict[str, Any] = {}
        self.path, self.signs_userinfo = "", False
        self.paths: list[str] = []
        self.hangs, self.secret = False, SECRET
        self.more_keys: list[dict[str, Any]] = []
        self.kid: str | None = "one"
        self.signing_key: Any = None
        self.sign_with("ES256")
        self.codes: dict[str, dict[str, str]] = {}
        self._next_code = 0

    @property
    def issuer(self) -> str:
        return f"{self.base}{self.path}"

    @property
    def root(self) -> str:
        """The address below which its pages are: the issuer without its last slash."""
        return self.issuer.rstrip("/")

    def sign_with(self, algorithm: str) -> None:
        """From now on with a new key."""
        self.algorithm = self._key_algorithm = algorithm
        self.key: Any = new_key(algorithm)

    def settings(self) -> dict[str, Any]:
        """Settings of a platform that uses this provider."""
        app = {
            "provider_id": "company", "name": "Example Corp", "client_id": CLIENT,
            "secret": SECRET, "settings": {"server_url": self.root},
        }  # fmt: skip
        return {
            "OUTBOUND_ALLOW": ["127.0.0.0/8"],
            "OIDC_ISSUER": self.root,
            "OIDC_NAME": "Example Corp",
            "OIDC_CLIENT_ID": CLIENT,
            "OIDC_CLIENT_SECRET": SECRET,
            "OIDC_ROLES": {"ops": ["operator"], "CN=Admins,OU=x": ["administrator"],
                           "odd": ["no-such-role", "viewer"]},
            "SOCIALACCOUNT_PROVIDERS": {"company": {"APPS": [app]}},
        }  # fmt: skip

    def close(self) -> None:
        self._released.set()
        self._server.shutdown()
        self._server.server_close()

    def authorize(self, url: str) -> dict[str, str]:
        """The browser comes with this URL and somebody signs in: what leads it back."""
        query = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
        assert url.startswith(f"{self.root}/authorize?")
        assert url.count("?") == 1
        assert "openid" in query["scope"].split(" ")
        assert query["client_id"] == CLIENT
        assert query["response_type"] == "code"
        assert query["code_challenge_method"] == "S256"
        code = f"code-{self._next_code}"
        self._next_code += 1
        self.codes[code] = query
        return {"code": code, "state": query["state"]}

    def token(self, claims: Mapping[str, Any]) -> str:
        """A token with these claims in place of the usual ones."""
        now = int(time.time())
        usual = {"iss": self.issuer, "aud": CLIENT, "sub": "u1", "iat": now, "exp": now + 300,
                 "auth_time": now}  # fmt: skip
        values = {name: value for name, value in {**usual, **claims}.items() if value is not None}
        key: Any = self.signing_key or self.key
        if self.algorithm.startswith("HS"):
            key = SECRET * 3
        if self.algorithm == "none":
            key = None
        header = {"kid": self.kid, **self.header}
        kept = {name: value for name, value in header.items() if value is not None}
        return jwt.encode(values, key, self.algorithm, kept)

    def _answer(self, handler: BaseHTTPRequestHandler, form: dict[str, str]) -> None:
        path = urlsplit(handler.path).path.removeprefix(self.path.rstrip("/"))
        self.paths.append(path)
        if self.hangs:
            self._released.wait(300)
            return
        answers = {
            "/.well-known/openid-configuration": self._document,
            "/keys": self._keys,
            "/token": lambda: self._token(form, handler.headers.get("Authorization", "")),
            "/userinfo": self._userinfo,
        }
        status = self.statuses.get(path, 200)
        media_type = "application/json"
        if path in self.bodies:
            body = self.bodies[path]
        else:
            value = answers[path]()
            if isinstance(value, str):
                body, media_type = value.encode(), "application/jwt"
            else:
                status = 400 if "error" in value else status
                body = json.dumps(value, indent=2).encode()
        handler.send_response(status)
        handler.send_header("Content-Type", self.types.get(path, media_type))
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    def _document(self) -> dict[str, Any]:
        document = {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.root}/authorize",
            "token_endpoint": f"{self.root}/token",
            "userinfo_endpoint": f"{self.root}/userinfo",
            "jwks_uri": f"{self.root}/keys",
            "end_session_endpoint": f"{self.root}/end",
            "token_endpoint_auth_methods_supported": ["client_secret_post"],
            **self.document,
        }
        return {name: value for name, value in document.items() if value is not None}

    def _keys(self) -> dict[str, Any]:
        entry = public_entry(self.key, self._key_algorithm)
        own_key = {**entry, "alg": self._key_algorithm, "use": "sig", **self.jwk}
        kept = {name: value for name, value in own_key.items() if value is not None}
        return {"keys": [*self.more_keys, kept]}

    def _userinfo(self) -> dict[str, Any] | str:
        claims = {"sub": "u1", **self.userinfo}
        return self.token({"exp": None, **claims}) if self.signs_userinfo else claims

    def _token(self, form: dict[str, str], authorization: str) -> dict[str, Any]:
        query = self.codes.pop(form.get("code", ""), None)
        if query is None:
            return {"error": "invalid_grant"}
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        assert challenge == query["code_challenge"]
        if "client_secret_post" in (self._document().get(_METHODS) or ()):
            assert (form["client_id"], form["client_secret"]) == (CLIENT, self.secret)
        else:  # RFC 6749, 2.3.1: each part is form-encoded, then both as RFC 7617 has it
            scheme, _blank, value = authorization.partition(" ")
            name, _colon, password = base64.b64decode(value).decode("ascii").partition(":")
            assert (scheme, unquote_plus(name)) == ("Basic", CLIENT)
            assert unquote_plus(password) == self.secret
            assert "client_secret" not in form
        assert form["redirect_uri"] == query["redirect_uri"]
        token = self.token({"nonce": query["nonce"], **self.claims})
        answer = {"access_token": "opaque", "token_type": "Bearer", "id_token": token}
        return {**answer, **self.answer}


def public_entry(key: Any, algorithm: str = "ES256") -> dict[str, Any]:
    """A key as an entry of a key set, under the key id of the provider's own."""
    made: Any = jwt.get_algorithm_by_name(algorithm).to_jwk(key.public_key(), as_dict=True)
    return {**made, "kid": "one"}
