"""stream-framework (GPL, 1.4.0 of 2017 is its last release): feeds in Redis, as a program."""
