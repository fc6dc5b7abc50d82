"""How Sphinx makes the site out of this directory: `make docs`.

The pages are Markdown that reads well on a forge, too: links are relative, and lead to files of the repository as well.
The reference (api.rst) comes from the docstrings of the public names.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import tfdist  # noqa: E402

project = "tfdist"
author = "The tfdist authors"
copyright = author
version = release = tfdist.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["images"]
default_role = "code"  # docstrings write `name`, as Markdown does

myst_heading_anchors = 4

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False

html_theme = "furo"
html_title = f"tfdist {version}"
html_copy_source = False
html_show_sphinx = False


def _lead_outwards(app: Any, doctree: Any) -> None:
    """Links to what is no page of the site: a Markdown file of the repository is copied, a directory is but named."""
    from sphinx import addnodes

    here = Path(app.env.doc2path(app.env.docname)).parent
    for node in list(doctree.findall(addnodes.pending_xref)):
        target = str(node.get("reftarget", ""))
        if node.get("refdomain") == "doc" and Path(target).is_absolute():
            relative = os.path.relpath(f"{target}.md", here)
            copy = addnodes.download_reference("", "", *node.children, refdoc=app.env.docname, reftarget=relative)
            node.replace_self(copy)
        elif node.get("reftype") == "myst" and (here / target.partition("#")[0]).is_dir():
            node.replace_self(node.children)


_HOOKS = ("get_state", "set_state", "leave_fit", "resumed_logs")


def _skip_hooks(_app: Any, _what: str, name: str, *_: Any) -> bool | None:
    """Leaves out the hooks that `fit` and checkpoints call, and that no user does."""
    is_hook = name.startswith(("on_", "before_", "after_")) or name in _HOOKS
    return True if is_hook else None


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("doctree-read", _lead_outwards, priority=100)  # before Sphinx collects the files to copy
    app.connect("autodoc-skip-member", _skip_hooks)
