"""PNG from SVG, by rsvg-convert (Debian's librsvg2-bin), in the letters of DejaVu Sans (fonts-dejavu-core)."""

import shutil
import subprocess

PROGRAM = "rsvg-convert"
ZOOM = "1.5"


def can():
    return shutil.which(PROGRAM) is not None


def convert(svg, png):
    """Draws a file."""
    subprocess.run([PROGRAM, "--zoom", ZOOM, "--output", str(png), str(svg)], check=True)
