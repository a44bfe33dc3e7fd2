"""What every command needs: a path goes in; a diagnosis, a written file, printed text come out."""

from __future__ import annotations

import atexit
import glob
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

from tc.tlparse.usage import Usage
from tc.trace.delivery import complain
from tc.trace.files import is_replaceable, is_stdout, replace_file
from tc.trace.reader import STDIN

if TYPE_CHECKING:  # imported when needed: `--help` must be fast
    from tc.trace.findings import Diagnosis

GATE_FAILED: Final = 1
UNREADABLE: Final = 3


def load(
    trace: str,
    *,
    all_runs: bool = False,
    redact: str = "",
    jobs: int | None = None,
    cluster: str = "",
) -> Diagnosis:
    """Read a trace and find its causes; warn on stderr if it is damaged.

    Args:
        redact: what to leave out, `source,paths,names` or some of them.
        jobs: how many processes read the logs; None chooses by their size.
        cluster: the address of a Dask cluster that reads them.
    """
    from tc.tlparse.pool import readers
    from tc.trace.findings import diagnose
    from tc.trace.session import load as read

    if trace != STDIN and not os.path.exists(trace) and not glob.has_magic(trace):
        raise Usage(f"{trace} does not exist")
    if redact:
        diagnosis = _redacted(trace, redact, all_runs)
    else:
        with readers(trace, jobs, cluster) as executor:
            session = read(trace, all_runs=all_runs, executor=executor)
        diagnosis = diagnose(session)
    damaged = sum(diagnosis.session.defects.counts.values())
    if damaged:
        kinds = ", ".join(
            f"{kind.replace('_', ' ')} {n}"
            for kind, n in sorted(diagnosis.session.defects.counts.items())
        )
        complain(f"tc-report: warning: the trace is damaged: {kinds}")
    return diagnosis


def _redacted(trace: str, what: str, all_runs: bool) -> Diagnosis:
    """Read a redacted copy, so that nothing after this point knows the original.

    Which fixes are advised also depends on the program's files: these are still looked at.
    """
    from tc.tlparse.redact import KINDS, redact
    from tc.trace.branches import seen_through
    from tc.trace.findings import diagnose
    from tc.trace.session import load as read

    kinds = [one.strip() for one in what.split(",") if one.strip()]
    unknown = [one for one in kinds if one not in KINDS]
    if unknown or not kinds:
        raise Usage(f"--redact takes some of {','.join(KINDS)}, not {what!r}")
    folder = tempfile.mkdtemp(prefix="tc-report-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)  # the report reads texts from it
    copy = Path(folder) / "redacted"
    copy.mkdir()
    redactor = redact(trace, kinds, copy)
    with seen_through(redactor.original):
        diagnosis = diagnose(read(copy, all_runs=all_runs))
    left_out = ",".join(kinds)
    findings = [replace(one, redacted=left_out) for one in diagnosis.findings]
    return replace(diagnosis, findings=findings)


def beside(trace: str) -> Path:
    """Return where the report of a trace goes."""
    if trace == STDIN:
        return Path("tc_report.html")
    path = Path(trace)
    return (path if path.is_dir() else path.parent) / "tc_report.html"


def write(target: Path, pieces: Iterable[bytes], option: str) -> None:
    """Write a file that the user named; a regular one is replaced in one step.

    Args:
        option: what the file is named with, for whoever has to name another.
    """
    try:
        replace_file(target, pieces)
    except BrokenPipeError:
        if not is_stdout(target):
            raise Usage(f"cannot write {target}: its reader has closed it") from None
        raise  # whoever read the output has seen enough
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        text = f"cannot write {target}: {why}; choose another place with {option} FILE"
        raise Usage(text) from error


def write_folder(target: Path, pieces: Iterable[tuple[str, bytes]]) -> None:
    """Write files to a folder that takes the place of an earlier report in one step."""
    target = Path(os.path.realpath(target))  # a link stays, and what it names is replaced
    try:
        if target.exists() and any(not _is_of_report(one) for one in target.iterdir()):
            raise Usage(f"{target} holds other files; choose another place with -o FILE")
        made = Path(tempfile.mkdtemp(prefix=".tc_report-", dir=target.parent))
        try:
            for name, content in pieces:
                (made / name).write_bytes(content)
            made.chmod(0o755)
            shutil.rmtree(target, ignore_errors=True)
            made.rename(target)
        except BaseException:
            shutil.rmtree(made, ignore_errors=True)
            raise
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise Usage(f"cannot write {target}: {why}; choose another place with -o FILE") from error


def _is_of_report(file: Path) -> bool:
    return file.suffix == ".js" and file.name.startswith(("block-", "code-"))


def is_file(target: Path) -> bool:
    """Return whether a report at this place is a file, beside which others can be put."""
    try:
        return is_replaceable(target)
    except OSError:
        return True  # what is wrong with it is said where it is written


def say(text: str, file: TextIO | None = None) -> None:
    """Print what this terminal can show of a text, on stdout if nothing else is named."""
    from tc.tlparse.summary import plain

    file = file or sys.stdout
    print(plain(text, file.encoding), file=file)


def beside_report(target: Path) -> TextIO:
    """Return where what is said of a report goes: not into the report, where that is stdout."""
    return sys.stderr if is_stdout(target) else sys.stdout
