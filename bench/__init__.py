"""Benchmarks: every step of a flow beside what one would write instead, in one run.

A module of `core/`, `notify/`, `gateway/` or `crmsync/` with a `NAME` is a bench: it says in
`ABOUT` what is measured and gives in `sides()` the ways of doing the work, ours first.
`python manage.py bench` finds it.

`harness/` has what runs them:

    catalogue   which benches there are            ground      private servers and the environment
    measure     one stretch: start, count, check   processes   real processes, their CPU and memory
    outcome     medians, ratios, the JSON object   report      docs/benchmarks.md
    batch       work with an end: the time until all of it is done
    load, sink, drain   programs that produce or take in the work

`references/` has what ours is compared with; `environment` installs what must not be mixed with
the platform's own packages.
"""
