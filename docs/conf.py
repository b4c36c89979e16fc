"""Sphinx makes the site of these pages: ``sphinx-build -W docs build/site``."""

project = "pclr-ms"
copyright = "the pclr-ms authors"
html_title = "pclr-ms"
html_theme = "furo"
extensions = ["myst_parser"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4
exclude_patterns = ["**/*.py"]
html_copy_source = False
# Files of the repository that pages link to are no part of the site.
suppress_warnings = ["myst.xref_missing"]
