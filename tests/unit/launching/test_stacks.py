from tfdist.launching.stacks import shorten_stacks

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
