# pytest file: holds platform B running
import json, time, pathlib
def test_hold(platform, admin, ids):
    pathlib.Path("/tmp/bb/exp/state.json").write_text(json.dumps({"base": platform.base_url, "state": admin, "ids": ids}))
    stop = pathlib.Path("/tmp/bb/exp/stop")
    while not stop.exists(): time.sleep(1)
