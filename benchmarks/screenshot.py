"""Open a report in headless Chromium and write what it looks like.

python benchmarks/screenshot.py runs/v15_opg/report-1a2b3c4d/report.html docs/report.png
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import tempfile
from pathlib import Path

BINARIES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

QUIET = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)
"""Without a display, and without a word to the network."""

NARROWEST = 500
"""Headless Chromium's window is never narrower; narrower pages are shown in a frame."""


def find_chromium() -> str | None:
    """The first Chromium on the PATH, or None."""
    return next((found for name in BINARIES if (found := shutil.which(name))), None)


def chromium(binary: str, arguments: list[str], url: str) -> str:
    """Run Chromium once, with a profile of its own, and give what it wrote to its output.

    Args:
        binary: Chromium's path.
        arguments: What to do, e.g. ``--dump-dom``.
        url: What to open.
    """
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [binary, *QUIET, f"--user-data-dir={profile}", *arguments, url]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout


def screenshot(binary: str, page: Path, image: Path, width: int, height: int, scale: int) -> None:
    """Write a PNG of the page's top.

    Args:
        binary: Chromium's path.
        page: The HTML file.
        image: The PNG to write.
        width: CSS pixels that the page has.
        height: CSS pixels that are shown.
        scale: Image pixels a CSS pixel.
    """
    with tempfile.TemporaryDirectory() as folder:
        shown = page.resolve()
        if width < NARROWEST:
            shown = Path(folder) / "frame.html"
            shown.write_text(
                f'<body style="margin:0"><iframe src="{page.resolve().as_uri()}" width="{width}" '
                f'height="{height}" style="border:0"></iframe>',
                encoding="utf-8",
            )
        size = f"--window-size={max(width, NARROWEST)},{height}"
        factor = f"--force-device-scale-factor={scale}"
        target = f"--screenshot={image.resolve()}"
        chromium(binary, [size, factor, target], shown.as_uri())


def main() -> None:
    """Read the command line and write the image."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("page", type=Path, help="report.html")
    parser.add_argument("image", type=Path, help="PNG to write")
    parser.add_argument("--width", type=int, default=1280, help="CSS pixels")
    parser.add_argument("--height", type=int, default=1500, help="CSS pixels")
    parser.add_argument("--scale", type=int, default=1, help="image pixels a CSS pixel")
    given = parser.parse_args()
    binary = find_chromium()
    if binary is None:
        parser.exit(1, f"No Chromium found (looked for {', '.join(BINARIES)}). Install chromium.\n")
    screenshot(binary, given.page, given.image, given.width, given.height, given.scale)


if __name__ == "__main__":
    main()
