"""What functions of a script or notebook use arrives by value: functions and classes of every usual kind."""

import dataclasses
import enum
import functools
import importlib
import sys

import keras
import pytest
import tensorflow as tf

from tfdist.errors import ArgumentError
from tfdist.recording.by_value import pack, unpack


def test_functions_and_classes():
    count = 0

    class Base:
        @property
        def two(self):
            return 2

    class Derived(Base):
        @classmethod
        def make(cls):
            return cls()

        def three(self):
            return super().two + 1

    def recursive(n):
        return 1 if n == 0 else n * recursive(n - 1)

    def increase():
        nonlocal count
        count += 1
        return count

    derived, again, counting = unpack(pack((Derived, recursive, increase)))
    assert derived is not Derived
    assert (derived.make().three(), again(4), counting(), counting()) == (3, 24, 1, 2)
    assert count == 0


def test_dataclasses_and_enums():
    @dataclasses.dataclass(frozen=True)
    class Settings:
        rate: float = 0.1
        sizes: list = dataclasses.field(default_factory=lambda: [3])

    @dataclasses.dataclass(slots=True)
    class Sizes:
        height: int = 2

    class Kind(enum.Enum):
        SMALL = 1
        LARGE = 2

        def double(self):
            return 2 * self.value

    settings, sizes, kind, large = unpack(pack((Settings(0.2), Sizes, Kind, Kind.LARGE)))
    assert type(settings) is not Settings
    assert dataclasses.asdict(dataclasses.replace(settings, rate=0.3)) == {"rate": 0.3, "sizes": [3]}
    assert (sizes(5).height, sizes.__slots__) == (5, ("height",))
    assert kind is not Kind
    assert (kind.LARGE is large, large.double()) == (True, 4)
    assert list(kind) == [kind.SMALL, kind.LARGE]


def test_decorated_functions():
    @functools.cache
    def cached(n):
        return n + 1

    @tf.function(input_signature=[tf.TensorSpec([], tf.int32)])
    def traced(n):
        return n + 2

    assert int(traced(1)) == 3  # a traced one holds graphs
    arrived, in_graph = unpack(pack((cached, traced)))
    assert (arrived(1), arrived.cache_parameters()["maxsize"], int(in_graph(1))) == (2, None, 3)


def test_registered_layers_are_found_by_their_name():
    @keras.saving.register_keras_serializable("tests_by_value")
    class Doubles(keras.layers.Layer):
        def call(self, inputs):
            return 2 * inputs

    def build():
        inputs = keras.Input((2,))
        model = keras.Model(inputs, Doubles()(inputs))
        return keras.Model.from_config(model.get_config()).layers[1]

    layer = unpack(pack(build))()
    assert type(layer) is not Doubles
    assert keras.saving.get_registered_object("tests_by_value>Doubles") is type(layer)


def test_modules_of_a_package(tmp_path, monkeypatch):
    """`import package.module` binds only the package, which knows the module where somebody imported it."""
    (tmp_path / "package_of_a_user").mkdir()
    (tmp_path / "package_of_a_user" / "__init__.py").write_text("")
    (tmp_path / "package_of_a_user" / "models.py").write_text("def build():\n    return 5\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    package = importlib.import_module("package_of_a_user")
    importlib.import_module("package_of_a_user.models")
    data = pack(lambda: package.models.build() + 1)
    for name in ("package_of_a_user.models", "package_of_a_user"):  # as in another process
        del sys.modules[name]
    assert unpack(data)() == 6


def test_what_is_only_known_by_name(monkeypatch):
    module = sys.modules[__name__]
    monkeypatch.setattr(module, "thing", object.__new__(type("Thing", (), {"__reduce__": lambda self: "thing"})), False)
    data = pack(module.thing)
    monkeypatch.delattr(module, "thing")
    with pytest.raises(ArgumentError, match="cannot be made again in the process that verifies"):
        unpack(data)
