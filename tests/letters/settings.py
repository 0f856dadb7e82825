"""The settings of letters."""

from msgplatform import env

# The Redis of letters.
LETTERS_REDIS_URL = env.redis_url("LETTERS_REDIS_URL", "letters.sock")
LETTERS_REDIS_EMBEDDED = not env.secret("LETTERS_REDIS_URL")
# What a letter costs, as `doctor` says it.
LETTERS_STAMP = env.text("LETTERS_STAMP", "80 fen")
