"""The limit of delivery: one thread, one CurlMulti, a fixed number of handles used again and again.

Bodies are in memory. Nothing is signed, no address is checked, no answer is read beyond its status,
no result is reported.
"""

from pathlib import Path

import pycurl

from bench.harness.programs import worker


def main() -> None:
    parser = worker.options("POST every line of a file.")
    parser.add_argument("--url", required=True)
    parser.add_argument("--bodies", type=Path, required=True)
    parser.add_argument("--in-flight", type=int, required=True)
    options = parser.parse_args()
    stop = worker.Stop()
    bodies = options.bodies.read_bytes().split(b"\n")
    bodies.reverse()
    multi = pycurl.CurlMulti()
    idle = [_handle(options.url) for _ in range(options.in_flight)]
    in_flight = 0
    while in_flight or (bodies and not stop):
        while idle and bodies and not stop:
            handle = idle.pop()
            handle.setopt(pycurl.POSTFIELDS, bodies.pop())
            multi.add_handle(handle)
            in_flight += 1
        multi.perform()
        done = _finished(multi)
        for handle in done:
            multi.remove_handle(handle)
            if handle.getinfo(pycurl.RESPONSE_CODE) != 200:
                raise SystemExit(f"HTTP {handle.getinfo(pycurl.RESPONSE_CODE)}")
        idle += done
        in_flight -= len(done)
        options.progress.add(len(done))
        if not done:
            multi.select(0.1)
    stop.wait()


def _handle(url):
    handle = pycurl.Curl()
    handle.setopt(pycurl.URL, url)
    handle.setopt(pycurl.POST, 1)
    handle.setopt(pycurl.HTTPHEADER, ["content-type: application/json"])
    handle.setopt(pycurl.WRITEFUNCTION, len)
    return handle


def _finished(multi):
    done = []
    while True:
        left, succeeded, failed = multi.info_read(64)
        if failed:
            raise SystemExit(f"a transfer failed: {failed[0][1:]}")
        done += succeeded
        if not left:
            return done


if __name__ == "__main__":
    main()
