#!/usr/bin/env python3
"""Django's command line: `python manage.py help` lists the platform's commands."""

from msgplatform.__main__ import main

if __name__ == "__main__":
    main()
