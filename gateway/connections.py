"""The Redis of SMS."""

import redis

from msgplatform.core.connections import RedisRole

SMS = RedisRole("sms", "SMS_REDIS_URL", is_truth=True)


def sms_redis() -> redis.Redis:
    """The Redis that has the messages of SMS until they are archived (SMS_REDIS_URL)."""
    return SMS.client()
