"""Which arrays are summed, and how. Pure."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from tfdist.communication.transports.interface import Array
from tfdist.errors import ArgumentError, describe_problem

__all__ = ["as_bucket", "as_rows", "sum_in_order"]


def as_bucket(parts: Sequence[Array]) -> list[Array]:
    """Checks arrays that are to be summed.

    Returns:
        The arrays, C-contiguous.

    Raises:
        ArgumentError: When the dtypes differ or are not numeric.
    """
    arrays = [
        part
        if isinstance(part, np.ndarray) and part.flags.c_contiguous
        else np.ascontiguousarray(part).reshape(np.shape(part))
        for part in parts
    ]
    dtypes = {array.dtype for array in arrays}
    if len(dtypes) > 1:
        raise _rejected("one dtype for all arrays of a call", sorted(map(str, dtypes)), "make one call per dtype")
    for dtype in dtypes:
        if not (dtype.kind in "iufc" or _is_bfloat16(dtype)) or not dtype.isnative:
            raise _rejected("a numeric dtype in this machine's byte order", str(dtype), "cast the arrays, as to int32")
    return arrays


def as_rows(rows: Array) -> Array:
    """Checks an array that is to be gathered, and returns it C-contiguous.

    Raises:
        ArgumentError: When it has no axis, or its dtype has Python objects.
    """
    array = np.asarray(rows)
    if array.ndim == 0 or array.dtype.hasobject:
        raise _rejected(
            "an array of at least one axis, without Python objects",
            f"shape {array.shape}, dtype {array.dtype}",
            "give it a first axis, as with numpy.atleast_1d",
        )
    return np.ascontiguousarray(array)


def sum_in_order(terms: Sequence[Array], out: Array) -> None:
    """Writes `((terms[0] + terms[1]) + terms[2]) ...` to `out`. Overflow is no error and gives no warning.

    Half-precision terms are added in float32 and rounded once, at the end.

    Args:
        terms: One or more arrays of the same shape and dtype.
        out: Takes the sum; may be one of the terms.
    """
    with np.errstate(all="ignore"):
        if len(terms) == 1:
            np.copyto(out, terms[0])
        elif _is_half(out.dtype):
            total = np.add(terms[0], terms[1], dtype=np.float32)
            for term in terms[2:]:
                np.add(total, term, out=total)
            np.copyto(out, total, casting="unsafe")
        else:
            total = out
            if len(terms) > 2 and any(np.may_share_memory(out, term) for term in terms[2:]):
                total = np.empty_like(out)
            np.add(terms[0], terms[1], out=total)
            for term in terms[2:]:
                np.add(total, term, out=total)
            if total is not out:
                np.copyto(out, total)


def _is_half(dtype: np.dtype[np.generic]) -> bool:
    return dtype == np.float16 or _is_bfloat16(dtype)


@functools.cache  # numpy makes the name anew each time, which is slow
def _is_bfloat16(dtype: np.dtype[np.generic]) -> bool:
    return dtype.name == "bfloat16"  # ml_dtypes makes it; its arrays work without that package being imported here


def _rejected(expected: str, received: object, fix: str) -> ArgumentError:
    what = "Arrays cannot be exchanged between workers"
    return ArgumentError(
        describe_problem(what, received=f"{received} (all_reduce_sum or all_gather)", expected=expected, fix=fix)
    )
