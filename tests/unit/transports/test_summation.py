"""What is summed, in which order and how."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdist.communication.transports.summation import as_bucket, as_rows, sum_in_order
from tfdist.errors import ArgumentError

FLOATS = st.lists(st.floats(width=32, allow_nan=False), min_size=3, max_size=3)


@given(st.lists(FLOATS, min_size=1, max_size=6), st.data())
def test_order_of_terms(rows, data):
    terms = [np.array(row, np.float32) for row in rows]
    with np.errstate(all="ignore"):
        expected = terms[0]
        for term in terms[1:]:
            expected = expected + term
    out = data.draw(st.sampled_from([*terms, np.empty(3, np.float32)]))  # it may be one of the terms
    sum_in_order(terms, out)
    assert out.tobytes() == expected.tobytes()


def test_half_precision_is_rounded_once():
    # In float16, 2048 + 1 is 2048: one by one, the ones would be lost.
    terms = [np.array([2048], np.float16), *[np.array([1], np.float16)] * 4]
    out = np.empty(1, np.float16)
    sum_in_order(terms, out)
    assert out[0] == 2052


def test_integers_wrap_around_and_overflow_is_silent():
    out = np.empty(1, np.int8)
    sum_in_order([np.array([100], np.int8)] * 2, out)
    assert out[0] == -56
    largest = np.array([65504], np.float16)
    out = np.empty(1, np.float16)
    sum_in_order([largest, largest], out)
    assert np.isinf(out[0])


def test_what_cannot_be_summed():
    with pytest.raises(ArgumentError, match="numeric dtype"):
        as_bucket([np.array([True])])
    with pytest.raises(ArgumentError, match="numeric dtype"):
        as_bucket([np.array(["a"])])
    with pytest.raises(ArgumentError, match="numeric dtype"):
        as_bucket([np.array([1], ">i4")])
    with pytest.raises(ArgumentError, match="one dtype"):
        as_bucket([np.zeros(1, np.float32), np.zeros(1, np.float64)])
    assert as_bucket([]) == []


def test_arrays_are_made_contiguous_and_keep_their_shapes():
    parts = [np.arange(6).reshape(2, 3).T, np.array(5), np.zeros((0, 4), int)]
    bucket = as_bucket(parts)
    assert all(array.flags.c_contiguous for array in bucket)
    for array, part in zip(bucket, parts, strict=True):
        np.testing.assert_array_equal(array, part)
        assert array.shape == part.shape


def test_what_cannot_be_gathered():
    with pytest.raises(ArgumentError, match="at least one axis"):
        as_rows(np.array(1))
    with pytest.raises(ArgumentError, match="Python objects"):
        as_rows(np.array([None]))
