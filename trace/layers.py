"""A session goes in; what each layer of the caches had, missed or was not asked, comes out."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from tc.trace.cachekeys import Lookup, lookups
from tc.trace.session import Session

_NAMES: Final = {"aotautograd": "AOTAutograd", "fx graph": "FX graph"}
# Counters of the metrics: the local layers have records of their own, the others only these.
_COUNTER: Final = re.compile(r"(?P<layer>\w+?)_cache_(?P<found>hit|miss|bypass)(?:_count|es|s)?")
_OF_RECORDS: Final = ("inductor_fx_local", "aotautograd_local")
_COUNTED: Final = {
    "inductor_fx_remote": "FX graph, remote", "aotautograd_remote": "AOTAutograd, remote",
    "autotune_local": "autotuning", "autotune_remote": "autotuning, remote",
    "triton_bundler": "Triton kernels",
}  # fmt: skip


@dataclass(slots=True)
class Layer:
    """One cache of several that stand behind one another.

    Attributes:
        bypasses: looks that were not made, because what was compiled cannot be kept.
        saved: seconds that its hits saved, as far as the log says.
    """

    name: str
    hits: int = 0
    misses: int = 0
    bypasses: int = 0
    saved: float = 0.0

    @property
    def counts(self) -> tuple[int, int, int]:
        """Hits, misses and bypasses."""
        return self.hits, self.misses, self.bypasses

    def __str__(self) -> str:
        text = f"{self.hits} hit / {self.misses} miss"
        return f"{text} / {self.bypasses} bypassed" if self.bypasses else text

    def add(self, found: str, number: int = 1) -> None:
        """Count looks of one outcome."""
        if found == "hit":
            self.hits += number
        elif found == "miss":
            self.misses += number
        else:
            self.bypasses += number

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {"name": self.name, "hits": self.hits, "misses": self.misses,
                "bypasses": self.bypasses, "saved": round(self.saved, 6)}  # fmt: skip


def named(lookup: Lookup) -> str:
    """Return what the layer of a look is called."""
    return _NAMES.get(lookup.cache, lookup.cache)


def layers(session: Session) -> list[Layer]:
    """Return the layers that the log names, the outermost first."""
    return session.once(_layers)


def _layers(session: Session) -> list[Layer]:
    found: dict[str, Layer] = {}
    for look in lookups(session):
        layer = found.setdefault(named(look), Layer(named(look)))
        layer.add(look.found)
        layer.saved += look.saved
    for compiled in session.compiles:
        for key, value in compiled.metrics.items():
            match = _COUNTER.fullmatch(key) if isinstance(value, int) and value else None
            if match and match["layer"] not in _OF_RECORDS:
                name = _COUNTED.get(match["layer"], match["layer"].replace("_", " "))
                found.setdefault(name, Layer(name)).add(match["found"], value)
    order = {name: n for n, name in enumerate(("AOTAutograd", "FX graph"))}
    return sorted(found.values(), key=lambda one: order.get(one.name, len(order)))
