"""Feed's pages with one of everything, in a real browser: on a telephone, at a desk, at night."""

import pytest
from playwright.sync_api import StorageState

from tests.browser.tabs import Tab
from tests.browser.walk import Walk
from tests.browser.web_server.conftest import Ids
from tests.cluster import Cluster

# The scheduler's decision is forgotten within seconds.
DECIDED = """
import json
from tests.support import feed_rows
feed_rows.publish()
print(json.dumps(True))
"""
FIND, USERS = "/console/search/feed", "/admin/feed/eventqueue/users/"
EVENTS = "/admin/feed/eventqueue/"
PATHS = (
    f"{EVENTS}scheduler/", FIND, f"{FIND}?user=ann", f"{FIND}?user=nobody", "/console/feed/{post}",
    "/console/feed/{vip}", "/console/feed/{deleted}", "/console/feed/{aside}",
    "/console/feed/{merged}", EVENTS, f"{EVENTS}?status__exact=3", f"{EVENTS}{{aside}}/change/",
    f"{EVENTS}{{waiting}}/change/", USERS, f"{USERS}?system=orders&uid=bob",
    f"{USERS}?system=orders&uid=bob&post={{aside}}",
    f"{USERS}?system=orders&uid=ann&show=followers", f"{USERS}?system=nothing&uid=a%20b",
    f"{USERS}?system=orders&uid={{long}}", "/console/statistics?flow=feed&period=7d&step=day",
)  # fmt: skip
# On a wide screen the whole row of a list is seen without scrolling.
SCROLLS = """[...document.querySelectorAll("#result_list")].map(list =>
    list.scrollWidth - list.closest("[class*=overflow], form").clientWidth).filter(n => n > 1)"""


@pytest.fixture(scope="module")
def walk(platform: Cluster, tab: Tab, admin: StorageState, ids: Ids) -> Walk:
    platform.script(DECIDED)
    paths = [path.format(**ids["feed"], long="u" * 64) for path in PATHS]
    with tab.of(admin) as page:
        return Walk(platform.base_url).visit(page, paths, SCROLLS)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_page_fits(walk: Walk, theme: str) -> None:
    assert walk.misfits[theme] == {}
    assert walk.foreign == set()
