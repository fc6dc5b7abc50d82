"""Arithmetic of a job: who trains on which rows. Pure: standard library only."""

from tfdist.planning.row_split import row_bounds

__all__ = ["row_bounds"]
