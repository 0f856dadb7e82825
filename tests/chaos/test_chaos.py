"""Everything at once, in all four flows: two of each program are killed, and frozen beyond their
lease; the Redis servers and the database are killed and hang; the work Redis is emptied; both are
full or refuse all writes, and the disk is full; the second machine's clock steps; a consumer
answers with a text that its column does not hold.

`make chaos` blows five rounds of 150 seconds; every run of the tests a short one. The accounts are
those of the clients, the consumers, the simulated gateways, the CRMs and the readers.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.platform import ChaosPlatform
from tests.chaos.storm import Storm
from tests.chaos.traffic import traffic

ROUNDS = int(os.environ.get("CHAOS_ROUNDS", "1"))
SECONDS = float(os.environ.get("CHAOS_SECONDS", "30"))
# `make chaos` blows another storm each time.
SEED = int(os.environ.get("CHAOS_SEED", "20261126"))
# Of the whole traffic: who strikes, and what is counted, is the same with an eighth of it.
IS_WHOLE = os.environ.get("CHAOS_ROUNDS") or os.environ.get("MSGPLATFORM_FULL_LOAD")
SHARE = 1.0 if IS_WHOLE else 0.125
# Seconds, of a consumer that is always well: `make chaos` asks for it on a machine of its own.
MAX_GAP = float(os.environ.get("CHAOS_MAX_GAP", "300"))
LOGS = os.environ.get("CHAOS_LOGS", "")  # folder that keeps the logs of the programs


@pytest.fixture
def platform() -> Iterator[ChaosPlatform]:
    # Short, because a socket's path may have only 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="mp-chaos-"))
    with ChaosPlatform(folder) as running:
        yield running
        for log in folder.glob("*.log") if LOGS else []:
            shutil.copy(log, Path(LOGS))
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize("number", range(ROUNDS))
def test_nothing_is_lost_and_no_ending_goes_back(platform: ChaosPlatform, number: int) -> None:
    print(f"CHAOS_SEED={SEED + number}", flush=True)
    with traffic(platform, SHARE) as clients:
        storm = Storm(platform, clients.sinks, SEED + number)
        clients.start()
        try:
            storm.blow(SECONDS)
            # The gateway that said nothing tells what became of its messages.
            platform.manners["bay"] = []
            platform.restart("bay")
        finally:
            clients.stop()
        longest, of_notify = clients.check_notify(storm.may_repeat)
        accounts = (clients.check_sms(), clients.check_crm_sync(), clients.check_feed())
        of_answers = f"{platform.unlogged_count()} answers that could not be stored"
        lines = [str(dict(storm.strikes)), of_notify, of_answers, *accounts]
        print("\n".join(lines), flush=True)
        assert longest < MAX_GAP
