"""Feishu and DingTalk: providers that know nothing of roles. What they tell of a person beside the
name, telephone numbers among it, is not stored."""

from __future__ import annotations

from typing import Any

from allauth.socialaccount.providers.dingtalk.provider import DingTalkProvider
from allauth.socialaccount.providers.feishu.provider import FeishuProvider


class Feishu(FeishuProvider):  # type: ignore[misc]  # has no types
    def extract_extra_data(self, data: dict[str, Any]) -> dict[str, Any]:
        return {"name": data.get("name", "")}


class DingTalk(DingTalkProvider):  # type: ignore[misc]  # has no types
    def extract_extra_data(self, data: dict[str, Any]) -> dict[str, Any]:
        return {"name": data.get("nick", "")}
