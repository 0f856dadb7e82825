"""Real traffic through Notify, accounted for by the client's and the sinks' own records."""

from notify.demo.run import run_demo

__all__ = ["run_demo"]
