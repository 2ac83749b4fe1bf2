"""Sphinx: the pages of this folder as a site (`make docs`). What comes from the source is in generated.py."""

import sys
from pathlib import Path

import securedfl

sys.path.insert(0, str(Path(__file__).parent))

project = "SecureD-FL"
author = "The SecureD-FL developers"
version = release = securedfl.__version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.mathjax", "generated"]
exclude_patterns = ["results/*.json"]
source_suffix = {".md": "myst-nb", ".ipynb": "myst-nb"}

# anchors as GitHub makes them, so that a link works in both places
myst_heading_anchors = 6
myst_enable_extensions = ["dollarmath"]
nitpicky = False
# notebooks are stored with what they printed; `make notebooks` runs them again
nb_execution_mode = "off"

default_role = "py:obj"
autodoc_typehints = "none"
autodoc_member_order = "bysource"
napoleon_google_docstring = False
napoleon_use_rtype = False

html_theme = "furo"
html_title = f"SecureD-FL {version}"
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {"navigation_with_keys": True}
