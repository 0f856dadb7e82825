"""`docs/runbook.md` and its translations: what to do about each alert."""

from collections.abc import Mapping

from msgplatform.monitor import runbooks

_HEADS = {
    "en": """\
# The runbook

For who is on call: what each alert of the platform means, and what to do about it. The line in
bold is the first step. [alerts.md](alerts.md) says how alerts work, and what to do about those of
Prometheus. Written by `make docs` from `runbooks.md` in the folder `monitor` of the platform and of
each flow; do not edit. [中文](runbook.zh-hans.md)
""",
    "zh-hans": """\
# 处理手册

For everybody who reads Chinese: the sections of [the runbook](runbook.md). Written by `make docs`.

每一种告警一段：其含义和处理方法，粗体的一行是第一步。使用中文的人在告警页面上看到的就是这里的内容。
修改设置、停用网关、停收订阅需要 Administrator 组的权限；Operator 组可以暂停、恢复和重新发送。
""",
}


def pages() -> Mapping[str, str]:
    """Name in docs/ → the whole page, in Markdown."""
    return {runbooks.page(language): _page(language) for language in runbooks.LANGUAGES}


def _page(language: str) -> str:
    sections = [(kind, texts[language]) for kind, texts in runbooks.sections().items()]
    parts = [f"### {kind}\n\n**{one.first_step}**\n\n{one.markdown}\n" for kind, one in sections]
    return "\n".join([_HEADS[language], *parts])
