"""The settings of a subscription and of its consumer; no I/O.

limits     the values that they may have
matching   the messages that a subscription's filter lets through
signing    the signatures of requests
shown      the form of a URL or a header that people may see
"""
