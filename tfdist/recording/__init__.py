"""Runs a user's model on several replicas and on one device, and records what `verification` compares.

May import everything below it: the factories, `keras_compat`, `verification`, and of the launcher what starts
processes. Nothing here acts in a process that does not verify.
"""
