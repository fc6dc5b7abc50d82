"""One random seed that all workers of a job share.

Each worker runs the whole input pipeline and keeps its rows, so an unseeded shuffle must come out the same everywhere.
When the user has set no seed (`tf.random.set_seed`, `keras.utils.set_random_seed`), the chief draws one at random and
all set it: unseeded `tf.data` shuffles and `tf.random` operations then agree, and still differ from run to run.
"""

from __future__ import annotations

import secrets

import tensorflow as tf

__all__ = ["agree", "agreed_seed", "use"]

_agreed: int | None = None


def agree(strategy: tf.distribute.Strategy) -> None:
    """Sets the shared seed where the user has set none. Collective: every worker must call it.

    `MultiWorkerMirroredStrategy` gives every worker the chief's initial value of a variable
    (tensorflow/python/distribute/collective_all_reduce_strategy.py, `_create_variable`).
    """
    global _agreed  # noqa: PLW0603 - as global as TensorFlow's own seed
    drawn = secrets.randbelow(2**31)
    with strategy.scope():
        variable = tf.Variable(drawn, dtype=tf.int64, trainable=False)
    if _user_seed() is None:
        _agreed = int(strategy.experimental_local_results(variable)[0].numpy())
        tf.random.set_seed(_agreed)


def use(seed: int | None) -> int | None:
    """Sets the seed of an earlier run in place of the one that tfdist drew, or of none; the user's own stays.

    Every worker must call it, with the same seed.

    Args:
        seed: The seed; None to draw one where there is none yet, which only a process without peers may do.

    Returns:
        What `agreed_seed` returns from now on.
    """
    global _agreed  # noqa: PLW0603
    has_user_seed = _user_seed() is not None and agreed_seed() is None
    if not has_user_seed and (seed is not None or agreed_seed() is None):
        _agreed = secrets.randbelow(2**31) if seed is None else seed
        tf.random.set_seed(_agreed)
    return agreed_seed()


def _user_seed() -> int | None:
    return tf.compat.v1.get_seed(None)[0]


def agreed_seed() -> int | None:
    """The seed that tfdist drew for all workers; None where there is none, or the user has set one since."""
    return _agreed if _user_seed() == _agreed else None
