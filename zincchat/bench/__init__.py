"""``zincchat bench``: what is measured, in which order, and how it is told; docs/bench.md says how and why."""
