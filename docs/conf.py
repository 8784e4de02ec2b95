"""Sphinx configuration."""

import rankscope

project = "Rankscope"
author = "The Rankscope developers"
release = version = rankscope.__version__
extensions = ["myst_parser"]
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"Rankscope {release}"
