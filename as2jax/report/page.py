"""The page: its sections under one head, with its style and its program, in one file."""

import base64
import hashlib
import importlib.resources
from collections.abc import Sequence

from as2jax.report import drawing, markup
from as2jax.runtime.version import __version__


def resource(name: str) -> str:
  """A file of this folder."""
  return importlib.resources.files(__package__).joinpath(name).read_text("utf-8")


def style() -> str:
  """The page's style: its colours, light and dark, then `page.css`."""
  light, dark = drawing.variables(False), drawing.variables(True)
  schemes = (
    f":root{{{light}color-scheme:light dark}}"
    f"@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}"
  )
  return schemes + drawing.rules() + resource("page.css")


def policy(style: str, program: str) -> str:
  """The Content-Security-Policy: this very style and program, and nothing from anywhere."""
  digest = lambda text: base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
  return (
    f"default-src 'none'; style-src 'sha256-{digest(style)}'; script-src 'sha256-{digest(program)}'; "
    "base-uri 'none'; form-action 'none'"
  )


def page(title: str, subtitle: str, sections: Sequence[str]) -> str:
  """The whole file.

  Args:
    title, subtitle: texts.
    sections: HTML, from `markup.section`; empty ones are left out.

  """
  css, program = style(), resource("page.js")
  kept = [section for section in sections if section]
  links = []
  for section in kept:
    id = section.split('"', 2)[1]
    name = section.partition(f'<h2 id="{id}-h">')[2].partition("</h2>")[0]
    links.append(f'<a href="#{id}">{name}</a>')
  return (
    '<!doctype html><html lang="en"><head><meta charset="utf-8">'
    f'<meta http-equiv="Content-Security-Policy" content="{policy(css, program)}">'
    '<meta name="viewport" content="width=device-width, initial-scale=1">'
    f'<meta name="generator" content="as2jax {__version__}">'
    f"<title>{markup.text(title)}</title><style>{css}</style></head><body>"
    '<a class="skip" href="#main">Skip to the content</a>'
    f"<header><h1>{markup.text(title)}</h1><p>{markup.text(subtitle)}</p>"
    f'<nav aria-label="Sections">{"".join(links)}</nav></header>'
    f'<main id="main">{"".join(kept)}</main>'
    f"<footer>Written by as2jax {__version__}. This file loads nothing from anywhere.</footer>"
    f"<script>{program}</script></body></html>\n"
  )
