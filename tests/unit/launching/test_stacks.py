"""What the launcher makes of the stacks of a task."""

import pytest

from tfdist.launching.stacks import find_place, shorten_stacks

DUMP = """Thread 0x00007f1 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 320 in wait
  File "/usr/lib/python3.11/threading.py", line 1002 in _bootstrap

Thread 0x00007f2 (most recent call first):
  File "/home/me/data.py", line 12 in rows
  File "/venv/lib/python3.11/site-packages/tensorflow/python/data/ops/from_generator_op.py", line 198 in generator
  File "/usr/lib/python3.11/threading.py", line 1002 in _bootstrap

Current thread 0x00007f3 (most recent call first):
  File "/venv/lib/python3.11/site-packages/tensorflow/python/eager/execute.py", line 53 in quick_execute
  File "/venv/lib/python3.11/site-packages/tensorflow/python/eager/context.py", line 1 in call
  File "/venv/lib/python3.11/site-packages/keras/src/backend/tensorflow/trainer.py", line 320 in fit
  File "/home/me/train.py", line 30 in train
  File "/home/me/train.py", line 40 in <module>
"""


def test_the_users_frames_and_the_innermost_are_kept():
    assert shorten_stacks(DUMP) == [
        "main thread, innermost first:",
        "  /venv/lib/python3.11/site-packages/tensorflow/python/eager/execute.py:53 in quick_execute",
        "  /venv/lib/python3.11/site-packages/tensorflow/python/eager/context.py:1 in call",
        "  /home/me/train.py:30 in train",
        "  /home/me/train.py:40 in <module>",
        "another thread:",
        "  /home/me/data.py:12 in rows",
        "  /venv/lib/python3.11/site-packages/tensorflow/python/data/ops/from_generator_op.py:198 in generator",
    ]


def test_nothing_is_nothing():
    assert shorten_stacks("") == []
    assert shorten_stacks("garbage\n  File\n") == []
    assert find_place("") == ""


TENSORFLOW = "/venv/lib/python3.11/site-packages/tensorflow/python"
GENERATOR = [f"{TENSORFLOW}/data/ops/from_generator_op.py", f"{TENSORFLOW}/ops/script_ops.py"]
STEP = [f"{TENSORFLOW}/eager/execute.py", "/home/me/train.py"]
OWN = find_place.__globals__["__file__"]


def dump(main, *others):
    threads = [
        "Thread 0x1 (most recent call first):\n" + "".join(f'  File "{file}", line 3 in f\n' for file in files)
        for files in (*others, main)
    ]
    return "\n".join(threads)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (dump([f"{TENSORFLOW}/data/ops/iterator_ops.py", "/home/me/train.py"]), "its input pipeline"),
        (dump(STEP, ["/home/me/data.py", *GENERATOR]), "its input pipeline"),
        (dump(STEP, GENERATOR), ""),
        (
            dump(STEP, ["/lib/python3.11/threading.py", "/home/me/layer.py", f"{TENSORFLOW}/ops/script_ops.py"]),
            "f (/home/me/layer.py:3), which the step or its input pipeline calls",
        ),
        (
            dump(STEP, ["/home/me/data.py", *GENERATOR], ["/home/me/layer.py", f"{TENSORFLOW}/ops/script_ops.py"]),
            "f (/home/me/layer.py:3), which the step or its input pipeline calls",
        ),
        (dump(STEP, [OWN, f"{TENSORFLOW}/ops/script_ops.py"]), ""),
        (dump(STEP, ["/home/me/background.py", "/lib/python3.11/threading.py"]), ""),
        (dump(STEP), ""),
    ],
)
def test_where_a_step_hangs(text, place):
    """Main threads that take a batch; generators; functions of the graph; tfdist's own; threads that have no part."""
    assert find_place(text) == place
