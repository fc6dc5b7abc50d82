"""Embedding tables that are partitioned over parameter servers."""
from tfdist.keras_compat.override import Override

OVERRIDES: tuple[Override, ...] = ()
