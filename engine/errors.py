"""Errors a user can act on."""


class EngineError(Exception):
    """Bad input or a missing capability: one line that says what is wrong and what to do.

    The raw cause, where there is one, is chained as ``__cause__`` and shown under ``--debug`` only.
    """


def shortened(value: object) -> str:
    """How an error's line quotes a value that a file states: its repr, in 40 characters at most."""
    text = repr(value)
    return text if len(text) < 40 else text[:37] + "..."


class Cancelled(Exception):
    """The caller's cancel event was set; what was done until then stays usable."""
