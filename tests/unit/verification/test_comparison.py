"""From records of runs to findings, as a table: each row breaks one number of a healthy run."""

import numpy as np
import pytest

from tfdist.errors import ArgumentError
from tfdist.verification import Cause, ModelFacts, RunRecord, compare_runs, describe_comparison
from tfdist.verification.record import INITIAL, Key, load_runs

STEPS = 3
KERNEL = np.array([[1.0, -2.0], [0.5, 3.0]])
#: The mean gradient of each replica's own rows, and how many rows it has in each step.
MEANS = {0: KERNEL, 1: np.array([[3.0, 1.0], [-0.5, 2.0]])}
ROWS = [{0: 2, 1: 2}, {0: 2, 1: 2}, {0: 1, 1: 2}]
RATE = 0.1


def right_gradient(step):
    rows = ROWS[step]
    return sum(MEANS[r] * rows[r] for r in rows) / sum(rows.values())


def digests(step, replica):
    return np.arange(100 * step + 10 * replica, 100 * step + 10 * replica + ROWS[step][replica], dtype=np.uint64)


def single_run():
    values = {Key(INITIAL, "weight", "d/kernel", 0): KERNEL, Key(INITIAL, "state", "d/mean", 0): np.zeros(2)}
    weight = KERNEL
    for step in range(STEPS):
        weight = weight - RATE * right_gradient(step)
        values |= {
            Key(step, "log", "loss", 0): np.array(1.0 / (step + 1)),
            Key(step, "log", "mae", 0): np.array(0.5),
            Key(step, "gradient", "d/kernel", 0): right_gradient(step),
            Key(step, "weight", "d/kernel", 0): weight,
            Key(step, "state", "d/mean", 0): np.full(2, step + 1.0),
            Key(step, "own_row", "", 0): np.concatenate([digests(step, r) for r in (0, 1)]),
        }
    return RunRecord(ModelFacts(optimizer="SGD"), values)


def replicas_run(**facts):
    single = single_run().values
    values = {}
    for key, value in single.items():
        if key.kind in ("weight", "state"):
            values |= {key._replace(place=r): value for r in (0, 1)}
        elif key.kind in ("log", "gradient"):
            values[key] = value
    for step, rows in enumerate(ROWS):
        for r, count in rows.items():
            values[Key(step, "local_gradient", "d/kernel", r)] = MEANS[r] * count / sum(rows.values())
            values[Key(step, "row", "", r)] = digests(step, r)
            values[Key(step, "seed", "drop", r)] = np.array([5 + 7919 * r, step])
    return RunRecord(ModelFacts(**{"replicas": 2, "optimizer": "SGD", **facts}), values)


def set_local_gradients(run, make, *, steps=range(STEPS)):
    """Replaces each replica's gradient, and with it their sum and the weights."""
    weight = KERNEL
    for step in range(STEPS):
        rows = ROWS[step]
        local = {r: run.values[Key(step, "local_gradient", "d/kernel", r)] for r in rows}
        if step in steps:
            local = {r: make(MEANS[r], rows[r], sum(rows.values())) for r in rows}
        weight = weight - RATE * sum(local.values())
        run.values[Key(step, "gradient", "d/kernel", 0)] = sum(local.values())
        for r, gradient in local.items():
            run.values[Key(step, "local_gradient", "d/kernel", r)] = gradient
            run.values[Key(step, "weight", "d/kernel", r)] = weight


def not_scaled(run):
    set_local_gradients(run, lambda mean, rows, total: mean)


def scaled_twice(run):
    set_local_gradients(run, lambda mean, rows, total: mean * rows / total / 2)


def weighted_alike(run):
    set_local_gradients(run, lambda mean, rows, total: mean / 2)


def not_averaged(run):
    run.values[Key(1, "state", "d/mean", 1)] = np.full(2, 7.0)


def averaged_wrongly(run):
    for r in (0, 1):
        run.values[Key(0, "state", "d/mean", r)] = np.full(2, 7.0)


def same_seed(run):
    run.values[Key(1, "seed", "drop", 1)] = run.values[Key(1, "seed", "drop", 0)]


def same_rows(run):
    run.values[Key(1, "row", "", 1)] = run.values[Key(1, "row", "", 0)]


def other_weights(run):
    for r in (0, 1):
        run.values[Key(1, "weight", "d/kernel", r)] = KERNEL


def own_weights(run):
    run.values[Key(0, "weight", "d/kernel", 1)] = KERNEL


def other_metric(run):
    run.values[Key(2, "log", "mae", 0)] = np.array(0.6)


def not_finite(run):
    run.values[Key(1, "log", "loss", 0)] = np.array(np.nan)


def dependent_on_division(run):
    set_local_gradients(run, lambda mean, rows, total: np.sign(mean) * mean**2)


FAULTS = [
    # what is broken, facts, step, what, name, cause
    (not_scaled, {}, 0, "gradient", "d/kernel", Cause.LOSS_SCALING),
    (scaled_twice, {}, 0, "gradient", "d/kernel", Cause.LOSS_SCALING),
    (weighted_alike, {}, 2, "gradient", "d/kernel", Cause.UNEVEN_BATCH),  # wrong only where the rows are uneven
    (not_averaged, {}, 1, "variable", "d/mean", Cause.UNSYNCHRONISED_STATISTICS),
    (averaged_wrongly, {}, 0, "variable", "d/mean", Cause.LAYER_STATE),
    (averaged_wrongly, {"batch_statistics": ("d",)}, 0, "variable", "d/mean", Cause.BATCH_STATISTICS),
    (same_seed, {}, 1, "seed generator", "drop", Cause.SHARED_SEED),
    (same_rows, {"workers": 2}, 1, "rows", "of replicas 0 and 1", Cause.OVERLAPPING_SHARDS),
    (other_weights, {}, 1, "weight", "d/kernel", Cause.UPDATE),
    (other_weights, {"clipping": "clipnorm=1.0"}, 1, "weight", "d/kernel", Cause.CLIPPED_BEFORE_SUM),
    (own_weights, {}, 0, "weight", "d/kernel", Cause.NOT_EXCHANGED),
    (other_metric, {}, 2, "metric", "mae", Cause.METRIC),
    (not_finite, {}, 1, "metric", "loss", Cause.METRIC),
    (dependent_on_division, {}, 0, "gradient", "d/kernel", Cause.LOSS),
    (dependent_on_division, {"batch_statistics": ("bn",)}, 0, "gradient", "d/kernel", Cause.BATCH_STATISTICS),
]


@pytest.mark.parametrize(
    ("damage", "facts", "expected"),
    [(damage, facts, tuple(expected)) for damage, facts, *expected in FAULTS],
    ids=[f"{damage.__name__}-{expected[-1].name}" for damage, _, *expected in FAULTS],
)
def test_faults(damage, facts, expected):
    run = replicas_run(**facts)
    damage(run)
    result = compare_runs(run, single_run(), single_run())
    assert len(result.findings) == 1, "\n".join(map(str, result.findings))
    [found] = result.findings
    assert (found.step, found.what, found.name, found.cause) == expected
    text = describe_comparison(result)
    assert text.startswith("tfdist verify: DIFFERS from one device, 3 steps on 2 replicas.\n1. step ")
    assert found.cause.label in text
    assert found.cause.fix in text


def test_healthy():
    result = compare_runs(replicas_run(), single_run(), single_run())
    assert result.findings == ()
    assert result.notes == ()
    assert result.compared == STEPS * 5  # two logs, a gradient, a weight, a state
    assert describe_comparison(result).startswith("tfdist verify: same as one device, 3 steps on 2 replicas; 15 values")


def clipped(gradient, limit):
    return gradient * limit / np.linalg.norm(gradient)


def test_clipping_before_the_optimizer():
    """One device clips, too, so that its gradient has the same norm as each replica's own."""
    run, single = replicas_run(), single_run()
    set_local_gradients(run, lambda mean, rows, total: clipped(mean, 0.1))
    for step in range(STEPS):
        single.values[Key(step, "gradient", "d/kernel", 0)] = clipped(right_gradient(step), 0.1)
    [found] = compare_runs(run, single, single).findings
    assert (found.step, found.what, found.cause) == (0, "gradient", Cause.CLIPPED_BEFORE_SUM)
    assert "the norm of the gradient of d/kernel is 0.1" in found.evidence


def test_two_faults_are_two_findings():
    run = replicas_run()
    not_scaled(run)
    same_seed(run)
    found = compare_runs(run, single_run(), single_run()).findings
    assert [(f.step, f.cause) for f in found] == [(0, Cause.LOSS_SCALING), (1, Cause.SHARED_SEED)]


def test_without_a_recorded_exchange_the_replicas_gradients_are_added():
    run = replicas_run()
    not_scaled(run)
    run.values = {key: value for key, value in run.values.items() if key.kind != "gradient"}
    [found] = compare_runs(run, single_run(), single_run()).findings
    assert found.cause is Cause.LOSS_SCALING


@pytest.mark.parametrize(("off", "found"), [(1e-7, 0), (1e-3, 1)])
def test_tolerance(off, found):
    run = replicas_run()
    run.values[Key(0, "log", "loss", 0)] = np.array(1.0 + off)
    assert len(compare_runs(run, single_run(), single_run()).findings) == found
    assert not compare_runs(run, single_run(), single_run(), tolerance=0.01).findings


def test_what_differs_on_one_device_too_is_no_finding():
    run, again = replicas_run(), single_run()
    again.values[Key(0, "log", "mae", 0)] = np.array(0.9)
    run.values[Key(0, "log", "mae", 0)] = np.array(0.7)
    result = compare_runs(run, single_run(), again)
    assert not result.findings
    [note] = result.notes
    assert note.startswith("Random on one device, too")
    assert note.endswith("compared only roughly: metric mae.")
    assert describe_comparison(result).startswith("tfdist verify: no difference found, though compared only roughly, 3")


def test_half_precision_rounds_more():
    run = replicas_run(precision=1e-3)
    run.values[Key(0, "log", "loss", 0)] = np.array(1.003)
    assert not compare_runs(run, single_run(), single_run()).findings


def test_zero_gradients_that_an_optimizer_magnifies_hide_nothing():
    """Of rounding, Adam makes full steps, as for a bias before a BatchNormalization; that weight alone varies."""
    run, single, again = replicas_run(), single_run(), single_run()
    not_scaled(run)
    for number, record in enumerate((run, single, again)):
        for step in range(INITIAL, STEPS):
            record.values[Key(step, "weight", "d/bias", 0)] = np.array([0.1 * (step + 1) * (-1) ** number])
            record.values[Key(step, "gradient", "d/bias", 0)] = np.array([1e-9 * (-1) ** number])
    [found] = compare_runs(run, single, again).findings
    assert (found.name, found.cause) == ("d/kernel", Cause.LOSS_SCALING)


def test_replicas_of_one_worker_share_out_what_it_reads():
    """A dataset that repeats rows may repeat others on one device, which reads it anew."""
    run = replicas_run()
    same_rows(run)
    assert not compare_runs(run, single_run(), single_run()).findings


def test_a_dataset_that_repeats_rows_may_repeat_more_by_chance():
    run, single = replicas_run(workers=2), single_run()
    rows = np.arange(40, dtype=np.uint64)
    for place in (0, 1):
        run.values[Key(0, "row", "", place)] = rows[20 * place : 20 * place + 20] // 2 * 2
    single.values[Key(0, "own_row", "", 0)] = np.concatenate([run.values[Key(0, "row", "", r)] for r in (0, 1)])
    run.values[Key(0, "row", "", 1)][0] = 0
    assert not compare_runs(run, single, single).findings
    run.values[Key(0, "row", "", 1)][:] = run.values[Key(0, "row", "", 0)]
    [found] = compare_runs(run, single, single).findings
    assert found.cause is Cause.OVERLAPPING_SHARDS


def test_an_optimizer_with_other_settings():
    run, single = (
        replicas_run(settings={"learning_rate": "0.2", "momentum": "0"}),
        single_run(),
    )
    other_weights(run)
    single.facts.settings.update(learning_rate="0.1", momentum="0")
    [found] = compare_runs(run, single, single).findings
    assert (found.what, found.cause) == ("weight", Cause.SETTINGS)
    assert "learning_rate=0.2 instead of 0.1." in found.evidence


@pytest.mark.parametrize("changed", ["settings", "shape"])
def test_a_model_that_differs_at_each_call(changed):
    single, again = single_run(), single_run()
    if changed == "settings":
        single.facts.settings["learning_rate"], again.facts.settings["learning_rate"] = "0.1", "0.2"
    else:
        again.values[Key(INITIAL, "weight", "d/kernel", 0)] = np.zeros((2, 3))
    with pytest.raises(ArgumentError, match="The runs built different models"):
        compare_runs(replicas_run(), single, again)


def with_bias(gradient, steps):
    """A bias whose gradient is of the size given, in runs on replicas, on one device, and that again."""
    runs = replicas_run(), single_run(), single_run()
    for run, sign, change in zip(runs, (-1, 1, 1), steps, strict=True):
        for step in range(STEPS):
            run.values[Key(step, "gradient", "d/bias", 0)] = np.array([sign * gradient])
            run.values[Key(step, "weight", "d/bias", 0)] = np.array([change])
        run.values[Key(INITIAL, "weight", "d/bias", 0)] = np.array([0.0])
    return runs


def test_steps_that_an_optimizer_makes_of_rounding_are_no_finding():
    """Though the two runs on one device, by chance, made the same ones."""
    result = compare_runs(*with_bias(1e-8, steps=(-0.1, 0.1, 0.1)))
    assert not result.findings
    assert not result.notes


def test_steps_beyond_what_rounding_explains_are():
    replicas, single, again = with_bias(1e-8, steps=(-0.1, 0.1, 0.1))
    for run in (replicas, single, again):
        run.values[Key(0, "gradient", "d/bias", 0)] = np.array([0.1])
    [found] = compare_runs(replicas, single, again).findings
    assert (found.name, found.cause) == ("d/bias", Cause.UPDATE)


def test_a_metric_that_jumps_hides_no_wrong_gradient():
    """An accuracy, by a row on rounding; the gradients are the same in both runs on one device."""
    runs = replicas_run(), single_run(), single_run()
    not_scaled(runs[0])
    runs[2].values[Key(0, "log", "mae", 0)] = np.array(0.9)
    assert Cause.LOSS_SCALING in {found.cause for found in compare_runs(*runs).findings}


def test_a_little_chance_in_a_step_is_in_all_its_values():
    """A thousandth, as of weak noise in a layer, though the loss came out alike in both runs on one device."""
    runs = replicas_run(), single_run(), single_run()
    for run, off in zip(runs, (1e-3, 0.0, 1e-3), strict=True):
        run.values[Key(0, "gradient", "d/kernel", 0)] = right_gradient(0) * (1 + off)
    runs[0].values[Key(0, "log", "loss", 0)] = np.array(1.0005)
    runs[2].values[Key(0, "log", "mae", 0)] = np.array(0.50025)
    assert not compare_runs(*runs).findings


def test_a_large_loss_hides_no_metric():
    runs = replicas_run(), single_run(), single_run()
    for run in runs:
        run.values[Key(0, "log", "loss", 0)] = np.array(1e9)
    runs[0].values[Key(0, "log", "mae", 0)] = np.array(0.49)
    [found] = compare_runs(*runs).findings
    assert (found.what, found.name) == ("metric", "mae")


def test_rows_that_the_dataset_has_twice_are_no_overlap():
    run, single = replicas_run(workers=2), single_run()
    same_rows(run)
    own = single.values[Key(1, "own_row", "", 0)]
    single.values[Key(1, "own_row", "", 0)] = np.concatenate([own[:2], own[:2]])
    assert not compare_runs(run, single, single).findings


def test_other_variables():
    run = replicas_run()
    run.values[Key(INITIAL, "weight", "d_1/kernel", 0)] = KERNEL
    with pytest.raises(ArgumentError, match=r"built different models.*\n.*d_1/kernel"):
        compare_runs(run, single_run(), single_run())


def test_no_step():
    with pytest.raises(ArgumentError, match="nothing to compare"):
        compare_runs(replicas_run(), RunRecord(ModelFacts()), RunRecord(ModelFacts()))


def test_records_survive_a_file(tmp_path):
    run = replicas_run(batch_statistics=("bn",), clipping="clipnorm=1.0")
    parts = [RunRecord(run.facts, {k: v for k, v in run.values.items() if k.place == place}) for place in (0, 1)]
    for place, part in enumerate(parts):
        part.save(tmp_path / f"replicas-{place}.npz")
    single_run().save(tmp_path / "single-0.npz")
    single_run().save(tmp_path / "again-0.npz")
    loaded, single, again = load_runs(tmp_path)
    assert loaded.facts == run.facts
    assert set(loaded.values) == set(run.values)
    assert not compare_runs(loaded, single, again).findings


def test_no_record(tmp_path):
    with pytest.raises(ArgumentError, match=r"did not train with model\.fit"):
        load_runs(tmp_path)
