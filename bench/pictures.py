"""Makes the pictures of README.md and the site, into docs/pictures/, from runs of examples/.

    make pictures
    python bench/pictures.py terminal      # one of: terminal, report, tui

- `terminal.svg`: commands in a terminal of their own, with what each wrote and when. Pauses longer
  than a second are cut to one. Rich draws it; where animations are off, it shows the end.
- `report.png`, `report-dark.png`: the page that tc-report makes of a trace, in Chromium.
- `tui.svg`: the same trace in tc-tui, drawn by Textual.

Nothing is edited: what is on a picture, a program has printed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import fcntl
import io
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs/pictures"
WIDTH = 100
SESSION = (
    "TC_LOGS=graph_breaks python examples/reinforce.py",
    "TC_LOGS=graph_breaks python examples/reinforce.py --cured",
)
PAUSE = 1.0  # seconds, at most
TYPING = 0.6  # seconds that a command takes to appear
# Rich's own frame would load a font from a server.
FRAME = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{
  font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  font-size: {char_height}px; line-height: {line_height}px;
}}
.{unique_id}-title {{ font-size: 16px; font-family: system-ui, sans-serif; }}
.{unique_id}-matrix text {{ animation: appear 1ms linear both; }}
@keyframes appear {{ from {{ opacity: 0; }} to {{ opacity: 1; }} }}
@media (prefers-reduced-motion: reduce) {{
  .{unique_id}-matrix text {{ animation: none; }}
}}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def environment(folder: Path) -> dict[str, str]:
    """Return the variables of a terminal on a new machine, in which `python` is this one.

    `folder`, with a link to examples/, replaces the checkout: paths on pictures are short.
    """
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("TC_", "TORCH_", "NO_COLOR"))}
    commands = folder / "bin"
    commands.mkdir(exist_ok=True)
    shim = commands / "python"
    shim.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    shim.chmod(0o755)
    return {
        **kept, "PATH": f"{commands}:{kept['PATH']}", "PYTHONPATH": str(ROOT),
        "TC_CACHE_DIR": str(folder / "cache"), "OMP_NUM_THREADS": "1",
        "TERM": "xterm-256color", "COLORTERM": "truecolor", "COLUMNS": str(WIDTH),
    }  # fmt: skip


def in_terminal(command: str, folder: Path) -> list[tuple[float, str]]:
    """Run a command in a terminal; return its lines, with the seconds after which each came.

    Raises:
        subprocess.CalledProcessError: the command failed.
    """
    got, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, WIDTH, 0, 0))
    started = time.monotonic()
    running = subprocess.Popen(
        command, shell=True, cwd=folder, env=environment(folder), stdin=theirs, stdout=theirs,
        stderr=theirs,
    )  # fmt: skip
    os.close(theirs)
    lines, rest = [], b""
    while True:
        try:
            read = os.read(got, 65536)
        except OSError:  # what Linux says when the last program has closed the terminal
            break
        if not read:
            break
        *whole, rest = (rest + read).split(b"\n")
        now = time.monotonic() - started
        lines += [(now, line.decode().rstrip("\r")) for line in whole]
    os.close(got)
    if running.wait():
        raise subprocess.CalledProcessError(running.returncode, command, "\n".join(map(str, lines)))
    return lines


def terminal(folder: Path) -> None:
    """Record the session into terminal.svg."""
    from rich.console import Console
    from rich.text import Text

    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    shown_at: list[float] = []
    clock = 0.3
    for command in SESSION:
        console.print(Text.assemble(("$ ", "green"), (command, "bold")))
        shown_at.append(clock)
        clock += TYPING
        last = 0.0
        for at, line in in_terminal(command, folder):
            clock += min(at - last, PAUSE)
            last = at
            text = Text.from_ansi(line)
            rows = max(1, -(-text.cell_len // WIDTH))
            console.print(text)
            shown_at += [clock] * rows
        clock += PAUSE
    svg = console.export_svg(title="tc", code_format=FRAME, unique_id="tc")
    (PICTURES / "terminal.svg").write_text(animated(svg, shown_at), "utf-8")


def animated(svg: str, shown_at: list[float]) -> str:
    """Return a picture whose lines appear one after the other: `shown_at` has a time for each."""
    name = "{http://www.w3.org/2000/svg}"
    ElementTree.register_namespace("", name.strip("{}"))
    tree = ElementTree.fromstring(svg)
    for text in tree.iter(f"{name}text"):
        line = re.search(r"line-(\d+)\)", text.get("clip-path", ""))
        if line and int(line[1]) < len(shown_at):
            text.set("style", f"animation-delay:{shown_at[int(line[1])]:.1f}s")
    return ElementTree.tostring(tree, "unicode") + "\n"


def traced(folder: Path) -> Path:
    """Return the trace of the program that the session ran."""
    trace = folder / "tc_trace"
    if not trace.exists():
        subprocess.run(
            [sys.executable, "examples/reinforce.py"], cwd=folder, check=True, capture_output=True,
            env={**environment(folder), "TC_TRACE": trace.name, "TC_CACHE_DIR": "cache_of_trace"},
        )  # fmt: skip
    return trace


def report(folder: Path) -> None:
    """Take report.png and report-dark.png."""
    from selenium import webdriver

    page = folder / "report.html"
    subprocess.run(
        [sys.executable, "-m", "tc.tlparse", str(traced(folder)), "-o", str(page)],
        cwd=folder, check=True, capture_output=True, env=environment(folder),
    )  # fmt: skip
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or "google-chrome"
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"):
        options.add_argument(flag)
    driver = webdriver.Chrome(
        options=options, service=webdriver.ChromeService(shutil.which("chromedriver"))
    )
    try:
        size = {"width": 1000, "height": 830, "deviceScaleFactor": 1.5, "mobile": False}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        for scheme, name in (("light", "report.png"), ("dark", "report-dark.png")):
            feature = {"name": "prefers-color-scheme", "value": scheme}
            driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
            driver.get(page.as_uri())
            time.sleep(1)  # transitions of colours end
            (PICTURES / name).write_bytes(packed(driver.get_screenshot_as_png()))
    finally:
        driver.quit()


def packed(png: bytes) -> bytes:
    """Return a PNG with 128 colours, which are enough for a page of text."""
    from PIL import Image

    out = io.BytesIO()
    image = Image.open(io.BytesIO(png)).convert("RGB").quantize(128, dither=Image.Dither.NONE)
    image.save(out, "png", optimize=True)
    return out.getvalue()


def tui(folder: Path) -> None:
    """Draw the first screen of tc-tui into tui.svg."""
    from tc.tui.app import TraceApp
    from tc.tui.feed import Feed

    async def drawn() -> str:
        app = TraceApp(Feed(traced(folder).name))
        app.ascii_only = False  # a picture has all characters, whatever this terminal has
        async with app.run_test(size=(WIDTH + 10, 28)) as pilot:
            await pilot.pause()
            while app.background.busy:
                await pilot.pause(0.05)
            await pilot.pause()
            return app.export_screenshot(title="tc-tui")

    os.environ["COLORTERM"] = "truecolor"
    with contextlib.chdir(folder):
        svg = asyncio.run(drawn())
    faces = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)  # a picture loads nothing
    (PICTURES / "tui.svg").write_text(faces.sub("", svg), "utf-8")


MAKERS: dict[str, Callable[[Path], None]] = {"terminal": terminal, "report": report, "tui": tui}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("which", nargs="*", metavar="PICTURE", help=f"of {', '.join(MAKERS)}")
    which = parser.parse_args().which or list(MAKERS)
    if unknown := set(which) - set(MAKERS):
        parser.error(f"no such picture: {', '.join(sorted(unknown))} (of {', '.join(MAKERS)})")
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "examples").symlink_to(ROOT / "examples")
        for name in which:
            MAKERS[name](folder)
    for path in sorted(PICTURES.iterdir()):
        print(f"{path.relative_to(ROOT)}  {path.stat().st_size / 1000:.0f} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
