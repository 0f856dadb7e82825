"""The demo: the platform with real traffic through every flow.

`manage.py demo` calls `show`, which starts the platform and lets the scenarios of the flows play
side by side; `run` is what a scenario sees of it. A scenario has a business system's program
(`script`, by `connection`), consumers that write down their messages (`sink`), and an account of
what arrived (`account`). Tests use these parts, too. The product imports nothing of it.
"""
