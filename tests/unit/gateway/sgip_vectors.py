"""Frames of SGIP 1.2 with the fields that they hold: vectors of the specification."""

import json
from pathlib import Path
from typing import Any

FILE = Path(__file__).parents[2] / "vectors" / "sgip_vectors.json"


VECTORS: list[dict[str, Any]] = json.loads(FILE.read_text(encoding="utf-8"))
