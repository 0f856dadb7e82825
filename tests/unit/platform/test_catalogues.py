"""The Chinese texts: whatever a catalogue has is translated, and compiled as it stands.

That a catalogue has every text of the code is what `scripts/messages.sh --check` says.
"""

import ast
import gettext
import re
import subprocess
from pathlib import Path

import django
import pytest
from django.conf import settings
from django.template import engines
from django.template.loader import render_to_string
from django.utils import translation

from crmsync.admin.setup import crm_form, policy_trial
from crmsync.monitor.activity import ACTIVITY as CRM
from gateway import codes
from gateway.messages import page as sms_page
from gateway.messages.states import TITLES, ending_reason
from gateway.models import SgipMt
from gateway.monitor.activity import ACTIVITY
from msgplatform.company.alerting.setup import AlertRuleResource
from msgplatform.core import durations, flows
from msgplatform.doors.admin.platform import alerts
from msgplatform.doors.admin.sandbox_pages import BehaviourForm
from msgplatform.doors.console.statistics.form import StatisticsForm
from msgplatform.monitor import failure_groups
from notify.models import ReceiveMsg
from notify.monitor import counters
from notify.monitor.activity import ACTIVITY as NOTIFY

# Texts of several apps that mean the same in each of them.
SHARED = Path(__file__).with_name("shared_texts.txt")
PACKAGES = ("msgplatform", "notify", "gateway", "crmsync")
_RENAMED = re.compile(r"\bn?p?gettext(?:_lazy|_noop)? as (\w+)")
_MARKS = re.compile(r"_|n?p?gettext(_lazy|_noop)?|lazy_message")
CATALOGUES = [Path(folder) / "zh_Hans/LC_MESSAGES/django.po" for folder in settings.LOCALE_PATHS]


@pytest.mark.parametrize("source", CATALOGUES, ids=lambda path: path.parts[-4])
def test_a_catalogue_is_complete_and_compiled(source: Path, tmp_path: Path) -> None:
    compiled = tmp_path / "django.mo"
    command = ["msgfmt", "--check-format", "--statistics", f"--output-file={compiled}", str(source)]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stderr
    assert "translated message" in said
    assert "fuzzy" not in said, said
    assert "untranslated" not in said, said
    current = source.with_suffix(".mo").read_bytes()
    assert compiled.read_bytes() == current, "run scripts/messages.sh"


def test_texts_of_the_theme_and_of_django_are_chinese() -> None:
    source = "{% load i18n %}{% translate 'Welcome back to' %} {% translate 'Log in' %}"
    with translation.override("zh-hans"):
        assert engines["django"].from_string(source).render() == "欢迎回到 登录"


@pytest.mark.parametrize("language", ["en", "zh-hans"])
def test_numbers_have_their_groups_in_each_language(language: str) -> None:
    with translation.override(language):
        assert (
            engines["django"]
            .from_string("{% load formats %}{{ 1688800|grouped }} {{ 999|grouped }}")
            .render()
            == "1,688,800 999"
        )


def test_texts_are_marked_by_names_that_makemessages_knows() -> None:
    """Under another name a text stays out of the catalogues, and nobody translates it."""
    sources = [path for name in PACKAGES for path in (settings.BASE_DIR / name).rglob("*.py")]
    names = {path.name: set(_RENAMED.findall(path.read_text())) - {"_"} for path in sources}
    assert len(names) > 200
    assert {path: found for path, found in names.items() if found} == {}


def test_no_text_is_marked_in_an_f_string() -> None:
    """makemessages does not look into them."""
    marks = [
        f"{path}:{call.lineno}"
        for name in PACKAGES
        for path in (settings.BASE_DIR / name).rglob("*.py")
        for string in ast.walk(ast.parse(path.read_text()))
        if isinstance(string, ast.JoinedStr)
        for call in ast.walk(string)
        if isinstance(call, ast.Call) and _MARKS.fullmatch(ast.unparse(call.func))
        if call.args and isinstance(call.args[0], ast.Constant)
    ]
    assert marks == []


# Texts of Django's that are the platform's on its own pages too, in words that suit both.
REPLACED = {"Add %(name)s", "Are you sure?", "Change", "English", "Filter", "Remove"}


def test_a_text_of_django_s_keeps_its_translation() -> None:
    """The platform's catalogues go before Django's, whose pages would get other words."""
    replaced = set()
    for part in ("conf", "contrib/admin", "contrib/auth"):
        path = Path(django.__file__).parent / part / "locale/zh_Hans/LC_MESSAGES/django.mo"
        with path.open("rb") as file:
            catalogue = gettext.GNUTranslations(file)
        with translation.override("zh-hans"):
            replaced |= {
                text
                for text in short_texts()
                if catalogue.gettext(text) not in (text, translation.gettext(text))
            }
    assert replaced == REPLACED


def app_of(source: str) -> str:
    """notify/feed/models/x.py → feed; templates/admin/gateway/x.html → gateway."""
    parts = source.split("/")
    if parts[:2] == ["notify", "feed"]:
        return "feed"
    if parts[0] != "templates":
        return parts[0]
    (app, *_) = [part for part in parts[1:-1] if part in (*PACKAGES, "feed")] or ["msgplatform"]
    return app


def short_texts() -> dict[str, set[str]]:
    """Texts of up to three words without a context → the apps that have them."""
    found = {}
    for entry in CATALOGUES[0].read_text().split("\n\n"):
        text = re.search(r'^msgid "(.+)"$', entry, re.MULTILINE)
        if text and "msgctxt" not in entry and len(text[1].split()) <= 3:
            sources = " ".join(re.findall(r"^#: (.*)$", entry, re.MULTILINE)).split()
            found[text[1]] = {app_of(source) for source in sources}
    return found


def test_a_text_of_several_apps_means_the_same_in_each() -> None:
    """Short texts are the ambiguous ones: From is a time, or a sender. Where it is not the same,
    `pgettext` gives it a context; where it is, a line in shared_texts.txt says so."""
    several = {text for text, apps in short_texts().items() if len(apps) > 1}
    assert len(several) > 50
    assert several - set(SHARED.read_text().splitlines()) == set()


@pytest.mark.parametrize("seconds", [2.5, 42, 250, 9000, 200_000])
def test_ages_are_chinese(seconds: float) -> None:
    with translation.override("zh-hans"):
        assert re.fullmatch(r"[0-9.]+ (秒|分钟|小时|天)", durations.age(seconds))


def test_answers_are_chinese() -> None:
    with translation.override("zh-hans"):
        assert failure_groups.answer_title("not tried, breaker open") == "未尝试，熔断器打开"
        assert failure_groups.answer_title("poison: invalid") == "异常：数据无效"
        assert failure_groups.answer_title("HTTP 503") == "HTTP 503"
        assert NOTIFY.answer is not None
        assert NOTIFY.answer(f"{counters.ANSWER}timeout") == "超时"
        assert CRM.answer is not None
        assert CRM.answer("failed:invalid") == "数据无效"
    assert failure_groups.answer_title("poison: invalid") == "poison: invalid"


def test_a_title_in_any_language_means_one_answer() -> None:
    """A job, which runs in English, reads the filter of a person."""
    answers = {"HTTP 503", "poison: invalid", "result 5", "no link", *failure_groups.ANSWER_NAMES}
    for language in ("en", "zh-hans"):
        with translation.override(language):
            titles = {answer: failure_groups.answer_title(answer) for answer in answers}
        assert {title: failure_groups.answer_name(title) for title in titles.values()} == {
            title: answer for answer, title in titles.items()
        }
        assert len(set(titles.values())) == len(answers)


def test_a_gateway_s_codes_are_chinese() -> None:
    """Also where the archive has the meaning in English beside the code."""
    row = SgipMt(final=SgipMt.Final.FAILED, error_code=11, error="Node busy")
    with translation.override("zh-hans"):
        assert codes.with_meaning(11) == "11 节点忙"
        assert codes.with_meaning(200) == "200 网关自定义的代码"
        assert ending_reason(row) == "11 节点忙"
        assert sms_page.Step.of_report(None, 1, 1, 2, 29).answer == "29 用户不存在"
        assert ACTIVITY.answer is not None
        assert ACTIVITY.answer("error 11") == "11: 节点忙"
    assert codes.with_meaning(11) == "11 Node busy"
    assert codes.with_meaning(0) == ""


@pytest.mark.parametrize(
    ("word", "others"),
    [
        ("breaker", "断开"),  # it reads as the opposite of 打开
        (r"\bpayload", "载荷|负载"),
        ("erasure", "删除"),
        (r"\bchannel", "渠道"),
        ("runbook", "运行手册"),
        ("page Failures", "“失败”"),
        ("no such header", "请求头"),
    ],
)
def test_a_thing_has_the_word_of_its_page(word: str, others: str) -> None:
    entries = [entry.partition("\nmsgstr") for entry in CATALOGUES[0].read_text().split("\n\n")]
    pattern = re.compile(rf"^msgid[^#]*{word}", re.IGNORECASE | re.MULTILINE)
    texts = [text for source, _msgstr, text in entries if pattern.search(source)]
    assert texts
    assert [text for text in texts if re.search(others, text)] == []


def test_one_word_that_has_two_meanings() -> None:
    notify = flows.get("notify")
    assert notify
    with translation.override("zh-hans"):
        assert str(notify.actions["resend"].title) == "重新发送失败的投递"
        assert str(StatisticsForm.base_fields["since"].label) == "开始"
        assert str(ReceiveMsg.Status.PENDING.label) == "待投递"
        assert str(TITLES["pending"]) == "待发送"
        assert str(policy_trial.FATES["delete"][0]) == "将删除"
        assert str(dict(alerts.StateFilter.options)["open"]) == "未解决"
        assert str(BehaviourForm.base_fields["delay"].label) == "延迟"
        assert "发送频率" in [str(title) for title, _names in AlertRuleResource.groups]
        part = {"steps": [({"title": "", "done": False}, "/")]}
        assert ">打开</a>" in render_to_string("console/first_steps.html", {"part": part})


def test_help_with_a_crm_s_settings_is_chinese() -> None:
    with translation.override("zh-hans"):
        texts = re.findall(r"<p>(?!<button)(?:<b>.*?</b>: )?(.*?)</p>", crm_form.settings_help())
    assert len(texts) > 15
    assert [text for text in texts if not re.search("[一-鿿]", text)] == []
