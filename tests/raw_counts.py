"""What a log holds, counted from its lines alone: nothing of `tc.trace` is used here.

python tests/raw_counts.py FOLDER...        compare with what `tc-report` counts
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

_HEAD = re.compile(rb"^[VIWEC]\d{4} \d\d:\d\d:\d\d\.\d+ +(\d+) [^:\n]+:\d+\] (\{.*)$")
_SKIPS = ("SkipFrame", "SkipCodeRecursiveException", "ShortenTraceback")
_GIVEN_UP = re.compile(r"[Ss]kipping the (?:frame|function) and falling back to eager")
_CACHES = re.compile(r"(fx_graph|aotautograd)_cache_(hit|miss|bypass)")


def records(log: Path) -> list[tuple[int, dict[str, Any], bytes]]:
    """Return (process, envelope, payload) of each record."""
    found: list[tuple[int, dict[str, Any], bytes]] = []
    for line in log.read_bytes().split(b"\n"):
        if match := _HEAD.match(line):
            found.append((int(match[1]), json.loads(match[2]), b""))
        elif line.startswith(b"\t") and found:
            pid, envelope, payload = found[-1]
            found[-1] = pid, envelope, payload + line[1:] + b"\n"
    return found


def raw_counts(folder: Path) -> dict[str, int]:
    """Count compiles, breaks, recompiles, failures, and looks into caches."""
    total: Counter[str] = Counter()
    for log in sorted(folder.glob("dedicated_log_torch_trace_*.log")):
        total.update(_of_log(records(log)))
    return {name: n for name, n in sorted(total.items()) if n}


def _of_log(rows: list[tuple[int, dict[str, Any], bytes]]) -> Counter[str]:
    total: Counter[str] = Counter()
    got = any(_name(row) == "tc_version" for _, row, _ in rows)
    asked: set[tuple[int, str]] = set()  # compiles that are recompiles, until they begin
    failed: set[tuple[int, str, int]] = set()
    left: set[tuple[int, str, int]] = set()  # to Python, because of a break
    turn = 0
    begun: set[tuple[int, str]] = set()
    for pid, row, payload in rows:
        name, at = _name(row), _id(row)
        if "dynamo_start" in row and not row.get("attempt"):
            turn += 1
            begun.add((pid, at))
            total["compiles"] += 1
            total["recompiles"] += (pid, at) in asked
            asked.discard((pid, at))
        elif name in ("recompile_reasons", "tc_recompile"):
            asked.add((pid, at))
        elif name == ("tc_graph_break" if got else "dynamo_graph_break_reason"):
            total["breaks"] += 1
            if _GIVEN_UP.search(payload.decode("utf-8", "replace")):
                left.add((pid, at, turn))
        elif name == "tc_cache":
            total["tc hit" if json.loads(payload)["hit"] else "tc miss"] += 1
        elif name == "tc_graph_cache_bypass":
            total["tc bypass"] += 1
        elif match := _CACHES.fullmatch(name):
            total[f"{match[1]} {match[2]}"] += 1
        elif "chromium_event" in row:
            event = json.loads(payload)
            if event["name"] == "compile_fx_aot" and event["ph"] in "BX":
                total["compiles"] += 1
        elif "compilation_metrics" in row and (kind := row["compilation_metrics"].get("fail_type")):
            if _GIVEN_UP.search(str(row["compilation_metrics"].get("fail_reason"))):
                left.add((pid, at, turn))
            elif kind not in _SKIPS:
                failed.add((pid, at, turn))
        elif name in ("tc_error", "dynamo_error"):
            failed.add((pid, at, turn))
        elif name == "make_fx_fail_partial" and "frame_id" not in row:
            total["failures"] += 1
    # A compile that was asked for, and never began, was refused: the limit was reached.
    total["failures"] += len({(pid, at) for pid, at, _ in failed - left} & begun)
    return total


def _name(row: dict[str, Any]) -> str:
    value = row.get("artifact")
    return str(value.get("name")) if isinstance(value, dict) else ""


def _id(row: dict[str, Any]) -> str:
    return f"{row.get('compiled_autograd_id')}/{row.get('frame_id')}/{row.get('frame_compile_id')}"


def reported_counts(folder: Path) -> dict[str, int]:
    """Return the same of what `tc-report` counts."""
    from tc.trace.cachekeys import lookups
    from tc.trace.findings import diagnose
    from tc.trace.session import load

    found = diagnose(load(folder))
    framed = [one for one in found.session.compiles
              if not one.id.startswith(("export", "make_fx"))]  # fmt: skip
    total: Counter[str] = Counter()
    total["compiles"] = len(framed)
    total["breaks"] = len(found.breaks)
    total["recompiles"] = found.recompile_count
    total["failures"] = len(found.failures)
    for look in lookups(found.session):
        layer = "tc" if look.cache.startswith("tc") else look.cache.replace(" ", "_")
        if layer == "tc" or layer.startswith(("fx", "aot")):
            total[f"{layer} {look.found}"] += 1
    return {name: n for name, n in sorted(total.items()) if n}


if __name__ == "__main__":
    for place in map(Path, sys.argv[1:]):
        raw, reported = raw_counts(place), reported_counts(place)
        print(
            "equal " if raw == reported else "DIFFER",
            place.name,
            raw,
            "" if raw == reported else reported,
        )
