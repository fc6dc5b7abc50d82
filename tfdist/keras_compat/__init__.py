"""Makes Keras 3 train under `tf.distribute`.

Keras 3 has no hook for what is missing, so this package replaces parts of its TensorFlow trainer, optimizer and
variable. It acts only for models and optimizers of strategies that a tfdist factory made (`managed_strategies`), is
installed with the first of them and can be taken away. May import the pure packages, `communication`, TensorFlow and
Keras.
"""
