"""No part of an alert channel's address stands in what is said of it."""

import pytest

from msgplatform.company.alerting.send import without_secrets


@pytest.mark.parametrize(
    ("url", "secrets"),
    [
        (
            "sendgrid://SG.abcd1234.efgh5678:u:pass.word@example.com",
            ("SG.abcd1234.efgh5678", "pass.word"),
        ),
        ("mailto://me:pass.word@example.com?smtp=mail.example.com", ("pass.word",)),
        ("slack://T0A/B0B/tok.en.with.dots", ("tok.en.with.dots",)),
    ],
)
def test_secrets_with_dots(url: str, secrets: tuple[str, ...]) -> None:
    said = without_secrets(f"refused: {' and '.join(secrets)} at mail.example.com", url)
    assert not any(secret in said for secret in secrets)


def test_a_host_stays() -> None:
    url = "mailto://me:secret@example.com?smtp=mail.example.com"
    assert without_secrets("mail.example.com refused secret", url) == "mail.example.com refused …"
