#!/usr/bin/env bash
# Every test: units and integration on SQLite, then everything on MariaDB.
set -euo pipefail
cd "$(dirname "$0")/.."

python=.venv/bin/python
TEST_DATABASE=sqlite "$python" -m pytest tests/unit tests/integration
TEST_DATABASE=mariadb "$python" -m pytest tests
