"""The causes that the verifier knows, and what it says of each. Pure."""

from __future__ import annotations

import dataclasses
import enum

__all__ = ["Cause", "Finding"]


class Cause(enum.Enum):
    """Why several replicas do not train as one device does. The value is the name in reports; then why, and a fix."""

    OVERLAPPING_SHARDS = (
        "overlapping shards",
        "Several workers train on the same rows.",
        "In a dataset function, use `context.input_pipeline_id` and `context.num_input_pipelines`, as in "
        "`dataset.shard(context.num_input_pipelines, context.input_pipeline_id)`, before shuffling; or pass one "
        "tf.data.Dataset of global batches, of which tfdist gives each replica its rows.",
    )
    SHARED_SEED = (
        "shared seed",
        "Replicas draw the same random numbers: dropout masks and augmentation repeat on each of them.",
        "Draw from a keras.random.SeedGenerator within the step, and leave its seed to tfdist, which makes it differ "
        "between replicas.",
    )
    UNSYNCHRONISED_STATISTICS = (
        "unsynchronised statistics",
        "Each replica assigns this variable from its own rows, and the copies are not averaged.",
        "Assign it as a Keras variable (add_weight) within call(), so that tfdist averages it over the rows of all "
        "replicas.",
    )
    LOSS_SCALING = (
        "wrong loss scaling",
        "Each replica's loss is a mean over its own rows, and the gradients of all are added up.",
        "Use self.compute_loss(...) in train_step, or pass a loss of your own through tfdist.scale_loss(loss) before "
        "taking its gradient.",
    )
    UNEVEN_BATCH = (
        "uneven batch",
        "Replicas got unequal numbers of rows, and each one's mean loss counts 1 / number of replicas all the same.",
        "Weight each replica's loss by its share of the rows, as tfdist.scale_loss and Keras's losses under tfdist do; "
        "do not divide by num_replicas_in_sync.",
    )
    CLIPPED_BEFORE_SUM = (
        "clipping before summing",
        "Each replica clips its own gradient, and the clipped ones are added up.",
        "Give clipnorm, clipvalue or global_clipnorm to the optimizer, which under tfdist clips after the exchange; do "
        "not clip in train_step.",
    )
    BATCH_STATISTICS = (
        "statistics of a replica's own batch",
        "A BatchNormalization layer normalises by the rows of its own replica, not of the global batch.",
        "Make it with BatchNormalization(synchronized=True), or accept the difference.",
    )
    NOT_EXCHANGED = (
        "gradients not exchanged",
        "The copies of this weight differ between replicas, so they were not updated with the same gradient.",
        "Update weights with optimizer.apply(...) or self.optimizer.apply_gradients(...), which exchange gradients.",
    )
    LAYER_STATE = (
        "state of a layer",
        "A layer assigns this variable from the rows of its replica; tfdist averages the results over all rows, and "
        "that is not what one device comes to.",
        "Keep in it something whose average over rows is right, such as a mean.",
    )
    METRIC = (
        "a metric that does not add up",
        "The gradients are right, but this value differs: the metric's states, summed over the replicas, do not give "
        "the state of one device, or train_step returns a value that is not a mean over rows.",
        "Keep in a metric's variables sums over rows, and work the rest out in result(). In a train_step, log means "
        "over rows: what compute_loss and scale_loss return is a replica's share of the loss.",
    )
    SETTINGS = (
        "another optimizer",
        "The optimizer was built with other settings on several replicas than on one device.",
        "Build it with the same ones; if they are meant to depend on the number of replicas, such as a learning rate, "
        "verify with that left out.",
    )
    UPDATE = (
        "the optimizer's update",
        "The gradients are right, but what the optimizer makes of them is not.",
        "See that the optimizer works on the sum of all replicas' gradients and keeps no state outside its variables.",
    )
    LOSS = (
        "a loss or step that depends on how the rows are divided",
        "The gradients of the replicas do not add up to that of the global batch.",
        "See that the loss is a mean or a sum over rows, in which no row's value depends on the other rows.",
    )

    @property
    def label(self) -> str:
        """Its name in reports."""
        return self.value[0]

    @property
    def why(self) -> str:
        """What happens, in the user's terms."""
        return self.value[1]

    @property
    def fix(self) -> str:
        """One action that mends it."""
        return self.value[2]


@dataclasses.dataclass(frozen=True)
class Finding:
    """One difference: what differs first, and the likely cause.

    Attributes:
        step: The step after which it is seen, from 0.
        what: `gradient`, `weight`, `variable`, `metric`, `seed generator` or `rows`.
        name: Of the variable, metric or seed generator; of rows, the replicas that share them.
        cause: The likely cause.
        evidence: The numbers that speak for it, in one sentence.
        also: Other names that differ at the same step for the same reason.
    """

    step: int
    what: str
    name: str
    cause: Cause
    evidence: str
    also: tuple[str, ...] = ()

    def __str__(self) -> str:
        others = f" (and {len(self.also)} more: {', '.join(self.also[:3])})" if self.also else ""
        return (
            f"step {self.step}: {self.what} {self.name}{others}\n"
            f"  Likely cause: {self.cause.label}. {self.cause.why}\n"
            f"  Evidence: {self.evidence}\n"
            f"  Fix: {self.cause.fix}"
        )
