"""Who takes part: a town of ordinary people, a page that everybody may follow, a celebrity."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from msgplatform.api.access import keys
from msgplatform.models import Biz

PAGE, STAR = "town-hall", "film-star"
_FRIENDS_MADE = 26  # by each user, who has about twice as many then
_FOLLOWED = 6
_SEED = 20261122


@dataclass(frozen=True)
class Scenario:
    """`people` are the users. What happens between them is by `chance`, which is the same in each
    run."""

    people: list[str]
    chance: random.Random = field(default_factory=lambda: random.Random(_SEED))  # noqa: S311

    @property
    def readers(self) -> list[str]:
        return [*self.people, PAGE, STAR]

    @property
    def newcomers(self) -> list[str]:
        """People who come for the first time when everything is over."""
        return self.people[7::20]

    @property
    def travellers(self) -> list[str]:
        """People who came once, stay away for long, and come back in the middle of it."""
        return self.people[3::20]

    def relations(self) -> list[tuple[str, str, str]]:
        """(action, uid, other): friendships at random; a third follow the page, nearly all follow
        the star, and everybody follows a few others."""
        made: dict[tuple[str, str, str], None] = {}
        for uid in self.people:
            for other in self._others(uid, _FRIENDS_MADE):
                if ("befriend", other, uid) not in made:
                    made["befriend", uid, other] = None
            for other in self._others(uid, _FOLLOWED):
                made["follow", uid, other] = None
        for number, uid in enumerate(self.people):
            if number % 3 == 0:
                made["follow", uid, PAGE] = None
            if number % 20:
                made["follow", uid, STAR] = None
            if number % 50 == 0:
                made["befriend", uid, STAR] = None
        return list(made)

    def _others(self, uid: str, count: int) -> list[str]:
        some = self.chance.sample(self.people, min(count + 1, len(self.people)))
        return [other for other in some if other != uid][:count]


def people(count: int) -> list[str]:
    return [f"citizen-{number:04d}" for number in range(count)]


def create() -> tuple[int, str]:
    """The business system's id, and an API key of it."""
    biz, _ = Biz.objects.get_or_create(name="town", defaults={"title": "Town"})
    return biz.pk, keys.create(biz, "demo", ["feed:write", "feed:read"])[1]
