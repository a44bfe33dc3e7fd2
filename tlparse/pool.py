"""How many processes, or the address of a cluster, goes in; who reads the logs comes out."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Final

from tc.tlparse.usage import Usage
from tc.trace.archives import SEPARATOR
from tc.trace.reader import STDIN, find_logs

_WORTH_IT: Final = 30_000_000  # bytes of logs; for less, starting a process takes longer
_PATIENCE: Final = "10s"


@contextmanager
def readers(trace: str, jobs: int | None, cluster: str) -> Iterator[Executor | None]:
    """Give the processes that read the logs of a trace; None: this one does it alone.

    Args:
        jobs: how many processes; None chooses by the size of the logs.
        cluster: the address of a Dask cluster whose workers see the same files.

    Raises:
        Usage: no cluster responds there, or Dask is not installed.
    """
    if cluster:
        with _cluster(cluster) as executor:
            yield executor
        return
    many = _wanted(trace) if jobs is None else jobs
    if many < 2:
        yield None
        return
    with ProcessPoolExecutor(many) as pool:
        yield pool


def _wanted(trace: str) -> int:
    logs = [] if trace == STDIN else find_logs(trace)
    files = {log.partition(SEPARATOR)[0] if not os.path.exists(log) else log for log in logs}
    size = sum(os.path.getsize(file) for file in files)
    return min(len(logs), os.cpu_count() or 1) if size >= _WORTH_IT else 1


@contextmanager
def _cluster(address: str) -> Iterator[Executor]:
    try:
        client_of: Any = import_module("distributed").Client
    except ImportError as error:
        raise Usage("--cluster needs Dask: pip install 'tc-compile[cluster]'") from error
    logging.getLogger("distributed").setLevel(logging.CRITICAL)  # the one sentence below is enough
    try:
        client = client_of(address, timeout=_PATIENCE)
    except (OSError, ValueError, TimeoutError) as error:
        raise Usage(f"no Dask cluster answers at {address}") from error
    with client, client.get_executor() as executor:
        yield executor
