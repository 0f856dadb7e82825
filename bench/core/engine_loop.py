"""POST every line of a file through the platform's HTTP engine; what `http-engine` measures."""

from pathlib import Path

from bench.harness.programs import worker

_TIMEOUT_SECONDS = 15.0


def main() -> None:
    parser = worker.options("POST every line of a file through the HTTP engine.")
    parser.add_argument("--url", required=True)
    parser.add_argument("--bodies", type=Path, required=True)
    parser.add_argument("--in-flight", type=int, required=True)
    options = parser.parse_args()
    worker.set_up_django()
    from msgplatform.core.http.engine import Request, engine_from_settings

    stop = worker.Stop()
    bodies = options.bodies.read_bytes().split(b"\n")
    bodies.reverse()  # `pop` takes the last one at no cost
    headers = [("content-type", "application/json")]
    engine = engine_from_settings(window=options.in_flight)
    while engine.in_flight or (bodies and not stop):
        for _ in range(0 if stop else min(engine.free, len(bodies))):
            engine.submit(Request(options.url, bodies.pop(), headers, _TIMEOUT_SECONDS))
        done = engine.poll(0.1)
        if any(response.status != 200 for response in done):
            raise SystemExit(f"a request failed: {done}")
        options.progress.add(len(done))
    engine.close()
    stop.wait()


if __name__ == "__main__":
    main()
