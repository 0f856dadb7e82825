"""Chat robots whose answers apprise does not read: they say with HTTP 200 that they refuse.

apprise reads the addresses and knows the limits; these classes send by the robots' documents:

- DingTalk (open.dingtalk.com, "Custom robot access"): `errcode` is 0 when it is taken. apprise
  (2.3) does not look, and encodes the signature twice, which DingTalk refuses.
- WeCom (developer.work.weixin.qq.com, document 91770): `errcode`, and Markdown of 4,096 bytes.
- Feishu and Lark (open.feishu.cn, "Custom bot usage guide"): `code`, and the signature of a robot
  that has a secret, which apprise cannot make.
"""

import base64
import hashlib
import hmac
import json
import re
import time
from collections.abc import Mapping
from typing import Any, ClassVar

import requests
from apprise import NotifyFormat
from apprise.plugins.dingtalk import NotifyDingTalk
from apprise.plugins.feishu import NotifyFeishu
from apprise.plugins.wecombot import NotifyWeComBot


class Refused(Exception):
    """The robot does not take the message, for a reason of its own. `is_final`: no repeat helps."""

    def __init__(self, text: str, is_final: bool = False) -> None:
        super().__init__(text)
        self.is_final = is_final


class _Robot:
    """The common part of these robots: a POST of JSON, and an answer whose code must be 0."""

    code_field: ClassVar[str]
    text_field: ClassVar[str]
    # Codes that mean a wrong address or secret.
    final_codes: ClassVar[frozenset[int]] = frozenset()

    def post(self, url: str, content: Mapping[str, Any], **parameters: str) -> bool:
        """Raises Refused, or what requests raises."""
        robot: Any = self
        answer = requests.post(
            url,
            data=json.dumps(content, ensure_ascii=False).encode(),
            headers={"Content-Type": "application/json; charset=utf-8"},
            params=parameters,
            timeout=robot.request_timeout,
            allow_redirects=False,
        )
        if answer.status_code != 200:
            raise Refused(f"HTTP {answer.status_code}", answer.status_code in (400, 401, 403, 404))
        try:
            fields = answer.json()
            code = int(fields[self.code_field])
        except (ValueError, TypeError, KeyError):
            raise Refused(
                f"HTTP 200 with an answer that is none of its own: {answer.text[:100]}"
            ) from None
        if code:
            text = f"{self.code_field} {code}: {str(fields.get(self.text_field, ''))[:300]}"
            raise Refused(text, code in self.final_codes)
        return True


class DingTalk(_Robot, NotifyDingTalk):  # type: ignore[misc]  # the library's classes are Any
    code_field, text_field = "errcode", "errmsg"
    final_codes = frozenset({300001, 300005, 310000, 400101, 400102})
    example = "dingtalk://SECRET@TOKEN/"
    native = re.compile(r"https://oapi\.dingtalk\.com/robot/send\?(.+)")

    def send(
        self, body: str, title: str = "", body_format: NotifyFormat | None = None, **_: Any
    ) -> bool:
        content: dict[str, Any] = {"at": {"atMobiles": self.targets, "isAtAll": False}}
        if body_format == NotifyFormat.MARKDOWN:
            content |= {"msgtype": "markdown",
                        "markdown": {"title": title, "text": f"### {title}\n\n{body}"}}  # fmt: skip
        else:
            content |= {"msgtype": "text", "text": {"content": f"{title}\n{body}"}}
        signature: dict[str, str] = {}
        if self.secret:
            timestamp = str(round(time.time() * 1000))
            digest = _hmac(self.secret, f"{timestamp}\n{self.secret}")
            signature = {"timestamp": timestamp, "sign": digest}
        return self.post(
            "https://oapi.dingtalk.com/robot/send", content, access_token=self.token, **signature
        )


class WeCom(_Robot, NotifyWeComBot):  # type: ignore[misc]  # the library's classes are Any
    code_field, text_field = "errcode", "errmsg"
    final_codes = frozenset({93000, 93008})
    example = "wecombot://KEY"
    native = re.compile(r"https://qyapi\.weixin\.qq\.com/cgi-bin/webhook/send\?(.+)")
    notify_format = (NotifyFormat.MARKDOWN, NotifyFormat.TEXT)
    body_maxlen = 4096  # bytes of Markdown; 2,048 of text
    title_maxlen = 250

    def send(
        self, body: str, title: str = "", body_format: NotifyFormat | None = None, **_: Any
    ) -> bool:
        if body_format == NotifyFormat.MARKDOWN:
            content = {"msgtype": "markdown", "markdown": {"content": f"### {title}\n{body}"}}
        else:
            content = {"msgtype": "text", "text": {"content": f"{title}\n{body}"}}
        return self.post("https://qyapi.weixin.qq.com/cgi-bin/webhook/send", content, key=self.key)


class Feishu(_Robot, NotifyFeishu):  # type: ignore[misc]  # the library's classes are Any
    code_field, text_field = "code", "msg"
    final_codes = frozenset({19001, 19021, 19022, 19024})
    example = "feishu://TOKEN?secret=SECRET"
    native = re.compile(r"https://open\.feishu\.cn/open-apis/bot/v2/hook/([\w-]+)/?(?:\?(.+))?")
    origin = "https://open.feishu.cn"

    def __init__(self, secret: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.secret = secret

    @staticmethod
    def parse_url(url: str) -> Any:
        parts = NotifyFeishu.parse_url(url)
        if parts:
            parts["secret"] = NotifyFeishu.unquote(parts["qsd"].get("secret") or "")
        return parts

    def send(
        self, body: str, title: str = "", body_format: NotifyFormat | None = None, **_: Any
    ) -> bool:
        content: dict[str, Any]
        if body_format == NotifyFormat.MARKDOWN:
            card = {
                "header": {"title": {"tag": "plain_text", "content": title}},
                "elements": [{"tag": "markdown", "content": body}],
            }
            content = {"msg_type": "interactive", "card": card}
        else:
            content = {"msg_type": "text", "content": {"text": f"{title}\n{body}"}}
        if self.secret:
            timestamp = str(round(time.time()))
            # The key is the text to sign, and the signed message is empty.
            content |= {"timestamp": timestamp, "sign": _hmac(f"{timestamp}\n{self.secret}", "")}
        return self.post(f"{self.origin}/open-apis/bot/v2/hook/{self.token}", content)


class Lark(Feishu):
    """Feishu outside of China."""

    secure_protocol = "lark"
    service_name = "Lark"
    example = "lark://TOKEN?secret=SECRET"
    native = re.compile(r"https://open\.larksuite\.com/open-apis/bot/v2/hook/([\w-]+)/?(?:\?(.+))?")
    origin = "https://open.larksuite.com"


ROBOTS: Mapping[str, type[DingTalk] | type[WeCom] | type[Feishu]] = {
    "dingtalk": DingTalk, "wecombot": WeCom, "feishu": Feishu, "lark": Lark,
}  # fmt: skip


def own_form(url: str) -> str:
    """The address in apprise's form, if it is the webhook from a robot's page."""
    if match := DingTalk.native.fullmatch(url):
        fields = _query(match[1])
        secret = f"{fields['secret']}@" if fields.get("secret") else ""
        return f"dingtalk://{secret}{fields.get('access_token', '')}/"
    if match := WeCom.native.fullmatch(url):
        return f"wecombot://{_query(match[1]).get('key', '')}"
    for scheme, robot in (("feishu", Feishu), ("lark", Lark)):
        if match := robot.native.fullmatch(url):
            return f"{scheme}://{match[1]}" + (f"?{match[2]}" if match[2] else "")
    return url


def _query(text: str) -> dict[str, str]:
    return dict(pair.partition("=")[::2] for pair in text.split("&"))


def _hmac(key: str, text: str) -> str:
    return base64.b64encode(hmac.digest(key.encode(), text.encode(), hashlib.sha256)).decode()
