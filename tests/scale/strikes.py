"""How often, how long and how hard servers are struck.

SCALE_SHARE=yes is the share that `make test` runs beside its other tests: one kill of each engine,
under a small load. It judges whether anything is lost or comes twice; a gap is printed, because the
other tests take the machine's time.
"""

import math
import os

IS_SHARE = os.environ.get("SCALE_SHARE") == "yes"
RUNS = 1 if IS_SHARE else int(os.environ.get("SCALE_RUNS", "2"))
# Seconds without an accepted message, or without a delivery.
MAX_GAP = math.inf if IS_SHARE else float(os.environ.get("SCALE_MAX_GAP", "6"))
# Seconds of load before and after a strike.
CALM_SECONDS = 2.0 if IS_SHARE else 5.0
# Seconds until another server has taken over, on a machine that does other things.
PATIENCE_SECONDS = 300.0
