"""Looking at pages in the Chromium that the machine has."""

import shutil
from typing import Final

import pytest

CHROMIUM: Final = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
NEEDS_CHROMIUM: Final = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium in PATH: on Debian, apt-get install chromium"),
]
PATIENCE_MS: Final = 60_000

TOO_FAINT: Final = """() => {
  const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const channels = (colour) => {  // of any notation
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const over = ([r, g, b, a], below) => [r, g, b].map((each, index) => each * a / 255 + below[index] * (1 - a / 255));
  const light = (rgb) => rgb.map((each) => each / 255)
    .map((each) => (each <= 0.03928 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4))
    .reduce((sum, each, index) => sum + each * [0.2126, 0.7152, 0.0722][index], 0);
  const behind = (node) => {
    const layers = [];
    for (let each = node; each; each = each.parentElement) {
      layers.push(channels(getComputedStyle(each).backgroundColor));
      if (layers.at(-1)[3] === 255) break;
    }
    return layers.reduceRight((below, layer) => over(layer, below), channels("canvas").slice(0, 3));
  };
  const seen = (node) => {
    const {width, height} = node.getBoundingClientRect();
    return width > 1 && height > 1 && node.checkVisibility({opacityProperty: true, visibilityProperty: true})
      && !node.closest("[disabled], [aria-hidden=true]");
  };
  const faint = [];
  for (const node of document.querySelectorAll("body *")) {
    const own = [...node.childNodes].some((each) => each.nodeType === 3 && each.textContent.trim());
    if (!own || !seen(node)) continue;
    const below = behind(node);
    const [a, b] = [light(over(channels(getComputedStyle(node).color), below)), light(below)];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) faint.push(`${node.tagName} ${node.textContent.trim().slice(0, 30)}: ${ratio.toFixed(2)}`);
  }
  return faint;
}"""
"""Texts whose contrast is below that of WCAG 2.2, level AA. What cannot be used, and what is hidden from readers, need none."""
