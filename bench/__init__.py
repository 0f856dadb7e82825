"""Benchmarks: every step of a flow beside what one would write instead, in one run.

A module of `core/`, `notify/`, `feed/`, `gateway/` or `crmsync/` with a `NAME` is a bench: its
`ABOUT` says what is measured, its `sides()` are the ways of doing the work, ours first.
`python manage.py bench` finds it.

`harness/` has what runs them:

    catalogue   which benches there are            ground      private servers and the environment
    measure     one stretch: start, count, check   processes   real processes, their CPU and memory
    outcome     medians, ratios, the JSON object   report      the document
    batch       work with an end: the time until all of it is done
    interleave  all stretches of a bench, in turns
    programs/   programs that make or take in the work: load, sink, drain

`references/` has what ours is compared with; `environment` installs what must not be mixed with
the platform's own packages.
"""
