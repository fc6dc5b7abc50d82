"""Lists of arrays as one row of elements, and the buffers of results."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tfdist.communication.transports.buffers import Bucket, ResultPool, layout_of


@given(st.lists(st.integers(0, 7), min_size=1, max_size=8), st.data())
def test_segments_are_the_elements(sizes, data):
    total = sum(sizes)
    row = np.arange(total, dtype=np.int32)
    bucket = Bucket(np.split(row, np.cumsum(sizes)[:-1]))
    start = data.draw(st.integers(0, total))
    stop = data.draw(st.integers(start, total))
    assert bucket.size == total
    joined = np.concatenate([np.empty(0, np.int32), *bucket.segments(start, stop)])
    np.testing.assert_array_equal(joined, row[start:stop])
    assert b"".join(bucket.byte_views(start, stop)) == row[start:stop].tobytes()
    assert all(len(segment) for segment in bucket.segments(start, stop))


def test_segments_are_views():
    arrays = [np.zeros((2, 2)), np.zeros(3)]
    for segment in Bucket(arrays).segments(1, 6):
        np.add(segment, 1, out=segment)
    assert [array.sum() for array in arrays] == [3, 2]


def test_digest_tells_shapes_and_dtypes_apart():
    digests = {
        Bucket([np.zeros(shape, dtype)]).digest for shape in ((6,), (2, 3), (3, 2)) for dtype in (np.float32, np.int32)
    }
    assert len(digests) == 6


def test_a_layout_is_worked_out_once():
    arrays = [np.zeros((2, 3), np.float32), np.zeros(0, np.float32), np.float32(1).reshape(())]
    layout = layout_of(arrays)
    assert layout_of([np.ones_like(array) for array in arrays]) is layout
    assert layout_of(arrays[:2]) is not layout
    assert layout_of([array.astype(np.int32) for array in arrays]) is not layout
    assert (layout.size, layout.ends, layout.offsets, layout.aligned_bytes) == (7, [6, 7], [0, 64, 64], 128)


@given(st.lists(st.lists(st.integers(0, 5), max_size=3), min_size=1, max_size=5))
def test_results_are_aligned_and_do_not_overlap(shapes):
    arrays = ResultPool().arrays_like(layout_of([np.zeros(shape, np.float16) for shape in shapes]))
    assert [list(array.shape) for array in arrays] == shapes
    assert all(array.ctypes.data % 64 == 0 for array in arrays if array.size)
    for number, array in enumerate(arrays):
        array[...] = number
    assert all((array == number).all() for number, array in enumerate(arrays))


def address(arrays):
    return arrays[0].ctypes.data


def test_a_buffer_is_used_again_when_nobody_refers_to_it():
    pool = ResultPool()
    like = layout_of([np.zeros(100), np.zeros(7)])
    first = pool.arrays_like(like)
    where = address(first)
    assert address(pool.arrays_like(like)) != where
    kept = first[1][2:3].view(np.uint8)  # a view of a view of a result
    del first
    assert address(pool.arrays_like(like)) != where
    raw = memoryview(kept)
    del kept
    assert address(pool.arrays_like(like)) != where
    del raw
    assert address(pool.arrays_like(like)) == where


def test_more_results_than_are_kept():
    pool = ResultPool()
    held = [pool.arrays_like(layout_of([np.zeros(10)])) for _ in range(10)]
    assert len({address(arrays) for arrays in held}) == 10
