"""The short messages of the bench `sms`: everything about one follows from its number.

Standard library only. Each has its own text, as a code for one user has, so that no two share a
Submit.
"""


def recipient(number: int) -> str:
    """The mobile number as a caller writes it."""
    return f"138{number % 100_000_000:08d}"


def text(number: int) -> str:
    return f"您的验证码是 {number:07d}，请勿告诉他人。"


def key(prefix: str, number: int) -> str:
    """The idempotency key, which is also the reference."""
    return f"{prefix}-{number}"


def item(prefix: str, number: int) -> str:
    """One message of a batch, as JSON."""
    name = key(prefix, number)
    return (
        f'{{"to":"{recipient(number)}","text":"{text(number)}",'
        f'"reference":"{name}","idempotency_key":"{name}"}}'
    )
