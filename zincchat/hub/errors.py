"""What goes wrong with a hub, as one line that says what to do."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from zincchat.hub.endpoint import check_endpoint
from zincchat.hub.reference import Reference
from zincchat.setup.errors import SetupError

_SIGN_IN = "set HF_TOKEN, or run 'hf auth login'"


@contextmanager
def hub_errors(reference: Reference) -> Iterator[None]:
    """Turn what huggingface_hub, the connection and the disk raise into SetupError; the cause is chained."""
    check_endpoint()
    import httpx2

    try:
        yield
    except (httpx2.HTTPError, OSError, ValueError) as error:
        raise SetupError(_line(error, reference), str(error)) from error


def is_unreachable(error: BaseException) -> bool:
    """Whether the hub could not be asked at all: offline mode, or no connection."""
    import httpx2
    from huggingface_hub.errors import OfflineModeIsEnabled

    return isinstance(error, (OfflineModeIsEnabled, httpx2.TransportError))


def _line(error: BaseException, reference: Reference) -> str:
    import httpx2
    from huggingface_hub import constants, errors, get_token

    repo, hub = reference.repo, constants.ENDPOINT
    if isinstance(error, errors.LocalEntryNotFoundError) and error.__cause__ is not None:
        return _line(error.__cause__, reference)  # it stands for why the hub could not be asked
    if isinstance(error, errors.HFValidationError):
        return f"{repo!r} is not a name that a hub's model can have"
    if isinstance(error, errors.GatedRepoError):
        if get_token() is None:
            return f"{repo} is gated: accept its terms at {hub}/{repo} and {_SIGN_IN}"
        return f"{repo} is gated and your token's account has no access: ask for it at {hub}/{repo}"
    if isinstance(error, errors.RepositoryNotFoundError):
        private = f"if it is private, {_SIGN_IN}" if get_token() is None else "or your token may not see it"
        return f"{hub} has no model {repo}: check the name; {private}"
    if isinstance(error, errors.RevisionNotFoundError):
        return f"{repo} has no main branch: there is nothing to pull"
    if isinstance(error, errors.EntryNotFoundError):
        return f"{repo} no longer has a file that it listed: pull it again"
    if isinstance(error, errors.OfflineModeIsEnabled):
        return f"{reference} is not on this machine and HF_HUB_OFFLINE forbids fetching it: unset it and try again"
    if isinstance(error, errors.HfHubHTTPError):
        return _status_line(error.response.status_code, repo, hub)
    if isinstance(error, httpx2.TransportError):
        return f"the connection to {hub} failed: check the network (and HF_ENDPOINT); what came so far is kept"
    if isinstance(error, OSError) and error.errno is not None:
        return _disk_line(error)
    return f"{hub} gave an answer that makes no sense for {repo}: check HF_ENDPOINT and any proxy, and try again"


def _status_line(status: int, repo: str, hub: str) -> str:
    if status == 401:
        return f"{hub} does not accept your token: renew it ({_SIGN_IN})"
    if status == 403:
        return f"{hub} refuses {repo} to your token: check the token's permissions"
    if status == 429:
        return f"{hub} asks for fewer requests: try again later, or {_SIGN_IN}"
    return f"{hub} answered with status {status} for {repo}: try again later; what came so far is kept"


def _disk_line(error: OSError) -> str:
    from zincchat.hub.cache import cache_folder

    folder = cache_folder()
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"the disk of {folder} is full: free some space, or set HF_HUB_CACHE to a folder on another disk"
    return f"{error.filename or folder}: {error.strerror}: make it writable, or set HF_HUB_CACHE to another folder"
