"""System checks of Notify's settings."""

import pytest
from pytest_django import Settings

from notify import checks


@pytest.mark.parametrize(
    ("keep", "keep_failed", "archive"), [(1, 1, 3), (1, 1, 10), (10, 1, 9), (0, 0, 3)]
)
def test_an_archive_that_forgets_before_the_last_retry_is_refused(
    settings: Settings, keep: float, keep_failed: float, archive: int
) -> None:
    settings.NOTIFY_KEEP_DAYS, settings.NOTIFY_KEEP_FAILED_DAYS = keep, keep_failed
    settings.NOTIFY_ARCHIVE_DAYS = archive
    (found,) = checks.archive_outlasts_retries(None)
    assert (found.id, "to 11 or more" in str(found.hint)) == ("notify.E002", True)
    for days in (11, 0):
        settings.NOTIFY_ARCHIVE_DAYS = days
        assert checks.archive_outlasts_retries(None) == []
    settings.NOTIFY_ARCHIVE_DAYS, settings.NOTIFY_KEEP_FAILED_DAYS = 1, 30
    assert checks.archive_outlasts_retries(None) == []
